"""REACH's area contact: every element of the pressed patch has its own Coulomb friction.

What is certain about REACH and what is our reading of it is said in docs/jaws_models.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.holding import LENGTH, Jaw, load_factor, weight, wrench
from fistful.jaws.patch import SPACING, Compression, Patch, outline_points, press, surface


def area_contact(patch: Patch, centre: np.ndarray, friction: float) -> Jaw:
    """A jaw that presses on a patch; its friction is the sum of a disc of radius mu f_i for each element.

    The wrench of most work on a twist (v, omega) has each element's friction along its tangential velocity:
    u_i = v + omega x (x_i - c) without its part along n_i, and f_t,i = mu f_i u_i / |u_i|.

    Args:
      patch: Patch, at the full closing force.
      centre: (3,) float, m. Torques are about this point.
      friction: Coefficient mu.
    """
    normal = wrench(patch.x_W, patch.f[:, None] * patch.n_W, centre).sum(axis=0)
    arm = (patch.x_W - centre) / LENGTH

    def support(xi: np.ndarray) -> np.ndarray:
        u = xi[:3] + np.cross(xi[3:], arm)
        u -= np.einsum("ij,ij->i", u, patch.n_W)[:, None] * patch.n_W
        speed = np.linalg.norm(u, axis=1)
        pull = np.divide(friction * patch.f, speed, out=np.zeros_like(speed), where=speed > 0)
        return wrench(patch.x_W, pull[:, None] * u, centre).sum(axis=0)

    return Jaw(normal, support)


@dataclass(frozen=True, kw_only=True)
class Reach:
    """A grasp holds if both pads press on the object and their area contacts together resist its weight."""

    name: str = "reach"
    spacing: float = SPACING
    """m. Between contact elements."""
    compression: Compression = "full"

    def outcomes(self, resting: Resting, grasps: Sequence[JawGrasp], gripper: Gripper) -> np.ndarray:
        """(N,) bool. Which grasps hold."""
        mesh, points = surface(resting), outline_points(gripper.pad.outline, self.spacing)
        held = []
        for grasp in grasps:
            patches = [press(mesh, grasp, gripper, jaw, points, self.compression) for jaw in (0, 1)]
            jaws = [area_contact(p, resting.com_W, gripper.friction) for p in patches if p is not None]
            held.append(len(jaws) == 2 and load_factor(jaws, weight(resting), enough=1.0).lower >= 1.0)
        return np.array(held, dtype=bool)
