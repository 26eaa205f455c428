"""The classical quality of a grasp: the largest ball in the hull of its contact wrenches."""

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from fistful.contact.friction import Friction
from fistful.contact.grasp_matrix import grasp_matrix


def epsilon(
    p_O: np.ndarray,
    n_O: np.ndarray,
    *,
    centre_O: np.ndarray,
    size: float,
    friction: Friction | None = None,
    sides: int = 8,
) -> float:
    """Radius of the largest wrench ball that one grasp resists with a total normal force of 1.

    Ferrari and Canny 1992: the distance from the origin to the nearest facet of the convex hull of the
    contacts' wrenches, cones linearised from inside (so the result is a lower bound). In contrast to
    `resistance`, the result depends on `size`, because a ball mixes forces and torques. Slow, and slower
    with more contacts and sides: for tests and experts, not for planning.

    Args:
      p_O: (C, 3) float, m. Contact points of one grasp.
      n_O: (C, 3) float. Outward unit normals of the object.
      centre_O: (3,) float, m. Point about which torques are taken.
      size: Length that divides torques, m.
      friction: Friction of all contacts; None means `Friction()`.
      sides: Sides of the pyramid that replaces the friction cone, at least 3. Torsion adds layers to it.

    Returns:
      Radius >= 0, dimensionless. 0 without force closure, also when the wrenches span less than 6 dimensions.
    """
    if sides < 3:
        raise ValueError(f"sides is {sides}, expected at least 3")
    friction = Friction() if friction is None else friction
    G = grasp_matrix(np.asarray(p_O)[None], np.asarray(n_O)[None], centre_O=centre_O, size=size)[0]
    wrenches = np.einsum("cij,vj->cvi", G, cone_generators(friction, sides)).reshape(-1, 6)
    try:
        hull = ConvexHull(wrenches)
    except (QhullError, ValueError):  # Fewer than 7 wrenches, or all of them in one hyperplane.
        return 0.0
    return float(max(0.0, -hull.equations[:, -1].max()))


def cone_generators(friction: Friction, sides: int) -> np.ndarray:
    """Forces (V, 4) with f_n = 1 whose hull is inscribed in the friction cone.

    Latitudes of the sphere |(f_t / mu, tau / torsion_m)| = 1, `sides` points on each, and its two poles;
    the circle alone for a hard finger, the normal alone without friction and torsion.
    """
    layers = 2 * (sides // 4) + 1 if friction.torsion_m > 0 else 1
    latitude = np.pi * (np.arange(1, layers + 1) / (layers + 1) - 0.5)
    around = 2 * np.pi * np.arange(sides) / sides
    ring = np.stack([np.cos(around), np.sin(around), np.zeros(sides)], axis=-1)
    unit = np.cos(latitude)[:, None, None] * ring + np.sin(latitude)[:, None, None] * np.array([0, 0, 1.0])
    unit = np.concatenate([unit.reshape(-1, 3), [[0, 0, 1.0], [0, 0, -1.0]]])
    generators = np.column_stack([np.ones(len(unit)), unit]) * friction.scale
    return np.unique(generators, axis=0)
