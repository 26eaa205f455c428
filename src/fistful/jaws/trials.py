"""Physical trials: what happened when a real gripper took real objects (the REACH data of IPC-GraspSim).

A data folder holds `object_meshes/NAME.obj` and `phys_grasps_json/NAME.json`. Of a record only the named
fields below are copied. The fields `qs_*`, which equal the outcome in every record, are never looked at.

Frames: `pose` is the object and `grasp` the base of the gripper in the robot's frame, metres. The base's x is
the closing axis, its z the approach, and the pads' reference point lies 0.160098 m along z (translation of
the tooltips in `yumi_metal_spline.yaml`, 25 mm to either side). `tf` seems to move the whole scene to where
the object lay in that trial (it differs in all 125); gripper and object move alike, so it is not used.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.geometry.pose import quaternion_from_rotation, rotation_from_quaternion
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper, Pad, rounded
from fistful.jaws.stable_poses import laid_flat
from fistful.objects.object import Object, load_object

MASSES = {"cube_3cm": 0.003}
"""kg. From the table in `tools/grasping/phys_grasp_ipc.py` of the repository that published the trials."""

GRIPPER = Gripper(
    pad=Pad(outline=rounded(0.016, 0.022) - np.array([0.0, 0.003])), opening=0.05, closing_speed=0.025
)
"""The YuMi gripper of the trials. Its pads reach from 14 mm behind the reference point to 8 mm beyond it
(`round_pad.obj`, scaled by 0.8 as in IPC-GraspSim). Its fingers move at no more than 25 mm/s, by its data
sheet; the paper simulates five times that. All else is by default. Nothing is fitted to the trials."""

TIP = 0.160098
"""m. From the base of the gripper to the pads' reference point."""
_FIELDS = ("obj", "pose", "grasp", "attempt", "result")
_TILT = np.deg2rad(2.0)  # how far a recorded pose may be from lying flat


class _Record(NamedTuple):
    """The fields of one trial that are used."""

    pose: np.ndarray
    grasp: np.ndarray
    attempt: int
    result: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class PhysicalGrasp:
    """One grasp and how its physical trials ended."""

    name: str
    """Object and number, as in "cube_3cm/7"."""
    resting: Resting
    grasp: JawGrasp
    results: tuple[bool, ...]

    @property
    def robustness(self) -> float:
        """Share of the trials that succeeded."""
        return sum(self.results) / len(self.results)


def read_trials(folder: Path | str, *, mass: float | None = None) -> list[PhysicalGrasp]:
    """The physical grasps of a data folder, by object and number. Reads files and the cache of objects.

    Records belong to the same grasp if `obj` and `attempt` are equal; then `pose` and `grasp` are, too.

    Args:
      folder: Holds `object_meshes` and `phys_grasps_json`.
      mass: kg, for objects that `MASSES` does not name.
    """
    folder = Path(folder).expanduser()
    records = folder / "phys_grasps_json"
    if not records.is_dir() or not (folder / "object_meshes").is_dir():
        missing = "phys_grasps_json" if not records.is_dir() else "object_meshes"
        raise JawsError(
            f"{folder} holds no folder {missing!r}, so it is no data folder of physical trials; it needs "
            "object_meshes/NAME.obj and phys_grasps_json/NAME.json"
        )
    files = sorted(records.glob("*.json"))
    if not files:
        raise JawsError(f"{records} holds no .json file; one NAME.json is needed for each object")
    return [grasp for file in files for grasp in _grasps_of(folder, file, mass)]


def _grasps_of(folder: Path, file: Path, mass: float | None) -> list[PhysicalGrasp]:
    name = file.stem
    mesh = folder / "object_meshes" / f"{name}.obj"
    if not mesh.is_file():
        raise JawsError(f"{file.name} has trials of {name!r}, but {mesh} is missing")
    known = MASSES.get(name, mass)
    if known is None:
        raise JawsError(f"the mass of {name!r} is not known; known: {', '.join(MASSES)}. Give mass in kg.")
    item = load_object(mesh, units="m")
    groups: dict[int, list[_Record]] = {}
    for record in _records(file):
        groups.setdefault(record.attempt, []).append(record)
    return [_grasp(f"{name}/{n}", item, known, groups[n]) for n in sorted(groups)]


