"""Distances: Warp against brute force in float64, and the grid against closed forms."""

import numpy as np
import pytest
import trimesh
from hypothesis import given, settings
from hypothesis import strategies as st

from fistful.errors import MeshError
from fistful.geometry.mesh_distance import crossing_faces, grid_distance, signed_distance
from fistful.geometry.sdf import SdfGrid, build_sdf


def closest_on_triangle(p, a, b, c):
    """The closest point of one triangle, tried on its plane, its three edges and its corners, in float64."""
    candidates = [a, b, c]
    normal = np.cross(b - a, c - a)
    if normal @ normal > 0:
        q = p - normal * ((p - a) @ normal) / (normal @ normal)
        sides = [np.cross(v - u, q - u) @ normal for u, v in ((a, b), (b, c), (c, a))]
        if min(sides) >= 0:
            candidates.append(q)
    for u, v in ((a, b), (b, c), (c, a)):
        t = np.clip((p - u) @ (v - u) / max((v - u) @ (v - u), 1e-300), 0, 1)
        candidates.append(u + t * (v - u))
    return min(candidates, key=lambda q: np.linalg.norm(p - q))


def winding_number(p, triangles):
    """Sum of the signed solid angles (van Oosterom and Strackee) over 4 pi."""
    a, b, c = np.moveaxis(triangles - p, 1, 0)
    la, lb, lc = (np.linalg.norm(x, axis=1) for x in (a, b, c))
    numerator = np.einsum("ij,ij->i", a, np.cross(b, c))
    dots = [np.einsum("ij,ij->i", x, y) for x, y in ((a, b), (b, c), (c, a))]
    denominator = la * lb * lc + dots[0] * lc + dots[1] * la + dots[2] * lb
    return 2 * np.arctan2(numerator, denominator).sum() / (4 * np.pi)


def brute_force(vertices, faces, points):
    triangles = np.asarray(vertices, float)[faces]
    values, closest = [], []
    for p in points:
        q = min((closest_on_triangle(p, *t) for t in triangles), key=lambda q: np.linalg.norm(p - q))
        sign = -1 if winding_number(p, triangles) > 0.5 else 1
        values.append(sign * np.linalg.norm(p - q))
        closest.append(q)
    return np.array(values), np.array(closest)


def bumpy(seed: int) -> trimesh.Trimesh:
    mesh = trimesh.creation.icosphere(subdivisions=1, radius=0.03)
    rng = np.random.default_rng(seed)
    mesh.vertices *= rng.uniform(0.6, 1.4, (len(mesh.vertices), 1))
    return mesh


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 3.0, -50.0]), st.sampled_from([1e-3, 1.0, 1e3]))
def test_signed_distance_agrees_with_brute_force(seed, offset, scale):
    mesh = bumpy(seed)
    mesh.apply_translation([offset, -offset, offset])
    mesh.apply_scale(scale)
    around = np.random.default_rng(seed).uniform(
        *(mesh.bounds + 0.02 * scale * np.array([[-1], [1]])), (20, 3)
    )
    middle = scale * np.array([offset, -offset, offset])
    points = np.concatenate([around, middle + 0.3 * (mesh.vertices[:10] - middle)])
    values, gradients = signed_distance(mesh.vertices, mesh.faces, points)
    expected, closest = brute_force(mesh.vertices, mesh.faces, points)
    assert (expected < 0).any()
    np.testing.assert_allclose(values, expected, atol=1e-6 * mesh.extents.max())
    found = points - values[:, None] * gradients
    on_closest = np.linalg.norm(found - closest, axis=1) < 1e-5 * mesh.extents.max()
    assert on_closest.mean() > 0.95  # Two closest points may tie within rounding.
    np.testing.assert_allclose(np.linalg.norm(gradients, axis=1), 1, atol=1e-4)


def test_grid_distance_agrees_with_single_points():
    """Rows hand bounds and signs on from node to node; the result must not depend on it."""
    mesh = trimesh.creation.annulus(r_min=0.028, r_max=0.03, height=0.05)  # Walls thinner than the spacing.
    origin, spacing, shape = mesh.bounds[0] - 0.0071, 0.0037, (20, 20, 18)
    values, gradients = grid_distance(mesh.vertices, mesh.faces, origin=origin, spacing=spacing, shape=shape)
    nodes = origin + spacing * np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    expected = signed_distance(mesh.vertices, mesh.faces, nodes.reshape(-1, 3))
    assert (expected.values < 0).any()
    np.testing.assert_allclose(values.ravel(), expected.values, atol=1e-7)
    away = np.abs(expected.values) > 1e-5
    agree = np.einsum("ij,ij->i", gradients.reshape(-1, 3), expected.gradients)[away] > 0.999
    assert agree.mean() > 0.97  # On the medial axis two gradients are equally right.


