"""Clusters: several objects at rest on a table beside each other, where a hand is to grasp them all at once.

W is the frame of the table: its top is z = 0, the middle of the cluster's square is the origin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fistful.errors import PlanError
from fistful.geometry.pose import apply, rotation_about
from fistful.objects.object import Object
from fistful.synthesis.measure import objects_overlap

TRIES, BLOCK = 128, 32
"""Clusters that are thrown, BLOCK at a time, before the square of a grasp is widened ..."""
WIDEN, MAX_WIDENINGS = 1.1, 12
"""... by this factor, at most so many times: to 3.1 times its side."""
UP = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Clusters:
    """N clusters of the same n objects.

    Attributes:
      p_WO, R_WO: (N, n, 3), (N, n, 3, 3) float. Poses of the objects, m.
      half_m: (N,) float, m. Half the side of the square that the centres of mass were thrown into.
    """

    p_WO: np.ndarray
    R_WO: np.ndarray
    half_m: np.ndarray

    def __len__(self) -> int:
        return len(self.half_m)


class Rests(NamedTuple):
    """F ways in which an object rests on a table.

    Attributes:
      R_WO: (F, 3, 3) float. Its rotations.
      z_WO: (F,) float, m. Heights of its origin.
      weight: (F,) float. How likely each is; the sum is 1.
    """

    R_WO: np.ndarray
    z_WO: np.ndarray
    weight: np.ndarray


def rests(item: Object) -> Rests:
    """The faces of the convex hull that an object can stand on, each turned down.

    It stands on a face if the foot of its centre of mass lies in it. A face is as likely as the solid angle
    is large under which the centre of mass sees it.
    """
    com = item.mass_properties.com_O
    a, b, c = np.moveaxis(item.hull_vertices[item.hull_faces] - com, 1, 0)
    cross = np.cross(b - a, c - a)
    area = np.linalg.norm(cross, axis=1)
    real = area > 1e-6 * area.max()
    a, b, c, normal = a[real], b[real], c[real], cross[real] / area[real, None]
    height = np.sum(normal * a, axis=1)
    foot = height[:, None] * normal
    left = [np.sum(np.cross(e - s, foot - s) * normal, axis=1) for s, e in ((a, b), (b, c), (c, a))]
    stands = np.all(np.array(left) >= -1e-6 * area[real], axis=0)
    # The face nearest to the centre of mass always holds, whatever rounding says.
    stands[np.argmin(height)] = True
    # A flat side is several triangles of one normal.
    face = np.unique(np.round(normal, 5), axis=0, return_inverse=True)[1].ravel()
    weight = np.bincount(face, weights=_solid_angle(a, b, c))
    chosen = np.flatnonzero(stands)
    chosen = chosen[np.unique(face[chosen], return_index=True)[1]]
    down = normal[chosen]
    other = np.eye(3)[np.argmin(np.abs(down), axis=1)]
    x = np.cross(other, -down)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    # Rows are the axes of W in O.
    R_WO = np.stack([x, np.cross(-down, x), -down], axis=1)
    z_WO = np.array([-np.min(item.hull_vertices @ R[2]) for R in R_WO])
    return Rests(R_WO, z_WO, weight[face[chosen]] / weight[face[chosen]].sum())


def sample_clusters(
    objects: Sequence[Object], count: int, half_m: float, rng: np.random.Generator
) -> Clusters:
    """Clusters whose objects do not overlap, each drawn anew until that is so.

    The centre of mass of every object is uniform in a square of half side `half_m`, its rest is drawn by
    `rests`, its yaw is uniform. Where TRIES clusters in a row overlap, the square of that grasp is widened.

    Raises:
      PlanError: The objects do not fit beside each other even in the widest square.
    """
    ways = [rests(item) for item in objects]
    n = len(objects)
    p, R, half = np.zeros((count, n, 3)), np.zeros((count, n, 3, 3)), np.full(count, float(half_m))
    todo = np.arange(count)
    for block in range((MAX_WIDENINGS + 1) * TRIES // BLOCK):
        if block and block % (TRIES // BLOCK) == 0:
            half[todo] *= WIDEN
        row = np.repeat(todo, BLOCK if n > 1 else 1)
        thrown_p, thrown_R = _thrown(objects, ways, half[row], rng)
        clear = np.flatnonzero(_apart(objects, thrown_p, thrown_R))
        done, first = np.unique(row[clear], return_index=True)
        p[done], R[done] = thrown_p[clear[first]], thrown_R[clear[first]]
        todo = np.setdiff1d(todo, done)
        if not len(todo):
            return Clusters(p_WO=p, R_WO=R, half_m=half)
    sizes = ", ".join(f"{item.name} {1e3 * max(item.report.extents_m):.0f} mm" for item in objects)
    raise PlanError(
        f"{sizes} are too large to lie beside each other: thrown {(MAX_WIDENINGS + 1) * TRIES:,} times they "
        f"always overlap, at last in a square of {2e3 * half.max():.0f} mm; take fewer or smaller objects"
    )


def overlaps(objects: Sequence[Object], p_WO: np.ndarray, R_WO: np.ndarray) -> np.ndarray:
    """Deepest overlap (N,), m, of any two objects, on exact meshes: points of each in the other."""
    pairs = combinations(range(len(objects)), 2)
    depths = [_overlap(objects, i, j, p_WO, R_WO) for i, j in pairs]
    return np.max(depths, axis=0, initial=0.0) if depths else np.zeros(len(p_WO))


def _overlap(objects: Sequence[Object], i: int, j: int, p_WO: np.ndarray, R_WO: np.ndarray) -> np.ndarray:
    """Deepest overlap (N,), m, of objects i and j."""
    R_iW = np.swapaxes(R_WO[:, i], 1, 2)
    p_ij, R_ij = apply(R_iW, p_WO[:, j] - p_WO[:, i]), R_iW @ R_WO[:, j]
    return objects_overlap(objects[i], objects[j], p_ij, R_ij)


def _thrown(
    objects: Sequence[Object], ways: Sequence[Rests], half: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Poses (M, n, 3), (M, n, 3, 3) of objects at rest, wherever they happen to be."""
    p, R = [], []
    for item, way in zip(objects, ways, strict=True):
        rest = rng.choice(len(way.weight), size=len(half), p=way.weight)
        yaw = rotation_about(UP, rng.uniform(0, 2 * np.pi, len(half)))
        turned = yaw @ way.R_WO[rest]
        place = half[:, None] * rng.uniform(-1, 1, (len(half), 3)) - apply(turned, item.mass_properties.com_O)
        place[:, 2] = way.z_WO[rest]
        p.append(place)
        R.append(turned)
    return np.stack(p, axis=1), np.stack(R, axis=1)


