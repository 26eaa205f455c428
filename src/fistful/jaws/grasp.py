"""A parallel-jaw grasp: where the jaws are, how they close, and the object that lies before them."""

from dataclasses import dataclass, replace

import numpy as np

from fistful.objects.object import Object


@dataclass(frozen=True, kw_only=True, eq=False)
class JawGrasp:
    """Where a gripper closes, in the world W: the plane is z = 0, gravity points along -z.

    The grasp frame G has its origin between the jaws, x along the closing axis, z along the approach (from
    the palm to the tips). Jaw 0 starts on the side of -x and moves along +x, jaw 1 the other way round.
    """

    p_WG: np.ndarray
    """(3,) float64, m. The middle between the faces of the pads."""
    R_WG: np.ndarray
    """(3, 3) float64. Columns: closing axis, across the pads, approach."""

    @property
    def axis_W(self) -> np.ndarray:
        """(3,) float64. The closing axis."""
        return self.R_WG[:, 0]

    def moved(self, shift_W: np.ndarray, turn_W: np.ndarray) -> "JawGrasp":
        """The grasp shifted (m) and turned by a rotation vector (rad) about its own origin."""
        from scipy.spatial.transform import Rotation

        return replace(
            self, p_WG=self.p_WG + shift_W, R_WG=Rotation.from_rotvec(turn_W).as_matrix() @ self.R_WG
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Resting:
    """An object at rest on the plane z = 0."""

    item: Object
    p_WO: np.ndarray
    """(3,) float64, m. Origin of the object frame."""
    R_WO: np.ndarray
    """(3, 3) float64."""
    mass: float
    """kg."""

    @property
    def vertices_W(self) -> np.ndarray:
        """(V, 3) float64, m. The mesh in the world."""
        return self.item.vertices @ self.R_WO.T + self.p_WO

    @property
    def com_W(self) -> np.ndarray:
        """(3,) float64, m. The centre of mass."""
        return self.R_WO @ self.item.mass_properties.com_O + self.p_WO
