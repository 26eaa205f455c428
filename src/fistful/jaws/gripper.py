"""A gripper with compliant pads: what the pads are made of, and how the jaws are driven."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np


def rectangle(width: float, height: float) -> np.ndarray:
    """(4, 2) float64, m. Outline of a rectangular pad, counter-clockwise."""
    y, z = width / 2, height / 2
    return np.array([[-y, -z], [y, -z], [y, z], [-y, z]])


def rounded(width: float, height: float, corner: float | None = None, segments: int = 6) -> np.ndarray:
    """(N, 2) float64, m. Outline of a pad whose two corners at the tip (+z) are arcs of radius `corner`."""
    y, z, r = width / 2, height / 2, width / 2 if corner is None else corner
    angles = np.linspace(0, np.pi / 2, segments + 1)
    right = np.stack([y - r + r * np.cos(angles), z - r + r * np.sin(angles)], axis=1)
    left = np.stack([-(y - r) - r * np.sin(angles), z - r + r * np.cos(angles)], axis=1)
    if np.allclose(right[-1], left[0]):
        left = left[1:]
    return np.concatenate([[[-y, -z], [y, -z]], right, left])


@dataclass(frozen=True, kw_only=True, eq=False)
class Pad:
    """A soft pad: an extruded polygon of a Neo-Hookean solid, glued to a rigid backing.

    The outline lies in the plane of the grasp frame's y (across) and z (towards the tip); its origin is where
    the axis of the grasp meets the pad. SI units; docs/jaws.md maps the paper's scaled numbers to them.
    """

    outline: np.ndarray = field(default_factory=lambda: rounded(0.016, 0.022))
    """(N, 2) float64, m. Counter-clockwise polygon."""
    thickness: float = 0.0024
    """m."""
    youngs_modulus: float = 1e6
    """Pa."""
    poissons_ratio: float = 0.45
    density: float = 2300.0
    """kg/m3."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Gripper:
    """Two equal pads, facing each other, and how they are driven."""

    pad: Pad = field(default_factory=Pad)
    opening: float = 0.05
    """m. Distance of the pads' faces when fully open."""
    friction: float = 0.4
    """Between pads and object."""
    ground_friction: float = 0.1
    """Between object and plane."""
    stop: Literal["force", "energy"] = "force"
    """What ends the squeeze: the contact force of both pads, or the elastic energy in both of them."""
    closing_force: float = 20.0
    """N."""
    stop_energy: float = 5e-4
    """J. For stop = "energy"."""
    hold: Literal["distance", "force"] = "distance"
    """What the jaws keep while they lift: their distance, as in the paper and with jaws that lock, or the
    force with which the squeeze ended, as with a motor that goes on pressing."""
    closing_speed: float = 0.125
    """m/s. Of each jaw."""
    lifting_speed: float = 0.25
    """m/s."""
    stiffness: float = 1e6
    """N/m. Of a jaw at its pad, along the closing axis; low values model jaws that give way."""
    jaw_length: float | None = None
    """m. From the root of a jaw to the axis of the grasp. Jaws then bend as cantilevers do: a force at the
    pad also tilts it, so that the tips open. None: they give way without a tilt."""

    def record(self) -> dict[str, Any]:
        """All of it as JSON-able values."""
        record = asdict(self)
        record["pad"]["outline"] = np.round(self.pad.outline, 9).tolist()
        return record