def test_sphere_in_closed_form():
    radius = 0.03
    mesh = trimesh.creation.icosphere(subdivisions=5, radius=radius)
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=60_000)
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(2000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    points = direction * rng.uniform(0.022, 0.038, (2000, 1))
    values, gradients = grid.query(points)
    np.testing.assert_allclose(values, np.linalg.norm(points, axis=1) - radius, atol=1e-4)
    assert (np.einsum("ij,ij->i", gradients, direction) > 0.995).all()


def test_box_in_closed_form():
    half = np.array([0.03, 0.02, 0.01])
    mesh = trimesh.creation.box(2 * half)
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=100_000)
    points = np.random.default_rng(1).uniform(-half - 0.008, half + 0.008, (4000, 3))
    q = np.abs(points) - half
    exact = np.linalg.norm(np.maximum(q, 0), axis=1) + np.minimum(q.max(axis=1), 0)
    values, gradients = grid.query(points)
    assert np.abs(values - exact).max() < 0.87 * grid.spacing  # The bound of build_sdf.
    assert np.abs(values - exact).mean() < 0.05 * grid.spacing
    above = (q[:, 2] > 0.002) & (q[:, :2] < -0.003).all(axis=1)  # Clearly over one side: a plane, exact.
    assert above.sum() > 50
    np.testing.assert_allclose(values[above], q[above, 2], atol=1e-7)
    np.testing.assert_allclose(gradients[above, 2], np.sign(points[above, 2]), atol=1e-6)


def test_gradient_matches_differences_of_the_value_where_smooth():
    mesh = trimesh.creation.icosphere(subdivisions=5, radius=0.03)
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=200_000)
    rng = np.random.default_rng(2)
    direction = rng.normal(size=(500, 3))
    points = direction / np.linalg.norm(direction, axis=1, keepdims=True) * rng.uniform(0.02, 0.036, (500, 1))
    step = grid.spacing  # One whole cell: the derivative of a trilinear value jumps between cells.
    numeric = np.stack(
        [(grid.query(points + e)[0] - grid.query(points - e)[0]) / (2 * step) for e in step * np.eye(3)],
        axis=1,
    )
    np.testing.assert_allclose(grid.query(points)[1], numeric, atol=0.03)


def test_values_and_gradients_are_exact_at_the_nodes_and_linear_between():
    mesh = bumpy(3)
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=5000)
    ijk = np.array([(0, 0, 0), (3, 4, 5), tuple(n - 1 for n in grid.shape)])
    values, gradients = grid.query(grid.origin + grid.spacing * ijk)
    np.testing.assert_allclose(values, grid.values[tuple(ijk.T)], atol=1e-9)
    np.testing.assert_allclose(gradients, grid.gradients[tuple(ijk.T)], atol=1e-6)
    middle, _ = grid.query(grid.origin + grid.spacing * (ijk[1] + 0.5))
    assert middle == pytest.approx(grid.values[3:5, 4:6, 5:7].mean())


def test_outside_the_grid_the_value_is_continuous_and_never_too_small():
    mesh = bumpy(4)
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=20_000)
    rng = np.random.default_rng(0)
    points = rng.normal(size=(500, 3)) * 0.2
    points = points[((points < grid.origin) | (points > grid.upper)).any(axis=1)]
    values, gradients = grid.query(points)
    exact = signed_distance(mesh.vertices, mesh.faces, points).values
    assert (values > exact - grid.spacing).all()
    assert (values < exact * 1.1 + grid.spacing).all()
    np.testing.assert_allclose(np.linalg.norm(gradients, axis=1), 1, atol=1e-6)
    exact_gradients = signed_distance(mesh.vertices, mesh.faces, points).gradients
    assert np.median(np.einsum("ij,ij->i", gradients, exact_gradients)) > 0.98
    border = np.clip(points, grid.origin, grid.upper)
    outward = (points - border) * 1e-6
    np.testing.assert_allclose(grid.query(border)[0], grid.query(border + outward)[0], atol=1e-6)


def test_query_keeps_shape_and_marks_bad_points():
    mesh = bumpy(5)
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=5000)
    values, gradients = grid.query(np.zeros((2, 3, 3)))
    assert values.shape == (2, 3)
    assert gradients.shape == (2, 3, 3)
    assert grid.query(np.zeros((0, 3)))[0].shape == (0,)
    values, gradients = grid.query(np.array([[np.nan, 0, 0], [0, 0, 0]]))
    assert np.isnan(values[0])
    assert np.isnan(gradients[0]).all()
    assert np.isfinite(values[1])


