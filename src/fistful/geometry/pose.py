"""Rotations and poses as plain arrays: R (..., 3, 3), p (..., 3), unit quaternions wxyz (..., 4)."""

import numpy as np


def rotation_from_quaternion(wxyz: np.ndarray) -> np.ndarray:
    """The rotation matrices of quaternions that need not be normalised.

    Args:
      wxyz: (..., 4) float, not zero.

    Returns:
      (..., 3, 3) float.
    """
    q = np.asarray(wxyz, dtype=float)
    w, x, y, z = np.moveaxis(q / np.linalg.norm(q, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def quaternion_from_rotation(R: np.ndarray) -> np.ndarray:
    """The unit quaternions wxyz, w >= 0, of rotation matrices.

    Takes the eigenvector of the symmetric 4x4 matrix whose quadratic form is trace(R(q)^T R): exact for
    a rotation, the nearest rotation otherwise, and free of the case distinction on the trace.

    Args:
      R: (..., 3, 3) float.

    Returns:
      (..., 4) float.
    """
    R = np.asarray(R, dtype=float)
    trace = np.trace(R, axis1=-2, axis2=-1)[..., None, None]
    K = np.empty((*R.shape[:-2], 4, 4))
    K[..., 0, 0] = trace[..., 0, 0]
    odd = np.swapaxes(R, -1, -2) - R
    K[..., 0, 1:] = K[..., 1:, 0] = np.stack([odd[..., 1, 2], odd[..., 2, 0], odd[..., 0, 1]], axis=-1)
    K[..., 1:, 1:] = R + np.swapaxes(R, -1, -2) - trace * np.eye(3)
    q = np.linalg.eigh(K)[1][..., -1]
    return np.where(q[..., :1] >= 0, q, -q)


def rotation_about(axis: np.ndarray, angle: np.ndarray) -> np.ndarray:
    """Rodrigues' formula: the rotation by `angle` about the unit vector `axis`.

    Args:
      axis: (3,) float, unit length.
      angle: (...) float, rad.

    Returns:
      (..., 3, 3) float.
    """
    x, y, z = axis
    K = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    angle = np.asarray(angle, dtype=float)[..., None, None]
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * (K @ K)


def rotation_from_rpy(rpy: np.ndarray) -> np.ndarray:
    """Rz(yaw) Ry(pitch) Rx(roll), URDF's fixed-axis roll, pitch, yaw in rad: (3,) -> (3, 3)."""
    roll, pitch, yaw = rpy
    x, y, z = np.eye(3)
    return rotation_about(z, yaw) @ rotation_about(y, pitch) @ rotation_about(x, roll)


def frames_along(z: np.ndarray, spin: np.ndarray | float = 0.0) -> np.ndarray:
    """Rotations (N, 3, 3) whose third column is the unit vector z (N, 3), spun about it by `spin`, rad."""
    other = np.eye(3)[np.argmin(np.abs(z), axis=1)]
    x = np.cross(other, z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.cross(z, x)
    c, s = (f(np.broadcast_to(spin, len(z)))[:, None] for f in (np.cos, np.sin))
    return np.stack([c * x + s * y, c * y - s * x, z], axis=-1)


def apply(R: np.ndarray, v: np.ndarray) -> np.ndarray:
    """R v for matching batches: (..., 3, 3), (..., 3) -> (..., 3)."""
    return np.einsum("...ij,...j->...i", R, v)
