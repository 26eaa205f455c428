"""The grasp matrix: from forces in the contact frames to one wrench on the object."""

import numpy as np

_UNIT_TOLERANCE = 1e-3


def contact_frames(n_O: np.ndarray) -> np.ndarray:
    """Rotations R_OC (..., 3, 3) of contact frames whose first axis is the inward normal.

    The two tangents are any right-handed pair; isotropic friction does not tell them apart.

    Args:
      n_O: (..., 3) float. Outward unit normals of the object.
    """
    inward = -np.asarray(n_O, dtype=float)
    least = np.eye(3)[np.argmin(np.abs(inward), axis=-1)]
    first = np.cross(inward, least)
    first /= np.linalg.norm(first, axis=-1, keepdims=True)
    return np.stack([inward, first, np.cross(inward, first)], axis=-1)


def grasp_matrix(p_O: np.ndarray, n_O: np.ndarray, *, centre_O: np.ndarray, size: float) -> np.ndarray:
    """Blocks G_c of the grasp matrix: the wrench on the object is sum_c G_c f_c.

    With the contact frame (n, t1, t2), n inward, and r = p - centre:

        G_c = [ n            t1            t2            0        ]
              [ r x n / size  r x t1 / size  r x t2 / size  n / size ]

    Args:
      p_O: (N, C, 3) float, m. Contact points.
      n_O: (N, C, 3) float. Outward unit normals of the object; normalised here if they are so within 1e-3.
      centre_O: (3,) or (N, 3) float, m. Point about which torques are taken, usually the centre of mass.
      size: Length that divides torques, m, so that all six rows are forces.

    Returns:
      (N, C, 6, 4) float. Columns belong to f = (f_n, f_t1, f_t2 in N, tau in N m) on the object.

    Raises:
      ValueError: A shape, a normal, the size or a number that is not finite.
    """
    p_O, n_O = _checked_contacts(p_O, n_O)
    centre_O = np.asarray(centre_O, dtype=float)
    if centre_O.shape not in ((3,), (len(p_O), 3)):
        raise ValueError(f"centre_O has shape {centre_O.shape}, expected (3,) or ({len(p_O)}, 3)")
    if not np.all(np.isfinite(centre_O)):
        raise ValueError(f"centre_O is not finite: {centre_O[~np.isfinite(centre_O)][0]}")
    if not (np.isfinite(size) and size > 0):
        raise ValueError(f"size is {size!r}; a length > 0 m is needed, such as the object's radius")
    axes = np.swapaxes(contact_frames(n_O), -1, -2)  # (N, C, axis, 3)
    arm = (p_O - (centre_O if centre_O.ndim == 1 else centre_O[:, None]))[..., None, :]
    G = np.zeros((*p_O.shape[:2], 6, 4))
    G[..., :3, :3] = np.swapaxes(axes, -1, -2)
    G[..., 3:, :3] = np.swapaxes(np.cross(arm, axes), -1, -2) / size
    G[..., 3:, 3] = axes[..., 0, :] / size
    return G


def _checked_contacts(p_O: np.ndarray, n_O: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and exactly unit normals as float arrays (N, C, 3)."""
    p_O, n_O = np.asarray(p_O, dtype=float), np.asarray(n_O, dtype=float)
    if p_O.ndim != 3 or p_O.shape[1] < 1 or p_O.shape[2] != 3:
        raise ValueError(f"p_O has shape {p_O.shape}, expected (grasps, contacts, 3)")
    if n_O.shape != p_O.shape:
        raise ValueError(f"n_O has shape {n_O.shape}, expected that of p_O, {p_O.shape}")
    if not np.all(np.isfinite(p_O)):
        raise ValueError(f"p_O is not finite: {p_O[~np.isfinite(p_O)][0]}")
    length = np.linalg.norm(n_O, axis=-1, keepdims=True)
    wrong = ~(np.abs(length - 1) <= _UNIT_TOLERANCE)
    if np.any(wrong):
        raise ValueError(f"n_O must hold unit vectors; one of them has length {length[wrong][0]:.6g}")
    return p_O, n_O / length
