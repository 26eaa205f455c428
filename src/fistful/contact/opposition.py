"""How well two contacts face each other."""

import numpy as np


def opposition_angles(p_O: np.ndarray, n_O: np.ndarray) -> np.ndarray:
    """Angles between the line through two contacts and the inward normal at each of them.

    A grasp is antipodal for friction mu if both are at most atan(mu): each contact sees the other inside its
    friction cone. Two soft contacts then close the grasp (Nguyen 1988); torsion can close it up to an angle
    of asin(2 torsion_m / distance) beyond that.

    Args:
      p_O: (..., 2, 3) float, m. Contact points.
      n_O: (..., 2, 3) float. Outward unit normals of the object.

    Returns:
      (..., 2) float, rad, from 0 (opposed) to pi (pressing apart, as inside a ring). Both are
      pi where the points coincide and there is no line.
    """
    p_O, n_O = np.asarray(p_O, dtype=float), np.asarray(n_O, dtype=float)
    if p_O.shape[-2:] != (2, 3) or n_O.shape != p_O.shape:
        raise ValueError(f"p_O and n_O have shapes {p_O.shape} and {n_O.shape}, expected (..., 2, 3) twice")
    towards = p_O[..., ::-1, :] - p_O
    # The angle by its sine and cosine: near 0 and pi the cosine alone would lose half of the digits.
    sine = np.linalg.norm(np.cross(towards, n_O), axis=-1)
    cosine = -np.sum(towards * n_O, axis=-1)
    return np.where(np.any(towards != 0, axis=-1), np.arctan2(sine, cosine), np.pi)