@pytest.mark.parametrize("voxels", [250_000, 400_000])
def test_spacing_spends_the_budget(voxels):
    """A slender object gets a finer grid than a cube of the same length."""
    slender = trimesh.creation.box((0.08, 0.01, 0.01))
    cube = trimesh.creation.box((0.08, 0.08, 0.08))
    grids = [build_sdf(m.vertices, m.faces, voxels=voxels) for m in (slender, cube)]
    for grid in grids:
        assert 0.8 * voxels < np.prod(grid.shape) < 1.5 * voxels
    assert grids[0].spacing < 0.7 * grids[1].spacing


def test_large_objects_spend_more_to_stay_accurate():
    mesh = trimesh.creation.box((0.2, 0.15, 0.1))
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=200_000)
    assert 200_000 * 1.3 < np.prod(grid.shape) < 2.2 * 200_000


def test_too_few_voxels_are_refused():
    mesh = bumpy(0)
    with pytest.raises(ValueError, match="voxels = 100 is too few"):
        build_sdf(mesh.vertices, mesh.faces, voxels=100)


def test_a_mesh_without_area_has_no_distance():
    with pytest.raises(MeshError):
        signed_distance(np.zeros((3, 3)), np.array([[0, 1, 2]]), np.zeros((1, 3)))
    with pytest.raises(MeshError):
        signed_distance(np.array([[0, 0, 0], [1, 0, 0], [2, 0, 0.0]]), np.array([[0, 1, 2]]), np.ones((1, 3)))


def test_grid_is_plain_and_frozen():
    mesh = bumpy(1)
    grid = build_sdf(mesh.vertices, mesh.faces, voxels=5000)
    assert isinstance(grid, SdfGrid)
    assert grid.values.dtype == grid.gradients.dtype == np.float32
    assert grid.values.flags.c_contiguous
    assert grid.gradients.shape == (*grid.shape, 3)
    with pytest.raises(AttributeError):
        grid.spacing = 1.0  # type: ignore[misc]


# --- faces that cross ---


def crossing_brute_force(vertices, faces):
    """Pairs without a common edge where an edge of one passes through the inside of the other."""

    def pierces(p, q, a, b, c):
        m = np.stack([q - p, a - b, a - c], axis=1)
        if abs(np.linalg.det(m)) < 1e-14:
            return False
        t, u, v = np.linalg.solve(m, a - p)
        return 1e-9 < t < 1 - 1e-9 and u > 1e-9 and v > 1e-9 and u + v < 1 - 1e-9

    found = set()
    for i in range(len(faces)):
        for j in range(i + 1, len(faces)):
            if len(set(faces[i]) & set(faces[j])) > 1:
                continue
            s, t = vertices[faces[i]], vertices[faces[j]]
            if any(pierces(s[k], s[k - 1], *t) or pierces(t[k], t[k - 1], *s) for k in range(3)):
                found.add((i, j))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_crossings_agree_with_brute_force(seed):
    mesh = bumpy(seed)
    other = bumpy(seed + 10)
    other.apply_translation((0.03, 0.01, 0.0))
    both = trimesh.util.concatenate(mesh, other)
    crossings = crossing_faces(both.vertices, both.faces)
    expected = crossing_brute_force(both.vertices, both.faces)
    assert len(expected) > 5
    assert {tuple(sorted(p)) for p in crossings.pairs.tolist()} == expected
    assert crossings.found == len(expected)
    assert crossings.complete


def test_sound_and_touching_meshes_do_not_cross():
    mesh = trimesh.creation.icosphere(subdivisions=4)
    assert crossing_faces(mesh.vertices, mesh.faces).found == 0
    box = trimesh.creation.box((1, 1, 1))
    beside = box.copy()
    beside.apply_translation((1, 0, 0))
    both = trimesh.util.concatenate(box, beside)
    assert crossing_faces(both.vertices, both.faces).found == 0


def test_search_for_crossings_is_bounded_and_says_so():
    """Five thousand needles in one place: every box meets every other."""
    rng = np.random.default_rng(0)
    ends = rng.normal(size=(5000, 1, 3))
    triangles = np.concatenate([ends, -ends, ends + 0.001], axis=1)
    crossings = crossing_faces(triangles.reshape(-1, 3), np.arange(15_000).reshape(-1, 3))
    assert not crossings.complete