def _apart(objects: Sequence[Object], p_WO: np.ndarray, R_WO: np.ndarray) -> np.ndarray:
    """Whether the objects of each cluster do not overlap, (M,) bool; balls inside them are asked first."""
    apart = np.ones(len(p_WO), dtype=bool)
    balls = [_ball_inside(item) for item in objects]
    centre = [p_WO[:, i] + apply(R_WO[:, i], ball[0]) for i, ball in enumerate(balls)]
    for i, j in combinations(range(len(objects)), 2):
        apart &= np.linalg.norm(centre[i] - centre[j], axis=1) > balls[i][1] + balls[j][1]
    for i, j in combinations(range(len(objects)), 2):
        left = np.flatnonzero(apart)
        apart[left] = _overlap(objects, i, j, p_WO[left], R_WO[left]) == 0
    return apart


def _ball_inside(item: Object) -> tuple[np.ndarray, float]:
    """Centre (3,) and radius, m, of about the largest ball inside an object: its deepest node."""
    deepest = np.unravel_index(np.argmin(item.sdf.values), item.sdf.shape)
    return item.sdf.origin + item.sdf.spacing * np.array(deepest), max(-float(item.sdf.values[deepest]), 0.0)


def _solid_angle(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Solid angles (T,) of triangles seen from the origin (Van Oosterom and Strackee)."""
    A, B, C = (np.linalg.norm(v, axis=1) for v in (a, b, c))
    volume = np.abs(np.sum(a * np.cross(b, c), axis=1))
    ab, bc, ca = (np.sum(u * v, axis=1) for u, v in ((a, b), (b, c), (c, a)))
    return 2 * np.arctan2(volume, A * B * C + ab * C + bc * A + ca * B)
