"""Antipodal pairs: two places of an object that face each other, where two fingers can hold it by friction.

A planar or soft-finger grasp with two contacts holds if the line through them lies in both friction cones
(Nguyen 1988). An opposition space of a hand is meant for exactly such a pair.
"""

from typing import NamedTuple

import numpy as np

from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.sampling import sample_triangles, tilted
from fistful.objects.object import Object

FRICTION = 0.6
"""Default coefficient: the line is within atan 0.6 = 31 degrees of both normals."""
ROOM = 8e-3
"""m. Default free way in front of each contact."""
FEW = 32
"""Fewer pairs than this are no choice: the cone is widened."""
WIDER_CONES_DEG = (45.0, 60.0)
EXITS = 2
"""How often a line may leave the solid: a mug is held by its wall (4 mm) or across (80 mm, second exit)."""
# Lines to draw before giving up, and in one round.
_LINES_PER_PAIR = 12
_FEWEST_LINES = 64
# Of the mesh's size: where rays start, off the face they start from and far above the rounding of float32.
_OFF = 1e-5


class AntipodalPairs(NamedTuple):
    """M pairs of opposed surface points a, b of an object, sorted by width.

    Attributes:
      a_O, b_O: (M, 3) float, m. Points, in the object's frame.
      n_a, n_b: (M, 3) float. Outward unit normals of their faces.
      width: (M,) float, m. Distance between the points, ascending.
      cone_deg: Half angle of the friction cone that all pairs keep; larger than asked for if that gave few.
      tried: Number of lines drawn for it.
      blocked: How many of them were antipodal but had no room for a finger.
    """

    a_O: np.ndarray
    b_O: np.ndarray
    n_a: np.ndarray
    n_b: np.ndarray
    width: np.ndarray
    cone_deg: float
    tried: int
    blocked: int


def antipodal_pairs(
    item: Object,
    rng: np.random.Generator,
    count: int = 4096,
    friction: float = FRICTION,
    *,
    room: float = ROOM,
    exits: int = EXITS,
) -> AntipodalPairs:
    """At most `count` antipodal pairs of an object; empty if it has none even in the widest cone.

    1. Draw a uniformly over the surface, and a line inwards within the cone around -n_a, its angle uniform.
    2. b is where the line leaves the solid, for the first or a later time; keep each such pair if the line is
       in the cone around n_b.
    3. Keep it if both points have room: the ray along the outward normal meets nothing within `room`.
    4. If fewer than FEW pairs are left, begin anew with the next of WIDER_CONES_DEG.

    Args:
      item: Object.
      rng: Source of randomness.
      count: Number of pairs wanted.
      friction: Coefficient mu; the half angle of the cone is atan mu.
      room: Free way needed in front of each contact, m; 0 asks for none.
      exits: How often a line may leave the solid; 1 keeps only pairs with nothing but solid between them.
    """
    if not (count >= 1 and friction > 0 and room >= 0 and exits >= 1):
        raise ValueError(
            f"antipodal pairs need count >= 1, friction > 0, room >= 0 and exits >= 1; got {count}, "
            f"{friction:g}, {room:g} and {exits}"
        )
    mesh = MeshDistance(item.vertices, item.faces)
    asked = float(np.rad2deg(np.arctan(friction)))
    pairs = _draw(item, mesh, rng, count, asked, room, exits)
    for wider in WIDER_CONES_DEG:
        if len(pairs.width) >= min(FEW, count):
            break
        if wider > asked:
            pairs = _draw(item, mesh, rng, count, wider, room, exits)
    return pairs


def _draw(
    item: Object,
    mesh: MeshDistance,
    rng: np.random.Generator,
    count: int,
    cone_deg: float,
    room: float,
    exits: int,
) -> AntipodalPairs:
    """Steps 1 to 3, in rounds until there are enough or it has become clear that there are not."""
    parts, tried, blocked = [np.zeros((0, 4, 3))], 0, 0
    corners = item.vertices[item.faces]
    while tried < _LINES_PER_PAIR * count and (missing := count - sum(map(len, parts))) > 0:
        a, face = sample_triangles(corners, max(_FEWEST_LINES, min(count, 2 * missing)), rng)
        n_a = mesh.face_normals[face]
        line = tilted(-n_a, np.deg2rad(cone_deg), rng)
        ray, b, n_b = _exits(mesh, a, n_a, line, exits)
        opposed = np.einsum("ij,ij->i", n_b, line[ray]) >= np.cos(np.deg2rad(cone_deg))
        ray, b, n_b = ray[opposed], b[opposed], n_b[opposed]
        free = _has_room(mesh, a[ray], n_a[ray], room) & _has_room(mesh, b, n_b, room)
        tried, blocked = tried + len(a), blocked + int(np.sum(~free))
        parts.append(np.stack([a[ray], b, n_a[ray], n_b], axis=1)[free])
    pairs = np.concatenate(parts)[:count]
    width = np.linalg.norm(pairs[:, 1] - pairs[:, 0], axis=1)
    order = np.argsort(width, kind="stable")
    a, b, n_a, n_b = np.moveaxis(pairs[order], 1, 0)
    return AntipodalPairs(a, b, n_a, n_b, width[order], cone_deg, tried, blocked)


def _exits(
    mesh: MeshDistance, a: np.ndarray, n_a: np.ndarray, line: np.ndarray, exits: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where lines (N, 3) from surface points leave the solid: their numbers (M,), points and normals (M, 3).

    Sorted by the number of the line, so that a part of the result holds first and later exits alike.
    """
    off = _OFF * mesh.size
    ray, start = np.arange(len(a)), a - off * n_a
    found = []
    # Lines leave and enter in turn.
    for _ in range(2 * exits - 1):
        hits = mesh.first_hits(start, line[ray])
        met = hits.faces >= 0
        ray, start, normals = (
            ray[met],
            start[met] + hits.distances[met, None] * line[ray[met]],
            hits.normals[met],
        )
        leaves = np.einsum("ij,ij->i", normals, line[ray]) > 0
        found.append((ray[leaves], start[leaves], normals[leaves]))
        start = start + off * line[ray]
    numbers, points, normals = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(numbers, kind="stable")
    return numbers[order], points[order], normals[order]


def _has_room(mesh: MeshDistance, p: np.ndarray, normal: np.ndarray, room: float) -> np.ndarray:
    """Mask (N,) of the surface points whose ray along the outward normal is free for `room` (m).

    A ray that leaves a solid has started inside one: such a point lies where two parts of a mesh overlap.
    """
    hits = mesh.first_hits(p + _OFF * mesh.size * normal, normal)
    return ~((hits.distances < room) | (np.einsum("ij,ij->i", hits.normals, normal) > 0))
