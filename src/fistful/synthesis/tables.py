"""What the compiled core reads: a hand and a sequence of objects as flat arrays.

Numpy here; `core.py` hands them to Warp on a device. The torch reference reads the same tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from fistful.geometry.primitives import half_extents
from fistful.geometry.sampling import farthest_points
from fistful.geometry.sdf import SdfGrid
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.synthesis.contact_set import ContactSet

SKIN_POINTS = 3000
OBJECT_POINTS = 2048
PROBES, OBJECT_PROBES = 64, 24
"""Well spread points of the hand and of each held object: they tell at a glance if a start is hopeless."""
LEAF = 4
"""Points that share the smallest bounding ball."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BallTree:
    """Points in a binary tree of bounding balls, flattened depth first: what is far costs one test.

    Walk it without a stack: from node i go on to i + 1 if its ball is near, to skip[i] if it is not.

    Attributes:
      points: (P, 3) float, m. In the frame of their owner, leaf after leaf.
      centre, radius: (M, 3), (M,) float, m. Ball of each node.
      skip: (M,) int. The node after the subtree.
      first, last: (M,) int. A leaf holds points first .. last; other nodes none.
    """

    points: np.ndarray
    centre: np.ndarray
    radius: np.ndarray
    skip: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray) -> "BallTree":
        """The tree of points (P, 3): halved along the longest side down to LEAF points."""
        order: list[int] = []
        nodes: list[list[int]] = []
        members: list[np.ndarray] = []

        def grow(index: np.ndarray) -> None:
            node = [0, len(order), len(order)]
            nodes.append(node)
            members.append(index)
            if len(index) <= LEAF:
                order.extend(index.tolist())
                node[2] = len(order)
            else:
                axis = int(np.argmax(np.ptp(points[index], axis=0)))
                index = index[np.argsort(points[index, axis], kind="stable")]
                grow(index[: len(index) // 2])
                grow(index[len(index) // 2 :])
            node[0] = len(nodes)

        if len(points):
            grow(np.arange(len(points)))
        centre = [(points[m].min(axis=0) + points[m].max(axis=0)) / 2 for m in members]
        radius = [np.linalg.norm(points[m] - c, axis=1).max() for m, c in zip(members, centre, strict=True)]
        skip, first, last = np.array(nodes, dtype=int).reshape(-1, 3).T
        return cls(
            points=points[order].reshape(-1, 3),
            centre=np.array(centre).reshape(-1, 3),
            radius=np.array(radius),
            skip=skip,
            first=first,
            last=last,
        )

    @staticmethod
    def join(trees: "Sequence[BallTree]") -> dict[str, np.ndarray]:
        """Several trees one after the other, as the columns that the tables have."""
        nodes = np.cumsum([0, *(len(t.radius) for t in trees)])
        points = np.cumsum([0, *(len(t.points) for t in trees)])
        return {
            "points": np.concatenate([t.points for t in trees]),
            "node_ball": np.concatenate([np.column_stack([t.centre, t.radius]) for t in trees]),
            "node_next": np.concatenate(
                [
                    np.column_stack([t.skip + n, t.first + p, t.last + p])
                    for t, n, p in zip(trees, nodes, points, strict=False)
                ]
            ),
            "tree_node": nodes,
            "tree_point": points,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class HandTables:
    """A hand with B bodies, J joints driven by K independent ones, G shapes, P skin points.

    Attributes:
      parent, p_PB, R_PB: (B,), (B, 3), (B, 3, 3). The tree; body 0 is the base.
      joint_start: (B + 1,) int. Body b is moved by joints joint_start[b] .. joint_start[b + 1], in order.
      axis_B, anchor_B, slides, zero: (J, 3), (J, 3), (J,), (J,). As in `hands.kinematics.Tree`.
      driver, factor, offset: (J,). joint_j = factor_j q[driver_j] + offset_j; driver -1 is a constant.
      lower, upper: (K,). Limits.
      points: (P, 3) float, m. Skin points, in one BallTree a shape; shapes are sorted by body.
      node_ball: (M, 4) float, m. Centre and radius of each node of the trees.
      node_next: (M, 3) int. Its skip, first, last.
      tree_node, tree_point: (G + 1,) int. Nodes and points of each shape's tree.
      geom_start: (B + 1,) int. Shapes of each body.
      geom_body: (G,) int. Body of each shape.
      cylinder, core, radius, p_BG, R_BG, ball: (G, ...). Shapes as `geometry.primitives.Shapes`, and the
        radius of the ball around each.
      body_centre, body_radius: (B, 3), (B,). Ball around the skin points and shapes of a body.
      pair_body: (Q, 2) int. Pairs of bodies whose shapes must not overlap.
      pair_reach: (Q,) float, m. Distance of their centres from which on they can not.
      pair_start: (Q + 1,) int. Pair q tests geom_pair[pair_start[q] .. pair_start[q + 1]].
      geom_pair: (R, 2) int.
      probe_body, probe_p_B: (64,), (64, 3). A few of the skin points, well spread.
      surface_start: (S + 1,) int. Contact candidates of each surface.
      candidate_body, candidate_p_B, candidate_n_B: (M,), (M, 3), (M, 3). Contact candidates.
      set_surface: (T, C) int. Surfaces of the contacts of each contact set.
    """

    parent: np.ndarray
    p_PB: np.ndarray
    R_PB: np.ndarray
    joint_start: np.ndarray
    axis_B: np.ndarray
    anchor_B: np.ndarray
    slides: np.ndarray
    zero: np.ndarray
    driver: np.ndarray
    factor: np.ndarray
    offset: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    points: np.ndarray
    node_ball: np.ndarray
    node_next: np.ndarray
    tree_node: np.ndarray
    tree_point: np.ndarray
    geom_start: np.ndarray
    geom_body: np.ndarray
    cylinder: np.ndarray
    core: np.ndarray
    radius: np.ndarray
    p_BG: np.ndarray
    R_BG: np.ndarray
    ball: np.ndarray
    body_centre: np.ndarray
    body_radius: np.ndarray
    pair_body: np.ndarray
    pair_reach: np.ndarray
    pair_start: np.ndarray
    geom_pair: np.ndarray
    probe_body: np.ndarray
    probe_p_B: np.ndarray
    surface_start: np.ndarray
    candidate_body: np.ndarray
    candidate_p_B: np.ndarray
    candidate_n_B: np.ndarray
    set_surface: np.ndarray

    @classmethod
    def of(cls, hand: Hand, sets: Sequence[ContactSet], skin_points: int = SKIN_POINTS) -> "HandTables":
        """The tables of a hand and of the contact sets that may be used with it."""
        model, tree = hand.model, hand.model.tree
        bodies = len(tree.parent)
        order = np.argsort(model.geom_body, kind="stable")
        place = np.argsort(order)
        geom_body = model.geom_body[order]
        shapes = model.shapes
        kept = farthest_points(
            hand.poses(model.open_pose).points(hand.skin.body, hand.skin.p_B),
            min(skin_points, len(hand.skin.body)),
        )
        skin = hand.skin.take(np.sort(kept))
        trees = [BallTree.of(skin.p_B[skin.geom == g]) for g in order]
        half = np.array(
            [half_extents(model.geoms[g].primitive.kind, model.geoms[g].primitive.size) for g in order]
        )
        ball = np.linalg.norm(half, axis=1)
        ball = np.where(np.isin(order, _round(model)), half.max(axis=1), ball)
        pairs = np.sort(place[model.collision_pairs], axis=1)
        pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0], geom_body[pairs[:, 1]], geom_body[pairs[:, 0]]))]
        pair_body, counts = np.unique(geom_body[pairs], axis=0, return_counts=True)
        centre, reach = _body_balls(model, geom_body, shapes.p_BG[order], ball)
        drives = model.coupling != 0
        surfaces = [s.candidates for s in hand.surfaces]
        names = [s.name for s in hand.surfaces]
        return cls(
            parent=tree.parent,
            p_PB=tree.p_PB,
            R_PB=tree.R_PB,
            joint_start=np.searchsorted(tree.joint_body, np.arange(bodies + 1)),
            axis_B=tree.axis_B,
            anchor_B=tree.anchor_B,
            slides=tree.slides.astype(int),
            zero=tree.zero,
            driver=np.where(drives.any(axis=1), drives.argmax(axis=1), -1),
            factor=model.coupling.sum(axis=1),
            offset=model.coupling_offset,
            lower=model.lower,
            upper=model.upper,
            **BallTree.join(trees),
            geom_start=np.searchsorted(geom_body, np.arange(bodies + 1)),
            geom_body=geom_body,
            cylinder=shapes.cylinder[order].astype(int),
            core=shapes.core[order],
            radius=shapes.radius[order],
            p_BG=shapes.p_BG[order],
            R_BG=shapes.R_BG[order],
            ball=ball,
            body_centre=centre,
            body_radius=reach,
            pair_body=pair_body.reshape(-1, 2),
            pair_reach=reach[pair_body.reshape(-1, 2)].sum(axis=1),
            pair_start=np.cumsum([0, *counts]),
            geom_pair=pairs,
            probe_body=hand.skin.body[kept[:PROBES]],
            probe_p_B=hand.skin.p_B[kept[:PROBES]],
            surface_start=np.cumsum([0, *(len(s.body) for s in surfaces)]),
            candidate_body=np.concatenate([s.body for s in surfaces]),
            candidate_p_B=np.concatenate([s.p_B for s in surfaces]),
            candidate_n_B=np.concatenate([s.n_B for s in surfaces]),
            set_surface=np.array([[names.index(n) for n in s.surfaces] for s in sets]),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectTables:
    """A sequence of objects, their grids one after the other in flat arrays.

    Attributes:
      origin, spacing: (O, 3), (O,) float, m. Each grid.
      shape: (O, 3) int. Its nodes; node (i, j, k) is node_start + (i ny + j) nz + k.
      node_start: (O,) int.
      values, gradients: (V,), (V, 3) float32. Signed distance, m, and unit gradient at the nodes.
      bound: (U,) int8, mm. For every block of 2 x 2 x 2 cells: no point with a negative distance is nearer
        than this to any point of the block. A byte a block keeps the whole table in the processor's cache.
      bound_start, bound_shape: (O,), (O, 3) int. First block and number of blocks of each object.
      centre, size: (O, 3), (O,) float, m. Centre of mass; half the diagonal of the bounding box, which
        scales torques.
      points: (P, 3) float, m. Surface points, in one BallTree an object.
      node_ball: (M, 4) float, m. Centre and radius of each node of the trees.
      node_next: (M, 3) int. Its skip, first, last.
      tree_node, tree_point: (O + 1,) int. Nodes and points of each object's tree.
      probe: (O, 24, 3) float, m. A few of the surface points, well spread.
    """

    origin: np.ndarray
    spacing: np.ndarray
    shape: np.ndarray
    node_start: np.ndarray
    values: np.ndarray
    gradients: np.ndarray
    bound: np.ndarray
    bound_start: np.ndarray
    bound_shape: np.ndarray
    centre: np.ndarray
    size: np.ndarray
    points: np.ndarray
    node_ball: np.ndarray
    node_next: np.ndarray
    tree_node: np.ndarray
    tree_point: np.ndarray
    probe: np.ndarray

    @classmethod
    def of(cls, objects: Sequence[Object], points: int = OBJECT_POINTS) -> "ObjectTables":
        """The tables of a sequence; the surface points are the first `points` of each object's."""
        nodes = [o.sdf.values.size for o in objects]
        bounds = [_bound(o.sdf) for o in objects]
        return cls(
            origin=np.array([o.sdf.origin for o in objects]),
            spacing=np.array([o.sdf.spacing for o in objects]),
            shape=np.array([o.sdf.shape for o in objects]),
            node_start=np.cumsum([0, *nodes])[:-1],
            values=np.concatenate([o.sdf.values.ravel() for o in objects]),
            gradients=np.concatenate([o.sdf.gradients.reshape(-1, 3) for o in objects]),
            bound=np.concatenate([b.ravel() for b in bounds]),
            bound_start=np.cumsum([0, *(b.size for b in bounds)])[:-1],
            bound_shape=np.array([b.shape for b in bounds]),
            centre=np.array([o.mass_properties.com_O for o in objects]),
            size=np.array([np.linalg.norm(np.ptp(o.vertices, axis=0)) / 2 for o in objects]),
            probe=np.array([o.surface_points[:OBJECT_PROBES] for o in objects]),
            **BallTree.join([_object_tree(o, points) for o in objects]),
        )


_trees: WeakKeyDictionary[Object, dict[int, BallTree]] = WeakKeyDictionary()


def _object_tree(item: Object, points: int) -> BallTree:
    """The tree of an object's first surface points; an object is met again in every stage that holds it."""
    known = _trees.setdefault(item, {})
    if points not in known:
        known[points] = BallTree.of(item.surface_points[:points])
    return known[points]


def _bound(sdf: SdfGrid) -> np.ndarray:
    """See ObjectTables.bound; (ceil((nx - 1) / 2), ...) int8.

    The 27 nodes of a block include all that its points are interpolated from. From such a node, any other
    node y has a distance of at least value - |y - node|, and interpolation at a point adds at most half the
    diagonal of a cell to |y - node|, as does the way from a point of the block to its nearest node: together
    sqrt(3) spacings.
    """
    low = np.pad(sdf.values, [(0, 1 - n % 2) for n in sdf.shape], mode="edge")
    for axis in range(3):
        low = np.moveaxis(low, axis, 0)
        low = np.moveaxis(np.minimum(np.minimum(low[:-2:2], low[1:-1:2]), low[2::2]), 0, axis)
    below = 1e3 * (low.astype(float) - np.sqrt(3) * sdf.spacing)
    return np.clip(np.floor(below), -128, 127).astype(np.int8)


def _round(model) -> list[int]:
    """Shapes whose bounding ball touches them all around or at both caps: spheres and capsules."""
    return [g for g, shape in enumerate(model.geoms) if shape.primitive.kind.name in ("SPHERE", "CAPSULE")]


def _body_balls(model, geom_body, p_BG, ball) -> tuple[np.ndarray, np.ndarray]:
    """A ball around the shapes of each body: centre (B, 3), radius (B,); radius -1 without shapes."""
    bodies = len(model.bodies)
    centre, reach = np.zeros((bodies, 3)), np.full(bodies, -1.0)
    for b in range(bodies):
        own = geom_body == b
        if own.any():
            lower = (p_BG[own] - ball[own, None]).min(axis=0)
            upper = (p_BG[own] + ball[own, None]).max(axis=0)
            centre[b] = (lower + upper) / 2
            reach[b] = np.max(np.linalg.norm(p_BG[own] - centre[b], axis=1) + ball[own])
    return centre, reach
