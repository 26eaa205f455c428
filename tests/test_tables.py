"""The flat tables: trees that lose no point, hands and objects that stay themselves, a bound that holds."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from fistful.geometry.primitives import signed_distance
from fistful.geometry.sdf import SdfGrid
from fistful.hands import hand_names
from fistful.objects import Object, load_object
from fistful.synthesis.contact_set import contact_sets
from fistful.synthesis.tables import LEAF, BallTree, HandTables, ObjectTables
from test_energy import hand, hand_tables

HANDS = (*hand_names(), "gripper")


@cache
def item(name: str) -> Object:
    return load_object(name, rescale=True, voxels=40_000)


# Ball trees.


def clouds():
    """Points as they come: none, one, many, on a line, on a lattice, several at one place."""

    def cloud(seed: int, count: int, kind: str) -> np.ndarray:
        rng = np.random.default_rng(seed)
        points = rng.normal(size=(count, 3))
        if kind == "line":
            points *= [1.0, 0.0, 0.0]
        if kind == "lattice":
            points = np.round(points)
        return points

    kinds = st.sampled_from(("free", "line", "lattice"))
    return st.builds(cloud, st.integers(0, 2**32 - 1), st.integers(0, 60), kinds)


def walk(tree: BallTree, centre: np.ndarray, radius: float) -> tuple[list[int], list[int]]:
    """Nodes and points that a query ball comes by, as the kernels walk."""
    node, nodes, points = 0, [], []
    while node < len(tree.radius):
        nodes.append(node)
        if np.linalg.norm(centre - tree.centre[node]) <= radius + tree.radius[node]:
            points += range(tree.first[node], tree.last[node])
            node += 1
        else:
            node = tree.skip[node]
    return nodes, points


@given(clouds())
def test_a_tree_holds_every_point_once_and_its_balls_contain_them(points):
    tree = BallTree.of(points)
    assert sorted(map(tuple, tree.points)) == sorted(map(tuple, points))
    covered = [i for first, last in zip(tree.first, tree.last, strict=True) for i in range(first, last)]
    assert covered == list(range(len(points)))
    assert np.all(tree.last - tree.first <= LEAF)
    for node, skip in enumerate(tree.skip):
        inside = tree.points[tree.first[node] : tree.last[skip - 1]]
        assert node < skip <= len(tree.skip)
        assert len(inside)
        assert np.linalg.norm(inside - tree.centre[node], axis=1).max() <= tree.radius[node] + 1e-12


@given(clouds(), st.integers(0, 2**32 - 1))
def test_a_walk_misses_nothing(points, seed):
    """Far balls are skipped, yet every point in the query is met, and no node twice."""
    rng, tree = np.random.default_rng(seed), BallTree.of(points)
    for centre, radius in zip(rng.normal(size=(8, 3)), rng.uniform(0, 1.5, 8), strict=True):
        nodes, met = walk(tree, centre, radius)
        assert nodes == sorted(set(nodes))
        assert met == sorted(set(met))
        near = np.flatnonzero(np.linalg.norm(tree.points - centre, axis=1) <= radius)
        assert set(near) <= set(met)


def test_a_walk_is_worth_its_while(figure):
    points = item("mug").surface_points
    nodes, met = walk(BallTree.of(points), points[0], 0.003)
    assert len(nodes) + len(met) < len(points) / 10
    figure("nodes and points looked at for a 3 mm ball among 2048 points", len(nodes) + len(met))


@given(st.lists(clouds(), min_size=1, max_size=4))
def test_joined_trees_are_the_trees(clouds_of_owners):
    trees = [BallTree.of(points) for points in clouds_of_owners]
    joined = BallTree.join(trees)
    for i, tree in enumerate(trees):
        nodes = slice(*joined["tree_node"][i : i + 2])
        np.testing.assert_array_equal(joined["points"][slice(*joined["tree_point"][i : i + 2])], tree.points)
        np.testing.assert_array_equal(joined["node_ball"][nodes, :3], tree.centre)
        np.testing.assert_array_equal(joined["node_ball"][nodes, 3], tree.radius)
        skip, first, last = joined["node_next"][nodes].T
        np.testing.assert_array_equal(skip, tree.skip + nodes.start)
        np.testing.assert_array_equal(first - joined["tree_point"][i], tree.first)
        np.testing.assert_array_equal(last - joined["tree_point"][i], tree.last)


# Hands.


@pytest.mark.parametrize("name", HANDS)
def test_skin_points_are_with_their_shapes(name):
    """Each shape's tree has skin of that shape only, and every shape its tree."""
    tables, skin, model = hand_tables(name), hand(name).skin, hand(name).model
    assert len(tables.points) == 300
    bodies = np.repeat(np.arange(len(tables.parent)), np.diff(tables.geom_start))
    found = []
    for g, body in enumerate(bodies):
        points = tables.points[slice(*tables.tree_point[g : g + 2])]
        local = (points - tables.p_BG[g]) @ tables.R_BG[g]
        same = [
            i
            for i, geom in enumerate(model.geoms)
            if geom.body == body and np.array_equal(geom.primitive.p_BG, tables.p_BG[g])
        ]
        (geom,) = [i for i in same if np.array_equal(model.geoms[i].primitive.R_BG, tables.R_BG[g])]
        found.append(geom)
        shape = model.geoms[geom].primitive
        assert {*map(tuple, points)} <= {*map(tuple, skin.p_B[skin.geom == geom])}
        np.testing.assert_allclose(signed_distance(shape.kind, shape.size, local), 0, atol=1e-9)
    assert sorted(found) == list(range(len(model.geoms)))


