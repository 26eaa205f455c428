"""Stable poses: the ways in which an object comes to rest on a plane, and how likely each is."""

from typing import NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.jaws.grasp import Resting
from fistful.objects.object import Object

# Hull triangles whose normals differ by less than this (rad) are one face to stand on.
_COPLANAR = 2e-3
# Of the object's size: a centre of mass this near to the rim of a face does not rest on it.
_RIM = 1e-3


class StablePose(NamedTuple):
    """One way to lie on the plane z = 0."""

    R_WO: np.ndarray  # (3, 3) float64
    height: float  # m. z of the object's origin, so that its lowest point touches the plane
    probability: float  # that an object dropped in a random orientation ends up so; sums to 1


class _Facet(NamedTuple):
    """A flat face of the convex hull."""

    normal: np.ndarray  # (3,) outward
    share: float  # of the full solid angle around the centre of mass
    triangles: np.ndarray  # indices of hull triangles


def stable_poses(item: Object) -> list[StablePose]:
    """The stable poses of an object, most probable first. No I/O.

    A face of the hull is stable if the centre of mass projects into it. The object is dropped slowly with
    every orientation equally likely: it lands on a face with the probability of the solid angle that the face
    takes up around the centre of mass; from an unstable face it topples over the edge that the centre lies
    farthest beyond (Goldberg et al., 1999, quasi-static).
    """
    facets, neighbour, beyond = _facets(item)
    probability = np.zeros(len(facets))
    for start in range(len(facets)):
        at = start
        # Each toppling lowers the centre of mass, so no face is met twice.
        for _ in range(len(facets)):
            if beyond[at] <= 0:
                break
            at = neighbour[at]
        probability[at] += facets[start].share
    rests = [k for k in range(len(facets)) if beyond[k] <= 0 and probability[k] > 0]
    if not rests:
        raise JawsError(f"{item.name} has no stable pose: no flat face of its hull lies under its centre")
    total = sum(probability[k] for k in rests)
    poses = []
    for k in sorted(rests, key=lambda k: -probability[k]):
        R = turn_between(facets[k].normal, np.array([0.0, 0.0, -1.0]))
        poses.append(StablePose(R, _height(item, R), float(probability[k] / total)))
    return poses


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


def _height(item: Object, R_WO: np.ndarray) -> float:
    return -float((item.vertices @ R_WO.T)[:, 2].min())


def _facets(item: Object) -> tuple[list[_Facet], np.ndarray, np.ndarray]:
    """The flat faces of the hull; over which of them each topples, and by how much (> 0: it does), m."""
    corners = item.hull_vertices - item.mass_properties.com_O
    triangles = item.hull_faces
    a, b, c = np.moveaxis(corners[triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = np.divide(normals, length, out=np.zeros_like(normals), where=length > 0)
    other = _neighbours(triangles)
    label = _grown(normals, other)
    size = float(np.ptp(corners, axis=0).max())
    facets, neighbour, beyond = [], [], []
    shares = _solid_angles(a, b, c) / (4 * np.pi)
    for k in range(label.max() + 1):
        mine = np.flatnonzero(label == k)
        normal = (normals * length)[mine].sum(axis=0)
        normal /= np.linalg.norm(normal)
        worst, over = -np.inf, k
        for t in mine:
            for edge in range(3):
                if label[other[t, edge]] == k:
                    continue
                p, q = corners[triangles[t, edge]], corners[triangles[t, (edge + 1) % 3]]
                outward = np.cross(q - p, normal)
                # The centre of mass is the origin; positive if it lies beyond this edge.
                distance = float(-p @ outward / max(np.linalg.norm(outward), 1e-300))
                if distance > worst:
                    worst, over = distance, int(label[other[t, edge]])
        facets.append(_Facet(normal, float(shares[mine].sum()), mine))
        neighbour.append(over)
        beyond.append(worst + _RIM * size)
    return facets, np.array(neighbour), np.array(beyond)


def _neighbours(triangles: np.ndarray) -> np.ndarray:
    """(T, 3) int. The triangle across the edges 01, 12 and 20 of each."""
    across = {}
    for t, corners in enumerate(triangles):
        for edge in range(3):
            across[int(corners[edge]), int(corners[(edge + 1) % 3])] = t
    return np.array([[across[int(t[(e + 1) % 3]), int(t[e])] for e in range(3)] for t in triangles])


def _grown(normals: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(T,) int. Triangles that are connected and face the way of the first of their group, by number."""
    label = np.full(len(normals), -1)
    for seed in range(len(normals)):
        if label[seed] >= 0:
            continue
        label[seed] = number = label.max() + 1
        front = [seed]
        while front:
            for t in other[front.pop()]:
                if label[t] < 0 and np.linalg.norm(normals[t] - normals[seed]) < _COPLANAR:
                    label[t] = number
                    front.append(t)
    return label


def _solid_angles(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Solid angles (T,) of triangles (T, 3) seen from the origin (van Oosterom and Strackee, 1983)."""
    la, lb, lc = (np.linalg.norm(v, axis=1) for v in (a, b, c))
    dot = lambda u, v: np.einsum("ij,ij->i", u, v)  # noqa: E731
    top = dot(a, np.cross(b, c))
    bottom = la * lb * lc + dot(a, b) * lc + dot(b, c) * la + dot(c, a) * lb
    return 2 * np.arctan2(np.abs(top), bottom)
