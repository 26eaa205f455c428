"""How well grasps fit, measured on exact geometry: the numbers a user sees and a planner accepts by.

The hand is its closed-form primitives and the dense points of its skin, an object is its mesh. Nothing
here is interpolated: the distance grid only tells which points can not matter (measure_kernels.py).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from fistful.geometry import mesh_distance
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply
from fistful.geometry.quiet_warp import wp
from fistful.hands.hand import Hand
from fistful.hands.kinematics import BodyPoses
from fistful.hands.model import Model
from fistful.hands.opposition import self_overlap
from fistful.objects.object import Object
from fistful.synthesis import measure_kernels
from fistful.synthesis.measure_kernels import CloudArrays, SolidArrays, points_in_mesh, points_in_primitives

LIMIT_SLACK = 1e-6
"""rad or m. Joint limits may be exceeded by rounding."""
MAX_VERTICES = 8192
"""A mesh with more vertices is probed at its surface points and the corners of its convex hull only."""
_BLOCK = 1024
_CLUSTER = 32


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What a good grasp may have."""

    contact_mm: float = 2.0
    """Largest distance of a contact from the target's surface, to either side."""
    penetration_mm: float = 2.0
    """Overlaps stay below this: hand with objects, hand with itself, target with held objects."""
    opposition_deg: float = 45.0
    """Largest angle between the contact line and an inward normal: atan of the friction, here 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measures:
    """What was measured of N grasps with C contacts each. NaN where a grasp has numbers that are not finite.

    Overlaps are the depth of the deepest sampled point, so they miss what goes on between samples: about
    3 mm apart on hand and object, which is 0.1 mm of depth on a surface with a radius of 1 cm.
    """

    penetration_mm: np.ndarray
    """(N,) float. Deepest overlap of the hand with the target or a held object."""
    contact_distance_mm: np.ndarray
    """(N, C) float. Distance of each contact point to the target's surface, not negative."""
    opposition_deg: np.ndarray
    """(N, C) float. Angle at each contact between the line to its partner and the inward normal of the
    target; 180 if the two contacts of a pair coincide."""
    self_penetration_mm: np.ndarray
    """(N,) float. Deepest overlap of the hand with itself."""
    object_penetration_mm: np.ndarray
    """(N,) float. Deepest overlap of the target with a held object; 0 if nothing is held."""
    limits_kept: np.ndarray
    """(N,) bool. Whether every joint is within its limits."""

    @property
    def good(self) -> np.ndarray:
        """(N,) bool. Whether a grasp is within the default tolerance in every respect."""
        return self.within(Tolerance())

    def within(self, tolerance: Tolerance) -> np.ndarray:
        """Whether each grasp is within a tolerance in every respect, (N,) bool."""
        overlaps = (self.penetration_mm, self.self_penetration_mm, self.object_penetration_mm)
        return (
            np.all([overlap < tolerance.penetration_mm for overlap in overlaps], axis=0)
            & np.all(self.contact_distance_mm <= tolerance.contact_mm, axis=1)
            & np.all(self.opposition_deg <= tolerance.opposition_deg, axis=1)
            & self.limits_kept
        )

    def excess(self, tolerance: Tolerance | None = None) -> np.ndarray:
        """How far each grasp is from good, (N,): the worst of gaps, overlaps and angles over what is allowed.

        At most 1 if it is good and within its limits; infinite where it has no finite measures.
        """
        t = tolerance or Tolerance()
        overlaps = (self.penetration_mm, self.self_penetration_mm, self.object_penetration_mm)
        worst = [overlap / t.penetration_mm for overlap in overlaps]
        worst.append(self.contact_distance_mm.max(axis=1) / t.contact_mm)
        worst.append(self.opposition_deg.max(axis=1) / t.opposition_deg)
        return np.nan_to_num(np.max(worst, axis=0), nan=np.inf)

    @staticmethod
    def join(parts: "Sequence[Measures]") -> "Measures":
        """All grasps of several batches, in order."""
        columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Measures)}
        return Measures(**columns)

    def take(self, index: np.ndarray) -> "Measures":
        """The measures of some grasps, by an index array or mask."""
        return Measures(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


def objects_overlap(a: Object, b: Object, p_AB: np.ndarray, R_AB: np.ndarray) -> np.ndarray:
    """Deepest overlap (N,), m, of two objects, with b at (N, 3), (N, 3, 3) in the frame of a; 0 if apart."""
    return _object_overlap(_solid_of(a), _solid_of(b), p_AB, R_AB)


def compile_kernels() -> None:
    """Compile the kernels now, if Warp does not have them in its cache: some seconds, once a machine."""
    mesh_distance.compile_kernels()
    wp.load_module(module=measure_kernels, device="cpu")


def measure(
    hand: Hand,
    objects: Sequence[Object],
    p_OH: np.ndarray,
    R_OH: np.ndarray,
    q: np.ndarray,
    contact_body: np.ndarray,
    contact_p_B: np.ndarray,
    p_HO: np.ndarray | None = None,
    R_HO: np.ndarray | None = None,
    *,
    threads: int = 1,
) -> Measures:
    """Exact measures of N grasps of the last of some objects, the earlier ones being held already.

    With n the outward normal of the target where it is nearest to a contact point a whose partner is b, the
    opposition angle of a is that between b - a and -n. The normal is the gradient of the exact distance at a:
    off an edge it is the direction from the edge, which is how a finger that touches an edge presses. Within
    1e-6 of the object's size of the surface it is the normal of the nearest face, either of the two on an
    edge. A contact that has entered the object beside a sharp edge, deeper than the edge is away, gets the
    normal of the wrong side and a large angle: such a grasp is no good.

    Args:
      hand: Hand.
      objects: The H held objects, then the target O.
      p_OH: (N, 3) float, m. Hand base in the frame of the target.
      R_OH: (N, 3, 3) float. Its orientation.
      q: (N, K) float. Joints.
      contact_body: (N, C) int. Bodies of the contact points; C is even, contacts 2i and 2i + 1 are opposed.
      contact_p_B: (N, C, 3) float, m. Contact points in the frames of their bodies.
      p_HO: (N, H, 3) float, m. Held objects in the hand base frame; may be left out if there are none.
      R_HO: (N, H, 3, 3) float. Their orientations.
      threads: How many threads share the work; the result does not depend on it.
    """
    if threads < 1:
        raise ValueError(f"threads = {threads}; at least one has to do the work")
    batch = _checked(hand, objects, p_OH, R_OH, q, contact_body, contact_p_B, p_HO, R_HO)
    work = _Work(hand.model, _skin_of(hand), tuple(_solid_of(o) for o in objects))
    # Compiling is not for several threads at once, nor are the lazy fields of the model.
    compile_kernels()
    _ = hand.model.compiled, hand.model.shapes, hand.model.geom_body
    count = len(batch.q)
    block = max(1, min(_BLOCK, -(-count // threads)))
    starts = range(0, max(count, 1), block)
    if threads > 1 and len(starts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(lambda s: _measure_block(work, batch.take(s, s + block)), starts))
    else:
        parts = [_measure_block(work, batch.take(s, s + block)) for s in starts]
    return Measures.join(parts)


class _Batch(NamedTuple):
    """The arrays of `measure`, checked and finite, and which of the grasps were not."""

    p_OH: np.ndarray
    R_OH: np.ndarray
    q: np.ndarray
    contact_body: np.ndarray
    contact_p_B: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray
    broken: np.ndarray

    def take(self, start: int, stop: int) -> "_Batch":
        return _Batch(*(column[start:stop] for column in self))


class _Solid(NamedTuple):
    """An object for the kernels. Frame C: the axes of O, at the middle of the mesh's bounding box."""

    distance: MeshDistance
    arrays: Any  # SolidArrays
    cloud: Any  # CloudArrays


class _Work(NamedTuple):
    """Everything that is the same for all grasps; the last solid is the target."""

    model: Model
    skin: Any  # CloudArrays
    solids: tuple[_Solid, ...]


# Hierarchies take some milliseconds to build, and planners measure the same objects again and again.
_skins: WeakKeyDictionary[Hand, Any] = WeakKeyDictionary()
_solids: WeakKeyDictionary[Object, _Solid] = WeakKeyDictionary()


def _skin_of(hand: Hand) -> Any:
    if hand not in _skins:
        _skins[hand] = _cloud(hand.skin.p_B, hand.skin.body)
    return _skins[hand]


def _solid_of(item: Object) -> _Solid:
    if item not in _solids:
        distance = MeshDistance(item.vertices, item.faces)
        arrays = SolidArrays()
        arrays.mesh, arrays.size = distance.id, distance.size
        arrays.origin = wp.vec3(*(item.sdf.origin - distance.centre))
        arrays.spacing = item.sdf.spacing
        arrays.values = wp.array(item.sdf.values, dtype=float, device="cpu")
        points = probes(item) - distance.centre
        _solids[item] = _Solid(distance, arrays, _cloud(points, np.zeros(len(points), int)))
    return _solids[item]


def probes(item: Object) -> np.ndarray:
    """The points (P, 3), m, of an object's surface that are tested for being inside something else."""
    corners = item.vertices if len(item.vertices) <= MAX_VERTICES else item.hull_vertices
    return np.concatenate([item.surface_points, corners])


def _cloud(points: np.ndarray, body: np.ndarray) -> Any:
    """Points (P, 3) of bodies (P,) in clusters of one body each: halved at the median until small."""
    todo = [np.flatnonzero(body == b) for b in np.unique(body)]
    clusters: list[np.ndarray] = []
    while todo:
        index = todo.pop()
        if len(index) <= _CLUSTER:
            clusters.append(index)
            continue
        own = points[index]
        along = own[:, int(np.argmax(np.ptp(own, axis=0)))]
        half = len(index) // 2
        order = np.argpartition(along, half)
        todo += [index[order[:half]], index[order[half:]]]
    centre = np.array([(points[i].min(axis=0) + points[i].max(axis=0)) / 2 for i in clusters])
    radius = [np.linalg.norm(points[i] - c, axis=1).max() for i, c in zip(clusters, centre, strict=True)]
    arrays = CloudArrays()
    arrays.points = _warp(points[np.concatenate(clusters)], wp.vec3)
    arrays.start = wp.array(np.cumsum([0, *map(len, clusters)]), dtype=int, device="cpu")
    arrays.body = wp.array([body[i[0]] for i in clusters], dtype=int, device="cpu")
    arrays.centre = _warp(centre, wp.vec3)
    # Rounding must not put a point outside of its ball.
    arrays.radius = _warp(np.array(radius) * (1 + 1e-5) + 1e-7, float)
    return arrays


def _warp(array: np.ndarray, dtype: type) -> wp.array:
    return wp.array(np.ascontiguousarray(array, dtype=np.float32), dtype=dtype, device="cpu")


def _checked(
    hand: Hand,
    objects: Sequence[Object],
    p_OH: np.ndarray,
    R_OH: np.ndarray,
    q: np.ndarray,
    contact_body: np.ndarray,
    contact_p_B: np.ndarray,
    p_HO: np.ndarray | None,
    R_HO: np.ndarray | None,
) -> _Batch:
    """The arguments of `measure` as arrays of the right shapes; grasps that are not finite are made so."""
    if not objects:
        raise ValueError("measure needs at least one object: the target, which comes last")
    n, held, k = len(q), len(objects) - 1, len(hand.joints)
    body = np.asarray(contact_body)
    contacts = body.shape[-1] if body.ndim == 2 else 0
    if held == 0 and p_HO is None and R_HO is None:
        p_HO, R_HO = np.zeros((n, 0, 3)), np.zeros((n, 0, 3, 3))
    wanted = {
        "p_OH": (p_OH, (n, 3)),
        "R_OH": (R_OH, (n, 3, 3)),
        "q": (q, (n, k)),
        "contact_p_B": (contact_p_B, (n, contacts, 3)),
        "p_HO": (p_HO, (n, held, 3)),
        "R_HO": (R_HO, (n, held, 3, 3)),
    }
    arrays = {}
    for name, (given, shape) in wanted.items():
        arrays[name] = np.asarray(given, dtype=float)
        if arrays[name].shape != shape:
            what = f"{n} grasps of {hand.name} with {held} held objects and {contacts} contacts"
            raise ValueError(f"{name} has shape {arrays[name].shape}; {what} need {shape}")
    if body.shape != (n, contacts) or contacts % 2 or contacts == 0:
        raise ValueError(f"contact_body has shape {body.shape}; it needs ({n}, an even number of contacts)")
    last = len(hand.model.bodies) - 1
    if n and (body.min() < 0 or body.max() > last):
        raise ValueError(
            f"contact_body is from {body.min()} to {body.max()}; the bodies of {hand.name} are 0 to {last}"
        )
    broken = np.zeros(n, dtype=bool)
    for array in arrays.values():
        broken |= ~np.all(np.isfinite(array), axis=tuple(range(1, array.ndim)))
    if broken.any():
        for name, array in arrays.items():
            rest = np.eye(3) if name.startswith("R") else 0.0
            arrays[name] = np.where(broken.reshape(-1, *[1] * (array.ndim - 1)), rest, array)
    return _Batch(contact_body=body.astype(int), broken=broken, **arrays)


def _measure_block(work: _Work, batch: _Batch) -> Measures:
    """Measures of grasps few enough to hold their intermediate arrays."""
    model, target, held = work.model, work.solids[-1], work.solids[:-1]
    poses = model.poses(batch.q)
    overlap = _hand_overlap(work, target, poses, batch.p_OH, batch.R_OH)
    objects_overlap = np.zeros(len(batch.q))
    for h, solid in enumerate(held):
        p_HS, R_HS = batch.p_HO[:, h], batch.R_HO[:, h]
        R_SH = np.swapaxes(R_HS, 1, 2)
        overlap = np.maximum(overlap, _hand_overlap(work, solid, poses, -apply(R_SH, p_HS), R_SH))
        p_OS, R_OS = batch.p_OH + apply(batch.R_OH, p_HS), batch.R_OH @ R_HS
        objects_overlap = np.maximum(objects_overlap, _object_overlap(target, solid, p_OS, R_OS))
    distance, angle = _contacts(target, poses, batch)
    limits = (batch.q >= model.lower - LIMIT_SLACK) & (batch.q <= model.upper + LIMIT_SLACK)
    lost = np.where(batch.broken, np.nan, 1.0)
    return Measures(
        penetration_mm=1e3 * overlap * lost,
        contact_distance_mm=1e3 * distance * lost[:, None],
        opposition_deg=angle * lost[:, None],
        self_penetration_mm=1e3 * self_overlap(model, batch.q) * lost,
        object_penetration_mm=1e3 * objects_overlap * lost,
        limits_kept=np.all(limits, axis=1) & ~batch.broken,
    )


def _hand_overlap(
    work: _Work, solid: _Solid, poses: BodyPoses, p_OH: np.ndarray, R_OH: np.ndarray
) -> np.ndarray:
    """Deepest overlap (N,), m, of the hand with one object, given the hand base in the object's frame.

    Both ways: skin in the mesh, and points of the object in the primitives. The first alone misses a knife's
    edge, the second alone a fingertip in the middle of a large face.
    """
    model = work.model
    R_CB = R_OH[:, None] @ poses.R_HB
    p_CB = (p_OH - solid.distance.centre)[:, None] + apply(R_OH[:, None], poses.p_HB)
    shapes, body = model.shapes, model.geom_body
    p_CG = p_CB[:, body] + apply(R_CB[:, body], shapes.p_BG)
    R_CG = R_CB[:, body] @ shapes.R_BG
    deepest = wp.zeros(len(p_OH), dtype=float, device="cpu")
    inputs = [
        solid.arrays,
        solid.cloud,
        wp.array(shapes.cylinder.astype(np.int32), dtype=int, device="cpu"),
        _warp(shapes.core, wp.vec3),
        _warp(shapes.radius, float),
        _warp(np.linalg.norm(shapes.core, axis=1) + shapes.radius, float),
        _warp(p_CG, wp.vec3),
        _warp(R_CG, wp.mat33),
        deepest,
    ]
    wp.launch(points_in_primitives, dim=len(p_OH), inputs=inputs, device="cpu")
    # The cheaper of the two came first: the mesh is asked only where the skin may be deeper than that.
    inputs = [solid.arrays, work.skin, _warp(p_CB, wp.vec3), _warp(R_CB, wp.mat33), deepest]
    wp.launch(points_in_mesh, dim=len(p_OH), inputs=inputs, device="cpu")
    return deepest.numpy().astype(float)


def _object_overlap(target: _Solid, other: _Solid, p_OS: np.ndarray, R_OS: np.ndarray) -> np.ndarray:
    """Deepest overlap (N,), m, of the target O and another object S: points of each in the other's mesh."""
    # Of the middle of the other's bounding box in that of the target's.
    p = p_OS + apply(R_OS, other.distance.centre) - target.distance.centre
    R_back = np.swapaxes(R_OS, 1, 2)
    deepest = wp.zeros(len(p), dtype=float, device="cpu")
    for solid, cloud, p_CB, R_CB in (
        (target, other.cloud, p, R_OS),
        (other, target.cloud, -apply(R_back, p), R_back),
    ):
        pose = [_warp(p_CB[:, None], wp.vec3), _warp(R_CB[:, None], wp.mat33)]
        wp.launch(points_in_mesh, dim=len(p), inputs=[solid.arrays, cloud, *pose, deepest], device="cpu")
    return deepest.numpy().astype(float)


def _contacts(target: _Solid, poses: BodyPoses, batch: _Batch) -> tuple[np.ndarray, np.ndarray]:
    """Distance (N, C), m, of the contact points to the target, and opposition angles (N, C), deg."""
    rows = np.arange(len(batch.q))[:, None]
    R_HB, p_HB = poses.R_HB[rows, batch.contact_body], poses.p_HB[rows, batch.contact_body]
    p_O = batch.p_OH[:, None] + apply(batch.R_OH[:, None], p_HB + apply(R_HB, batch.contact_p_B))
    exact = target.distance.query(p_O)
    normal = exact.gradients.reshape(p_O.shape)
    partner = np.arange(p_O.shape[1]) ^ 1  # 0-1, 2-3, ...
    line = p_O[:, partner] - p_O
    # atan2 is exact for small angles, where the cosine is flat.
    across = np.linalg.norm(np.cross(line, normal), axis=-1)
    angle = np.rad2deg(np.arctan2(across, -np.sum(line * normal, axis=-1)))
    angle[np.all(line == 0, axis=-1)] = 180.0
    return np.abs(exact.values).reshape(p_O.shape[:2]), angle
