"""What the `fistful jaws` commands share: gripper, object and grasp by options."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import tyro

from fistful.cli.console import print_object_notes, say, steps
from fistful.errors import JawsError
from fistful.objects import Units

if TYPE_CHECKING:
    from fistful.jaws.grasp import JawGrasp, Resting
    from fistful.jaws.gripper import Gripper

Out = Annotated[Path | None, tyro.conf.arg(metavar="DIR")]
DENSITY = 1000.0
"""kg/m3. Of objects whose mass nobody gives."""
_MOST_CANDIDATES = 1000
UNUSED: dict[str, tuple[str, ...]] = {
    "soft-point": ("pads", "pad_size_mm", "youngs_modulus", "stop", "hold", "jaw_stiffness", "jaw_length_mm"),
    "reach": ("youngs_modulus", "stop", "hold", "jaw_stiffness", "jaw_length_mm"),
    "6dfc": ("youngs_modulus", "stop", "hold", "jaw_stiffness", "jaw_length_mm"),
    "mujoco": ("stop", "hold", "jaw_stiffness", "jaw_length_mm"),
    "mujoco-untuned": ("stop", "hold", "jaw_stiffness", "jaw_length_mm"),
    "ipc": (),
}
"""Options of the gripper that a model does not use. The planner of grasps uses pads, friction and opening."""


@dataclass(frozen=True, kw_only=True)
class GripperOptions:
    """Pads and drive; SI units. docs/jaws.md maps the paper's scaled numbers to them."""

    pads: Literal["rounded", "rectangular"] = "rounded"
    """Shape of the pads."""
    pad_size_mm: tuple[float, float, float] = (16.0, 22.0, 2.4)
    """Width, length and thickness of the pads."""
    youngs_modulus: float = 1e6
    """Pa. Of the pads; 1e5 is gel, 1e6 soft silicone, 1e9 hard plastic."""
    friction: float = 0.4
    """Between pads and object."""
    opening_mm: float = 50.0
    """Between the pads when open. Many built-in objects need 60 or more."""
    force: float = 20.0
    """N. Closing force; of no effect with --stop energy, whose threshold is 5e-4 J."""
    stop: Literal["force", "energy"] = "force"
    """What ends the squeeze: the closing force at both pads, or the paper's strain energy in both."""
    hold: Literal["distance", "force"] = "distance"
    """What the jaws keep while they lift: their distance, as in the paper, or the force of the squeeze, as a
    motor that goes on pressing."""
    jaw_stiffness: float = 1e6
    """N/m. Of the jaws at their pads, along the closing axis; 1e4 and less is a jaw that gives way."""
    jaw_length_mm: float | None = None
    """From root to pad, of jaws that bend as cantilevers and open their tips under load; then give
    --jaw-stiffness too. Default: they give way without a tilt."""

    def made(self) -> "Gripper":
        """The gripper of these options."""
        from fistful.jaws.gripper import Gripper, Pad, rectangle, rounded
        from fistful.jaws.start import check_gripper

        width, length, thickness = (1e-3 * value for value in self.pad_size_mm)
        if not min(self.pad_size_mm) > 0:
            raise JawsError(f"--pad-size-mm is {self.pad_size_mm}; width, length and thickness are positive")
        if self.pads == "rounded" and length < width / 2:
            raise JawsError(
                f"a rounded pad is at least half as long as wide; {self.pad_size_mm[:2]} mm is not"
            )
        outline = rounded(width, length) if self.pads == "rounded" else rectangle(width, length)
        pad = Pad(outline=outline, thickness=thickness, youngs_modulus=self.youngs_modulus)
        gripper = Gripper(
            pad=pad,
            opening=1e-3 * self.opening_mm,
            friction=self.friction,
            closing_force=self.force,
            stop=self.stop,
            hold=self.hold,
            stiffness=self.jaw_stiffness,
            jaw_length=None if self.jaw_length_mm is None else 1e-3 * self.jaw_length_mm,
        )
        check_gripper(gripper)
        return gripper

    def unused(self, model: str) -> list[str]:
        """Options that are not at their defaults, and that make no difference to what the model says."""
        idle = UNUSED[model]
        if model == "ipc" and self.stop == "energy":
            idle += ("force",)
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        return [f"--{name.replace('_', '-')}" for name in changed if name in idle]

    def tell_unused(self, model: str) -> None:
        """Say which of the given options the model does not use, if there are any."""
        names = self.unused(model)
        if names:
            when = " with --stop energy" if model == "ipc" else ""
            # The planner does, whatever the model.
            pads = [name for name in names if name in ("--pads", "--pad-size-mm")]
            still = f"; which grasps are planned depends on {', '.join(pads)} all the same" if pads else ""
            say(f"note: {model} does not use {', '.join(names)}{when}{still}")


