"""Stable poses: the ways in which an object comes to rest on a plane, and how likely each is."""

from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.jaws.grasp import Resting
from fistful.objects.object import Object

# Hull triangles whose normals differ by less than this (rad) are one face to stand on.
_COPLANAR = 2e-3
# Poses of a round object are as many as its hull has triangles; these are the most that are told apart.
_MOST = 2000
# Of the object's size: a centre of mass this near to the rim of a face does not rest on it.
_RIM = 1e-3


class StablePose(NamedTuple):
    """One way to lie on the plane z = 0."""

    R_WO: np.ndarray  # (3, 3) float64
    height: float  # m. z of the object's origin, so that its lowest point touches the plane
    probability: float  # that an object dropped in a random orientation ends up so; sums to 1


class _Facets(NamedTuple):
    """The F flat faces of the convex hull."""

    normals: np.ndarray  # (F, 3) float64, outward
    shares: np.ndarray  # (F,) float64, of the full solid angle around the centre of mass
    offsets: np.ndarray  # (F,) float64, m. From the object's origin to the plane that the object would lie on
    topples_to: np.ndarray  # (F,) int. The face behind the edge that the centre of mass is farthest beyond
    beyond: np.ndarray  # (F,) float64, m. By how much it is; the face is stable if this is not positive


def stable_poses(item: Object) -> list[StablePose]:
    """The stable poses of an object, most probable first, 2,000 at most. No I/O.

    A face of the hull is stable if the centre of mass projects into it. The object is dropped slowly with
    every orientation equally likely: it lands on a face with the probability of the solid angle that the face
    takes up around the centre of mass; from an unstable face it topples over the edge that the centre lies
    farthest beyond (Goldberg et al., 1999, quasi-static).
    """
    facets = _facets(item)
    stable = facets.beyond <= 0
    # Each toppling lowers the centre of mass, so no face is met twice; each round doubles the topplings.
    ends = np.where(stable, np.arange(len(stable)), facets.topples_to)
    for _ in range(len(stable).bit_length()):
        ends = ends[ends]
    probability = np.where(stable, np.bincount(ends, facets.shares, len(stable)), 0.0)
    rests = [int(k) for k in np.argsort(-probability, kind="stable")[:_MOST] if probability[k] > 0]
    if not rests:
        raise JawsError(f"{item.name} has no stable pose: no flat face of its hull lies under its centre")
    down = np.array([0.0, 0.0, -1.0])
    return [
        StablePose(
            turn_between(facets.normals[k], down),
            float(facets.offsets[k]),
            float(probability[k] / probability.sum()),
        )
        for k in rests
    ]


def rest(item: Object, pose: StablePose, mass: float) -> Resting:
    """The object lying at the origin in a stable pose."""
    return Resting(item=item, p_WO=np.array([0.0, 0.0, pose.height]), R_WO=pose.R_WO, mass=mass)


def laid_flat(item: Object, R_WO: np.ndarray) -> tuple[np.ndarray, float]:
    """The orientation (3, 3) next to R_WO in which the object rests on a face, and the turn to it, rad."""
    down = np.array([0.0, 0.0, -1.0])
    facing = [R_WO @ pose.R_WO.T @ down for pose in stable_poses(item)]
    best = max(facing, key=lambda n: n @ down)
    turn = float(np.arctan2(np.linalg.norm(np.cross(best, down)), best @ down))
    return turn_between(best, down) @ R_WO, turn


def turn_between(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The smallest rotation (3, 3) that takes the unit vector a to b."""
    from fistful.geometry.pose import rotation_about

    axis = np.cross(a, b)
    sine = float(np.linalg.norm(axis))
    if sine < 1e-12:
        axis = np.cross(a, np.eye(3)[np.argmin(np.abs(a))])
    return rotation_about(axis / np.linalg.norm(axis), np.arctan2(sine, a @ b))


def _facets(item: Object) -> _Facets:
    corners = item.hull_vertices - item.mass_properties.com_O
    triangles = item.hull_faces
    a, b, c = np.moveaxis(corners[triangles], 1, 0)
    area = np.cross(b - a, c - a)
    length = np.linalg.norm(area, axis=1, keepdims=True)
    other = _neighbours(triangles)
    label = _grown(np.divide(area, length, out=np.zeros_like(area), where=length > 0), other)
    count = int(label.max()) + 1
    normals = np.stack([np.bincount(label, area[:, i], count) for i in range(3)], axis=1)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    offsets = np.full(count, -np.inf)
    places_O = item.hull_vertices[triangles]
    np.maximum.at(offsets, label, np.einsum("tki,ti->tk", places_O, normals[label]).max(axis=1))
    # Edges between two faces, and how far the centre of mass, here the origin, lies beyond each.
    inner, edge = np.nonzero(label[other] != label[:, None])
    p, q = corners[triangles[inner, edge]], corners[triangles[inner, (edge + 1) % 3]]
    outward = np.cross(q - p, normals[label[inner]])
    outward /= np.maximum(np.linalg.norm(outward, axis=1, keepdims=True), 1e-300)
    distance = -np.einsum("ei,ei->e", p, outward)
    worst = np.lexsort((-distance, label[inner]))
    worst = worst[np.unique(label[inner][worst], return_index=True)[1]]
    return _Facets(
        normals=normals,
        shares=np.bincount(label, _solid_angles(a, b, c) / (4 * np.pi), count),
        offsets=offsets,
        topples_to=label[other[inner[worst], edge[worst]]],
        beyond=distance[worst] + _RIM * float(np.ptp(corners, axis=0).max()),
    )


def _neighbours(triangles: np.ndarray) -> np.ndarray:
    """(T, 3) int. The triangle across the edges 01, 12 and 20 of each."""
    edges = np.stack([triangles, np.roll(triangles, -1, axis=1)], axis=2).reshape(-1, 2)
    size = int(triangles.max()) + 1
    there, back = edges @ [size, 1], edges @ [1, size]
    order = np.argsort(there)
    return (order[np.searchsorted(there, back, sorter=order)] // 3).reshape(-1, 3)


def _grown(normals: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(T,) int. Triangles that are connected and face the way of the first of their group, by number."""
    label = np.full(len(normals), -1)
    # Most of a round hull has no neighbour that faces its way.
    alike = np.linalg.norm(normals[other] - normals[:, None], axis=2).min(axis=1) < _COPLANAR
    label[~alike] = np.flatnonzero(~alike)
    for seed in np.flatnonzero(alike):
        if label[seed] >= 0:
            continue
        label[seed] = seed
        front = [seed]
        while front:
            for t in other[front.pop()]:
                if label[t] < 0 and np.linalg.norm(normals[t] - normals[seed]) < _COPLANAR:
                    label[t] = seed
                    front.append(t)
    return np.unique(label, return_inverse=True)[1]


def _solid_angles(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Solid angles (T,) of triangles (T, 3) seen from the origin (van Oosterom and Strackee, 1983)."""
    la, lb, lc = (np.linalg.norm(v, axis=1) for v in (a, b, c))
    dot = lambda u, v: np.einsum("ij,ij->i", u, v)  # noqa: E731
    top = dot(a, np.cross(b, c))
    bottom = la * lb * lc + dot(a, b) * lc + dot(b, c) * la + dot(c, a) * lb
    return 2 * np.arctan2(np.abs(top), bottom)