def _records(file: Path) -> list[_Record]:
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JawsError(f"{file} can not be read as JSON: {error}") from error
    if not isinstance(raw, list) or not raw:
        raise JawsError(f"{file} holds a {type(raw).__name__}; a list of trials, not empty, is needed")
    return [_record(entry, f"{file.name}, trial {i}", file.stem) for i, entry in enumerate(raw)]


def _record(entry: Any, where: str, name: str) -> _Record:
    missing = [f for f in _FIELDS if not isinstance(entry, dict) or f not in entry]
    if missing:
        raise JawsError(f"{where}: no field {missing[0]!r}; a trial has {', '.join(_FIELDS)}")
    used = {field: entry[field] for field in _FIELDS}
    if used["obj"] != name:
        raise JawsError(f"{where}: it is of {used['obj']!r}, but the file is named {name!r}")
    if not isinstance(used["result"], bool) or type(used["attempt"]) is not int:
        raise JawsError(f"{where}: 'result' must be true or false and 'attempt' a whole number")
    return _Record(
        _pose(used["pose"], where, "pose"),
        _pose(used["grasp"], where, "grasp"),
        used["attempt"],
        used["result"],
    )


def _pose(value: Any, where: str, field: str) -> np.ndarray:
    """A checked pose (4, 4); the rotation is the nearest one, since the file has few digits."""
    try:
        X = np.array(value, dtype=float)
    except (TypeError, ValueError):
        X = np.zeros(0)
    if X.shape != (4, 4) or not np.all(np.isfinite(X)) or not np.allclose(X[3], [0, 0, 0, 1]):
        raise JawsError(f"{where}: {field!r} is not a 4 x 4 pose")
    R = rotation_from_quaternion(quaternion_from_rotation(X[:3, :3]))
    if np.abs(R - X[:3, :3]).max() > 0.02:
        raise JawsError(f"{where}: the upper left of {field!r} is not a rotation, not even within 0.02")
    X[:3, :3] = R
    return X


def _grasp(name: str, item: Object, mass: float, records: list[_Record]) -> PhysicalGrasp:
    first = records[0]
    for record in records[1:]:
        if not (np.allclose(record.pose, first.pose) and np.allclose(record.grasp, first.grasp)):
            raise JawsError(f"{name}: its trials differ in 'pose' or 'grasp', but have the same 'attempt'")
    R_BO, p_BO = first.pose[:3, :3], first.pose[:3, 3]
    R_WO, tilt = laid_flat(item, R_BO)
    if tilt > _TILT:
        raise JawsError(
            f"{name}: the object stands {np.rad2deg(tilt):.1f} degrees away from any face it could rest on"
        )
    # The recorded height of the table is not known; the plane is put under the object.
    lowest = float((item.vertices @ R_WO.T)[:, 2].min())
    p_WO = np.array([p_BO[0], p_BO[1], -lowest])
    R_WG = first.grasp[:3, :3]
    # Relative to the centre of the object, which is where the poses are least wrong by the tilt.
    centre_O = (item.vertices.min(axis=0) + item.vertices.max(axis=0)) / 2
    tip_B = first.grasp[:3, 3] + TIP * R_WG[:, 2]
    p_WG = tip_B - (R_BO @ centre_O + p_BO) + (R_WO @ centre_O + p_WO)
    return PhysicalGrasp(
        name=name,
        resting=Resting(item=item, p_WO=p_WO, R_WO=R_WO, mass=mass),
        grasp=JawGrasp(p_WG=p_WG, R_WG=R_WG),
        results=tuple(r.result for r in records),
    )