@pytest.mark.parametrize("name", HANDS)
def test_balls_contain_shapes_and_skin(name):
    """The ball of a shape holds the shape, that of a body all of its shapes: what is culled can not touch."""
    tables = hand_tables(name)
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(200, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    bodies = np.repeat(np.arange(len(tables.parent)), np.diff(tables.geom_start))
    for g, body in enumerate(bodies):
        if tables.cylinder[g]:
            flat = direction[:, :2] / np.linalg.norm(direction[:, :2], axis=1, keepdims=True)
            corners = np.c_[flat, np.sign(direction[:, 2:])] * tables.core[g][[0, 0, 2]]
        else:
            corners = np.sign(direction) * tables.core[g]
        outermost = corners + tables.radius[g] * direction
        assert np.linalg.norm(outermost, axis=1).max() <= tables.ball[g] + 1e-12
        outermost_B = tables.p_BG[g] + outermost @ tables.R_BG[g].T
        reach = np.linalg.norm(outermost_B - tables.body_centre[body], axis=1).max()
        assert reach <= tables.body_radius[body] + 1e-12
    empty = np.setdiff1d(np.arange(len(tables.parent)), bodies)
    assert np.all(tables.body_radius[empty] == -1)


@pytest.mark.parametrize("name", HANDS)
def test_joints_follow_their_drivers(name):
    tables, model = hand_tables(name), hand(name).model
    q = np.random.default_rng(0).uniform(model.lower, model.upper, (5, len(model.joints)))
    driven = np.where(tables.driver >= 0, tables.factor * q[:, tables.driver], 0.0) + tables.offset
    np.testing.assert_allclose(driven, model.expand(q), rtol=0, atol=1e-14)
    starts = np.repeat(np.arange(len(tables.parent)), np.diff(tables.joint_start))
    np.testing.assert_array_equal(starts, model.tree.joint_body)


@pytest.mark.parametrize("name", HANDS)
def test_pairs_of_shapes_are_those_that_may_collide(name):
    tables, model = hand_tables(name), hand(name).model
    order = np.argsort(model.geom_body, kind="stable")
    found = {frozenset(order[pair].tolist()) for pair in tables.geom_pair}
    assert found == {frozenset(pair.tolist()) for pair in model.collision_pairs}
    assert len(tables.geom_pair) == len(model.collision_pairs)
    for q, pair in enumerate(tables.pair_body):
        own = tables.geom_pair[tables.pair_start[q] : tables.pair_start[q + 1]]
        np.testing.assert_array_equal(model.geom_body[order][own], np.broadcast_to(pair, own.shape))
    assert tables.pair_start[-1] == len(tables.geom_pair)


@pytest.mark.parametrize("pairs", (1, 2))
def test_contacts_of_a_set_are_candidates_of_its_surfaces(pairs):
    allegro = hand("allegro")
    sets = contact_sets(allegro, pairs)
    tables = HandTables.of(allegro, sets, skin_points=100)
    assert tables.set_surface.shape == (len(sets), 2 * pairs)
    for t, one in enumerate(sets):
        for number, name in zip(tables.set_surface[t], one.surfaces, strict=True):
            (surface,) = [s.candidates for s in allegro.surfaces if s.name == name]
            own = slice(*tables.surface_start[number : number + 2])
            np.testing.assert_array_equal(tables.candidate_body[own], surface.body)
            np.testing.assert_array_equal(tables.candidate_p_B[own], surface.p_B)
            np.testing.assert_array_equal(tables.candidate_n_B[own], surface.n_B)


def test_fewer_skin_points_are_spread_over_the_whole_hand():
    """No point of the skin is farther from the 300 that are kept than twice their median spacing."""
    allegro, tables = hand("allegro"), hand_tables("allegro")
    poses = allegro.poses(allegro.model.open_pose)
    counts = np.add.reduceat(np.diff(tables.tree_point), tables.geom_start[:-1])
    few = poses.points(np.repeat(np.arange(len(counts)), counts), tables.points)
    far = cKDTree(few).query(poses.points(allegro.skin.body, allegro.skin.p_B))[0].max()
    assert far < 2 * np.median(cKDTree(few).query(few, k=2)[0][:, 1])


# Objects.


def test_objects_are_found_in_the_flat_arrays():
    things = [item("cube"), item("mug")]
    tables = ObjectTables.of(things, points=100)
    rng = np.random.default_rng(0)
    for o, thing in enumerate(things):
        i, j, k = rng.integers(thing.sdf.shape, size=(50, 3)).T
        _, ny, nz = tables.shape[o]
        node = tables.node_start[o] + (i * ny + j) * nz + k
        np.testing.assert_array_equal(tables.values[node], thing.sdf.values[i, j, k])
        np.testing.assert_array_equal(tables.gradients[node], thing.sdf.gradients[i, j, k])
        points = tables.points[slice(*tables.tree_point[o : o + 2])]
        assert sorted(map(tuple, points)) == sorted(map(tuple, thing.surface_points[:100]))
        np.testing.assert_array_equal(tables.centre[o], thing.mass_properties.com_O)
    half_cube = np.ptp(things[0].vertices[:, 0]) / 2
    assert tables.size[0] == pytest.approx(3**0.5 * half_cube)


def block_bound(sdf: SdfGrid, tables: ObjectTables, points: np.ndarray) -> np.ndarray:
    """The bound (m) of the block of cells that holds each point of the grid's box."""
    cell = np.minimum(((points - sdf.origin) / sdf.spacing).astype(int), np.array(sdf.shape) - 2)
    i, j, k = (cell // 2).T
    return 1e-3 * tables.bound.reshape(tables.bound_shape[0])[i, j, k]


def assert_bound_holds(sdf: SdfGrid, points: np.ndarray, inside: np.ndarray) -> float:
    """No point of `inside` is nearer to one of `points` than the bound says; the smallest slack, m."""
    thing = replace(item("cube"), sdf=sdf)
    tables = ObjectTables.of([thing], points=1)
    slack = cKDTree(inside).query(points)[0] - block_bound(sdf, tables, points)
    assert slack.min() > -1e-7
    return slack.min()


def balls(seed: int, spacing: float) -> SdfGrid:
    """A grid of the distance to some balls: any values that differ by no more than nodes are apart.

    Small balls around a node, met from the middle of a cell, are what the bound has to fear.
    """
    rng = np.random.default_rng(seed)
    shape = rng.integers(3, 7, 3)
    nodes = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1) * spacing
    centres = rng.uniform(0, shape - 1, (rng.integers(1, 4), 3))
    centres = np.where(rng.random((len(centres), 1)) < 0.5, np.round(centres), centres) * spacing
    radii = rng.choice([0.01, 0.3, 0.8], len(centres)) * spacing
    values = np.min(np.linalg.norm(nodes[..., None, :] - centres, axis=-1) - radii, axis=-1)
    gradients = np.zeros((*shape, 3), dtype=np.float32)
    return SdfGrid(
        origin=rng.normal(size=3), spacing=spacing, values=values.astype(np.float32), gradients=gradients
    )


def lattice(sdf: SdfGrid, finer: int) -> np.ndarray:
    axes = [
        np.linspace(a, b, finer * (n - 1) + 1)
        for a, b, n in zip(sdf.origin, sdf.upper, sdf.shape, strict=True)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from((0.0019, 0.01, 0.07)))
def test_the_bound_holds_between_nodes(seed, spacing):
    """Where the interpolated field is negative, nothing is nearer than the block's bound."""
    sdf = balls(seed, spacing)
    points = lattice(sdf, 4)
    # Half way between nodes, the bound of any of them must hold.
    nudge = np.random.default_rng(seed).choice([-1e-6, 1e-6], points.shape) * spacing
    points = np.clip(points + nudge, sdf.origin, sdf.upper)
    inside = points[sdf.query(points)[0] < 0]
    if len(inside):
        assert_bound_holds(sdf, points, inside)


@pytest.mark.parametrize("name", ("cube", "mug"))
def test_the_bound_holds_for_objects(name, figure):
    """Of real fields, and also for points of the surface itself, which objects push against the hand."""
    thing, rng = item(name), np.random.default_rng(0)
    points = rng.uniform(thing.sdf.origin, thing.sdf.upper, (20_000, 3))
    inside = points[thing.sdf.query(points)[0] < 0]
    assert_bound_holds(thing.sdf, points, inside)
    slack = assert_bound_holds(thing.sdf, points, thing.surface_points)
    # Not so careful either that nothing is ever skipped: within three cells and the millimetre of rounding.
    assert slack < 3 * thing.sdf.spacing + 1e-3
    figure(f"smallest slack of the culling bound, {name}", 1e3 * slack, "mm")