@dataclass(frozen=True, kw_only=True)
class ObjectOptions:
    """The object, and how it lies."""

    mass_g: float | None = None
    """Mass in grams. Default: 1000 kg/m3, as water."""
    rescale: bool = False
    """Scale the longest side into 0.06-0.10 m."""
    units: Units = "auto"
    """Unit of the file's coordinates."""
    rest: int = 0
    """Which stable pose it lies in; 0 is the most likely one."""

    def resting(self, name: str) -> "Resting":
        """The object on the plane."""
        from fistful.jaws.stable_poses import rest, stable_poses
        from fistful.objects import load_object

        if self.mass_g is not None and not 0 < self.mass_g < np.inf:
            raise JawsError(f"--mass-g is {self.mass_g}; it has to be a positive number")
        with steps(f"preparing {name}"):
            item = load_object(name, units=self.units, rescale=self.rescale)
            poses = stable_poses(item)
        if not 0 <= self.rest < len(poses):
            raise JawsError(
                f"{item.name} has {len(poses)} stable pose(s), 0 to {len(poses) - 1}; not {self.rest}"
            )
        mass = item.mass_properties.at_density(DENSITY).mass if self.mass_g is None else 1e-3 * self.mass_g
        likely = 100 * poses[self.rest].probability
        print_object_notes(item)
        x, y, z = (1e3 * side for side in item.report.extents_m)
        say(
            f"{item.name}: {x:.0f} x {y:.0f} x {z:.0f} mm, {1e3 * mass:.3g} g, stable pose {self.rest} of "
            f"{len(poses)} ({likely:.0f} % likely)"
        )
        return rest(item, poses[self.rest], mass)


@dataclass(frozen=True, kw_only=True)
class GraspOptions:
    """Which grasp: one of the planned ones, or one by its pose."""

    candidate: int = 0
    """Which of the planned grasps, best first."""
    centre_mm: tuple[float, float, float] | None = None
    """Middle between the jaws, instead of a planned grasp: z above the plane; the object lies over 0 0."""
    axis: tuple[float, float, float] = (1.0, 0.0, 0.0)
    """Closing axis, with --centre-mm."""
    roll_deg: float = 0.0
    """Turn about the closing axis, with --centre-mm; 0 approaches from as high above as the axis allows."""
    seed: int = 0
    """Of the planned grasps, and of noise."""

    def chosen(self, resting: "Resting", gripper: "Gripper") -> "JawGrasp":
        """The grasp of these options."""
        from fistful.jaws.grasp import JawGrasp

        if self.centre_mm is None and (self.axis != GraspOptions.axis or self.roll_deg):
            raise JawsError("--axis and --roll-deg are of a grasp by its pose; give --centre-mm too")
        if self.candidate >= _MOST_CANDIDATES:
            raise JawsError(f"--candidate is {self.candidate}; no more than {_MOST_CANDIDATES} are planned")
        if self.centre_mm is not None:
            return JawGrasp(p_WG=1e-3 * np.array(self.centre_mm), R_WG=frame_about(self.axis, self.roll_deg))
        found = planned(resting, gripper, max(20, self.candidate + 1), self.seed)
        if not 0 <= self.candidate < len(found):
            known = f"{len(found)} grasps were found, 0 to {len(found) - 1}"
            raise JawsError(f"{known}; there is no {self.candidate}")
        return found[self.candidate]


def planned(resting: "Resting", gripper: "Gripper", count: int, seed: int) -> "list[JawGrasp]":
    """At least one and at most `count` grasps, best first. Raises JawsError if there are none."""
    from fistful.jaws.candidates import candidates, shortage

    with steps("planning grasps"):
        found = candidates(resting, gripper, count=count, seed=seed)
    if not found:
        why = shortage(resting, gripper, seed)
        raise JawsError(
            f"no grasp of {resting.item.name} found: {why}; try --opening-mm, --rest or --rescale"
        )
    return found


def frame_about(axis: tuple[float, float, float], roll_deg: float) -> np.ndarray:
    """(3, 3) float. The grasp frame that closes along an axis and comes from above, rolled about the axis."""
    from fistful.geometry.pose import rotation_about

    length = float(np.linalg.norm(axis))
    if not (np.isfinite(length) and length > 1e-9):
        raise JawsError(f"axis is {axis}; it has to be a direction")
    x = np.array(axis) / length
    down = np.array([0.0, 0.0, -1.0])
    z = down - (down @ x) * x
    if np.linalg.norm(z) < 1e-6:
        raise JawsError(f"axis is {axis}: jaws that close vertically can not lift from the plane")
    z /= np.linalg.norm(z)
    R = np.stack([x, np.cross(z, x), z], axis=1)
    return rotation_about(x, np.array(np.deg2rad(roll_deg))) @ R


def check_counts(**counts: int) -> None:
    """Raise JawsError if one of these options is less than 1."""
    for name, value in counts.items():
        if value < 1:
            raise JawsError(f"--{name} is {value}; it has to be at least 1")


def tell_unconverged(counts: list[int]) -> None:
    """Say how many time steps failed, if any did."""
    if sum(counts):
        say(f"note: {sum(counts)} time steps did not converge")
