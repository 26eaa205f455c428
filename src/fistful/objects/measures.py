"""Areas, volumes and moments of triangle meshes."""

import numpy as np


def face_areas(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Area of each face, (F,)."""
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    return np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2


def body_volumes(vertices: np.ndarray, faces: np.ndarray, bodies: np.ndarray) -> np.ndarray:
    """Signed volume of each closed body, (B,): the sum of det(a, b, c) / 6; negative if it is inside out."""
    corners = vertices[faces]
    a, b, c = np.moveaxis(corners - (corners.min(axis=(0, 1)) + corners.max(axis=(0, 1))) / 2, 1, 0)
    return np.bincount(bodies, weights=np.einsum("ij,ij->i", a, np.cross(b, c)) / 6)


def centre_and_inertia(
    vertices: np.ndarray, faces: np.ndarray, volume: float
) -> tuple[np.ndarray, np.ndarray]:
    """Centre of mass (3,) and inertia about it (3, 3) at density 1, from the signed tetrahedra of the faces.

    A tetrahedron (o, a, b, c) of volume V has centre (a + b + c) / 4 and second moment
    V / 20 (a a' + b b' + c c' + s s') with s = a + b + c. With S their sum about the centre of mass, the
    inertia is tr(S) 1 - S.
    """
    middle = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
    a, b, c = np.moveaxis((vertices - middle)[faces], 1, 0)
    tetra = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6
    s = a + b + c
    com = (tetra @ s) / 4 / volume
    second = sum((tetra[:, None] * p).T @ p for p in (a, b, c, s)) / 20
    second = second - volume * np.outer(com, com)
    inertia = np.trace(second) * np.eye(3) - second
    return middle + com, (inertia + inertia.T) / 2
