"""What came of a simulated grasp."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Reason(StrEnum):
    """Why a grasp ended."""

    HELD = "held"
    """Both pads touch the object, whose lowest point is 2 cm up."""
    MISSED = "missed"
    """The jaws met and never touched the object."""
    PUSHED_OUT = "pushed out"
    """The jaws touched the object, pushed it away and met."""
    NOT_CLOSED = "not closed"
    """The jaws pushed, but never both with the force or energy asked for."""
    DROPPED = "dropped"
    """Lifted without both pads on the object, or with nothing left between them."""
    NOT_LIFTED = "not lifted"
    """The jaws went up, but a part of the object stayed down."""
    BLOCKED = "blocked"
    """The open jaws did not fit around the object or above the plane; perturbed grasps only."""
    UNCONVERGED = "unconverged"
    """Newton's method failed in too many steps for the result to mean anything."""
    BUDGET = "budget"
    """Steps or CPU time ran out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Frame:
    """The state after one time step, for a viewer."""

    time: float
    """s."""
    nodes_W: np.ndarray
    """(2, N, 3) float32, m. Nodes of both pads."""
    energies: np.ndarray
    """(2, T) float32, J/m3. Density of strain energy in each tetrahedron."""
    p_WO: np.ndarray
    """(3,) float64, m. Origin of the object frame."""
    R_WO: np.ndarray
    """(3, 3) float64."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Frames of a grasp and the meshes they move."""

    tets: np.ndarray
    """(2, T, 4) int32. Of each pad."""
    faces: np.ndarray
    """(2, F, 3) int32. Surface of each pad."""
    frames: tuple[Frame, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class JawOutcome:
    """A simulated grasp: did it hold, how, and how well the simulation itself went."""

    success: bool
    reason: Reason
    first_contact: int | None
    """Jaw that touched first (0 or 1; 0 if both did in the same step); None if none did."""
    first_contact_s: float | None
    """s. When; the time counts from fully open jaws."""
    squeeze_displacement_mm: float
    """How far the centre of mass moved until the squeeze ended."""
    squeeze_rotation_deg: float
    lift_displacement_mm: float
    """How far it moved relative to the jaws during the lift: slip."""
    lift_rotation_deg: float
    time_s: np.ndarray
    """(K,) float64. Ends of the time steps."""
    lifting: np.ndarray
    """(K,) bool."""
    force_N: np.ndarray
    """(K, 2) float64. Contact force of the object on each pad, along the closing axis."""
    area_mm2: np.ndarray
    """(K, 2) float64. Area of each pad within contact distance of the object."""
    height_mm: np.ndarray
    """(K,) float64. Of the object's lowest point."""
    steps: int
    newton_iterations: int
    unconverged_steps: int
    min_gap_m: float
    """Smallest distance ever between pads, object and plane; inf if nothing came close."""
    intersections: int
    """Steps after which something intersected: always 0, but counted."""
    inverted_tets: int
    """Inverted tetrahedra over all steps: always 0, but counted."""
    cpu_s: float
    notes: tuple[str, ...] = ()
    recording: Recording | None = None
