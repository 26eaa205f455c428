"""The vendor's own model of a built-in hand, from a copy of MuJoCo Menagerie, for a second opinion.

Our hands are made of primitives and have the vendors' kinematics; the vendors' files have shapes and masses
of their own. A grasp tried on both tells how far a verdict hangs on our model of the hand.
"""

import os
from pathlib import Path
from typing import Literal, NamedTuple

import mujoco
import numpy as np

from fistful.errors import PhysicsError
from fistful.hands.hand import Hand
from fistful.hands.model import MUJOCO_ERRORS, one_line

HandModel = Literal["own", "menagerie"]
"""Whose model of the hand is simulated."""
ROOT_VARIABLE = "MENAGERIE_ROOT"
TOLERANCE = 1e-3
"""m and rad. Axes of joints may differ by this much from ours; if they do not agree, it is another hand."""


class Vendor(NamedTuple):
    """Where a vendor's model is, and what our names are called there."""

    file: str
    palm: str
    """The body whose frame is our hand base frame. What carries it (a wrist, a forearm) is left out."""
    joints: dict[str, str]


def _allegro(side: str) -> Vendor:
    fingers = {"index": "ff", "middle": "mf", "ring": "rf", "thumb": "th"}
    joints = {f"{ours}_{i}": f"{theirs}j{i}" for ours, theirs in fingers.items() for i in range(4)}
    return Vendor(f"wonik_allegro/{side}_hand.xml", "palm", joints)


def _shadow() -> Vendor:
    fingers = {
        "index": ("FF", 4),
        "middle": ("MF", 4),
        "ring": ("RF", 4),
        "little": ("LF", 5),
        "thumb": ("TH", 5),
    }
    joints = {f"{f}_{i}": f"rh_{v}J{n - i}" for f, (v, n) in fingers.items() for i in range(n)}
    return Vendor("shadow_hand/right_hand.xml", "rh_palm", joints)


def _leap() -> Vendor:
    chains = {
        f: (v, ("mcp", "rot", "pip", "dip")) for f, v in (("index", "if"), ("middle", "mf"), ("ring", "rf"))
    }
    chains["thumb"] = ("th", ("cmc", "axl", "mcp", "ipl"))
    joints = {f"{f}_{i}": f"{v}_{j}" for f, (v, names) in chains.items() for i, j in enumerate(names)}
    return Vendor("leap_hand/right_hand.xml", "palm", joints)


VENDORS: dict[str, Vendor] = {
    "allegro": _allegro("right"),
    "allegro_left": _allegro("left"),
    "shadow": _shadow(),
    "leap": _leap(),
}
"""By name of the built-in hand."""


def vendor_spec(hand: Hand, root: str | Path | None = None) -> mujoco.MjSpec:
    """The vendor's model of a hand: its shapes and masses, our names of joints, our base frame.

    Actuators, tendons and keyframes are left out, and so is everything that only looks. Reads files.

    Args:
      hand: A built-in hand.
      root: Copy of MuJoCo Menagerie; by default the folder that MENAGERIE_ROOT names.

    Raises:
      PhysicsError: The hand has no vendor model, the file is not there, or it is not this hand.
    """
    vendor = VENDORS.get(hand.name)
    if vendor is None:
        raise PhysicsError(
            f"{hand.name} has no vendor model to compare with; {', '.join(VENDORS)} have. Leave out "
            "--hand-model menagerie to use our own model"
        )
    path = _find(vendor.file, root)
    try:
        spec = mujoco.MjSpec.from_file(str(path))
        _strip(spec, vendor)
        for joint in spec.joints:
            # The rotors are of the motors, which are ours. Without any, the lightest links chatter.
            own = hand.model.compiled.joint(joint.name)
            joint.armature = max(joint.armature, hand.model.compiled.dof_armature[own.dofadr[0]])
        model = spec.compile()
    except (*MUJOCO_ERRORS, KeyError, AttributeError) as error:
        raise PhysicsError(f"MuJoCo can not use {path}: {one_line(error)}") from error
    _check_same(hand, model, path)
    return spec


def _find(file: str, root: str | Path | None) -> Path:
    named = root if root is not None else os.environ.get(ROOT_VARIABLE)
    if not named:
        raise PhysicsError(
            f"{ROOT_VARIABLE} is not set: let it name a copy of github.com/google-deepmind/mujoco_menagerie, "
            f"the folder that holds {Path(file).parent}"
        )
    path = Path(named).expanduser() / file
    if not path.is_file():
        raise PhysicsError(f"there is no {file} in {ROOT_VARIABLE} = {named}")
    # With a relative path MuJoCo does not find the meshes.
    return path.resolve()


def _strip(spec: mujoco.MjSpec, vendor: Vendor) -> None:
    """The palm to the origin, without what carries it; joints by our names; nothing that drives or looks."""
    for element in [*spec.actuators, *spec.keys, *spec.tendons, *spec.sensors]:
        spec.delete(element)
    # Masses may come from the pictures' meshes: MuJoCo reads these, weighs them and drops them.
    spec.compiler.discardvisual = True
    carriers = [spec.body(vendor.palm)]
    while carriers[-1].parent.name != "world":
        carriers.append(carriers[-1].parent)
    for body in carriers:
        body.pos, body.quat = [0, 0, 0], [1, 0, 0, 0]
        body.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
    for part in [*(j for b in carriers for j in b.joints), *(g for b in carriers[1:] for g in b.geoms)]:
        spec.delete(part)
    ours = {theirs: name for name, theirs in vendor.joints.items()}
    for joint in spec.joints:
        joint.name = ours[joint.name]


def _check_same(hand: Hand, model: mujoco.MjModel, path: Path) -> None:
    """Raise PhysicsError unless all joints are where ours are, with the same axes and limits."""
    ours = hand.model.compiled
    names = hand.model.all_joints
    if {model.joint(j).name for j in range(model.njnt)} != set(names):
        raise PhysicsError(f"{path} has other joints than {hand.name}: it is not the same hand")
    places = []
    for m in (ours, model):
        data = mujoco.MjData(m)
        for name, value in zip(names, hand.model.expand(hand.model.open_pose), strict=True):
            data.joint(name).qpos[0] = value
        mujoco.mj_kinematics(m, data)
        joints = [m.joint(name).id for name in names]
        places.append(np.concatenate([data.xanchor[joints], data.xaxis[joints], m.jnt_range[joints]], axis=1))
    gap = np.abs(places[0] - places[1]).max()
    if not gap < TOLERANCE:
        raise PhysicsError(f"joints of {path} are up to {gap:.3g} (m, rad) from those of {hand.name}")
