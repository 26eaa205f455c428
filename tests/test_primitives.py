"""Closed-form distances against brute force, normals against finite differences, samples against areas."""

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from scipy.stats import chisquare

from fistful.geometry.pose import rotation_from_quaternion
from fistful.geometry.primitives import (
    Kind,
    Primitive,
    Shapes,
    core_and_radius,
    half_extents,
    outward_normal,
    sample_surface,
    signed_distance,
    surface_area,
)

repeated = settings(max_examples=30, deadline=None, derandomize=True)
lengths = st.floats(0.003, 0.1)
USED = {Kind.SPHERE: 1, Kind.CAPSULE: 2, Kind.CYLINDER: 2, Kind.BOX: 3}
kinds = st.sampled_from(list(Kind))


def sized(kind: Kind, a: float, b: float, c: float) -> np.ndarray:
    return np.where(np.arange(3) < USED[kind], [a, b, c], 0.0)


@st.composite
def shapes(draw) -> tuple[Kind, np.ndarray]:
    kind = draw(kinds)
    return kind, sized(kind, draw(lengths), draw(lengths), draw(lengths))


def dense_surface(kind: Kind, size: np.ndarray, n: int = 160) -> np.ndarray:
    """Points on the surface from its parametrisation, not from the distance function."""
    if kind == Kind.BOX:
        u, v = (g.ravel() for g in np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n)))
        faces = []
        for axis in range(3):
            for side in (-1.0, 1.0):
                faces.append(np.insert(np.stack([u, v], axis=1), axis, side, axis=1))
        return np.concatenate(faces) * size
    angle = np.linspace(-np.pi, np.pi, 2 * n)
    if kind == Kind.CYLINDER:
        # A profile in the half plane (distance from the axis, z), turned around.
        share = np.linspace(0, 1, n)
        profile = [
            np.stack([share * size[0], np.full(n, size[1])], axis=1),
            np.stack([share * size[0], np.full(n, -size[1])], axis=1),
            np.stack([np.full(n, size[0]), (2 * share - 1) * size[1]], axis=1),
        ]
    else:
        height = size[1] if kind == Kind.CAPSULE else 0.0
        polar = np.linspace(0, np.pi / 2, n)
        cap = size[0] * np.stack([np.sin(polar), np.cos(polar)], axis=1)
        side = np.stack([np.full(n, size[0]), np.linspace(-height, height, n)], axis=1)
        profile = [cap + np.array([0, height]), cap * [1, -1] - np.array([0, height]), side]
    rho, z = np.concatenate(profile).T
    return np.stack(
        [np.outer(rho, np.cos(angle)), np.outer(rho, np.sin(angle)), np.outer(z, np.ones_like(angle))],
        axis=-1,
    ).reshape(-1, 3)


@repeated
@given(shapes(), st.integers(0, 2**32 - 1))
def test_distance_is_that_to_the_nearest_surface_point(shape, seed):
    kind, size = shape
    box = half_extents(kind, size)
    points = np.random.default_rng(seed).uniform(-2, 2, (200, 3)) * box
    brute = cKDTree(dense_surface(kind, size)).query(points)[0]
    exact = np.abs(signed_distance(kind, size, points))
    # No point of the surface is nearer than the nearest, and one of a fine grid is about as near.
    assert np.all(brute > exact - 1e-9)
    assert np.all(brute < exact + 0.015 * box.max())
    on_surface = signed_distance(kind, size, dense_surface(kind, size, 20))
    np.testing.assert_allclose(on_surface, 0, atol=1e-9)


@repeated
@given(shapes(), st.integers(0, 2**32 - 1))
def test_sign_tells_inside(shape, seed):
    kind, size = shape
    points = np.random.default_rng(seed).uniform(-1.3, 1.3, (200, 3)) * half_extents(kind, size)
    rho = np.linalg.norm(points[:, :2], axis=1)
    z = np.abs(points[:, 2])
    inside = {
        Kind.SPHERE: np.hypot(rho, z) < size[0],
        Kind.CAPSULE: np.hypot(rho, np.maximum(z - size[1], 0)) < size[0],
        Kind.CYLINDER: (rho < size[0]) & (z < size[1]),
        Kind.BOX: np.all(np.abs(points) < size, axis=1) if kind == Kind.BOX else None,
    }[kind]
    np.testing.assert_array_equal(signed_distance(kind, size, points) < 0, inside)


@repeated
@given(shapes(), st.integers(0, 2**32 - 1))
def test_distance_outside_is_mujocos(shape, seed):
    """mj_geomDistance of a very small sphere: another implementation altogether."""
    kind, size = shape
    name = kind.name.lower()
    numbers = " ".join(f"{v:.17g}" for v in size[: USED[kind]])
    m = mujoco.MjModel.from_xml_string(
        f'<mujoco><worldbody><geom type="{name}" size="{numbers}"/>'
        '<body mocap="true"><geom type="sphere" size="1e-6"/></body></worldbody></mujoco>'
    )
    d = mujoco.MjData(m)
    for point in np.random.default_rng(seed).uniform(-2, 2, (20, 3)) * half_extents(kind, size):
        expected = float(signed_distance(kind, size, point))
        if expected < 1e-3:
            continue
        d.mocap_pos[0] = point
        mujoco.mj_kinematics(m, d)
        assert mujoco.mj_geomDistance(m, d, 0, 1, 1.0, None) + 1e-6 == pytest.approx(expected, abs=2e-6)


@repeated
@given(shapes(), st.integers(0, 2**32 - 1))
def test_normal_is_the_gradient(shape, seed):
    kind, size = shape
    points = np.random.default_rng(seed).uniform(-1.6, 1.6, (60, 3)) * half_extents(kind, size)
    h = 1e-7
    shifted = points[:, None] + h * np.concatenate([np.eye(3), -np.eye(3)])
    d = signed_distance(kind, size, shifted)
    gradient = (d[:, :3] - d[:, 3:]) / (2 * h)
    normal = outward_normal(kind, size, points)
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1)
    # Where the gradient jumps (medial axis) the difference quotient is shorter than 1: a set of measure 0.
    smooth = np.linalg.norm(gradient, axis=1) > 1 - 1e-6
    assert smooth.mean() > 0.9
    np.testing.assert_allclose(normal[smooth], gradient[smooth], atol=1e-5)


@repeated
@given(shapes(), st.integers(0, 2**32 - 1))
def test_walking_back_along_the_normal_ends_on_the_surface(shape, seed):
    kind, size = shape
    points = np.random.default_rng(seed).uniform(-1.6, 1.6, (60, 3)) * half_extents(kind, size)
    foot = points - signed_distance(kind, size, points)[:, None] * outward_normal(kind, size, points)
    np.testing.assert_allclose(signed_distance(kind, size, foot), 0, atol=1e-12)


@pytest.mark.parametrize("kind", Kind)
def test_normal_on_the_medial_axis_is_still_a_unit_vector(kind):
    size = sized(kind, 0.02, 0.02, 0.02)
    for point in (np.zeros(3), np.array([0, 0, 0.01]), np.array([0.005, 0.005, 0.0])):
        normal = outward_normal(kind, size, point)
        assert np.linalg.norm(normal) == pytest.approx(1)
        foot = point - signed_distance(kind, size, point) * normal
        assert signed_distance(kind, size, foot) == pytest.approx(0, abs=1e-12)


def test_by_hand():
    np.testing.assert_allclose(
        signed_distance(Kind.SPHERE, np.array([1.0, 0, 0]), [[0, 0, 0], [0, 3, 4]]), [-1, 4]
    )
    np.testing.assert_allclose(
        signed_distance(Kind.CAPSULE, np.array([1.0, 2, 0]), [[0, 0, 0], [0, 0, 5], [3, 0, 2], [0.5, 0, 1]]),
        [-1, 2, 2, -0.5],
    )
    np.testing.assert_allclose(
        signed_distance(
            Kind.CYLINDER, np.array([1.0, 2, 0]), [[0, 0, 0], [0, 0, 5], [4, 0, 6], [0.5, 0, 1.9]]
        ),
        [-1, 3, 5, -0.1],
    )
    np.testing.assert_allclose(
        signed_distance(Kind.BOX, np.array([1.0, 2, 3]), [[0, 0, 0], [4, 6, 0], [2, 4, 5], [0, 1.5, 0]]),
        [-1, 5, 3, -0.5],
    )
    with pytest.raises(ValueError, match="CYLINDER"):
        core_and_radius(Kind.CYLINDER, np.ones(3))


@repeated
@given(st.lists(shapes(), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_all_shapes_at_once_are_each_alone(many, seed):
    rng = np.random.default_rng(seed)
    primitives = [
        Primitive(kind, size, rng.normal(size=3), rotation_from_quaternion(rng.normal(size=4)))
        for kind, size in many
    ]
    arrays = Shapes.of(primitives)
    points = rng.uniform(-0.2, 0.2, (7, len(many), 3))
    before = points.copy()
    together = arrays.signed_distance(points)
    np.testing.assert_array_equal(points, before)
    for g, (kind, size) in enumerate(many):
        np.testing.assert_allclose(together[:, g], signed_distance(kind, size, points[:, g]), atol=1e-15)
        np.testing.assert_array_equal(arrays.p_BG[g], primitives[g].p_BG)
        np.testing.assert_array_equal(arrays.R_BG[g], primitives[g].R_BG)


def test_surface_area_by_hand():
    pi = np.pi
    assert surface_area(Kind.SPHERE, np.array([2.0, 0, 0])) == pytest.approx(16 * pi)
    assert surface_area(Kind.CAPSULE, np.array([1.0, 3, 0])) == pytest.approx(4 * pi + 12 * pi)
    assert surface_area(Kind.CYLINDER, np.array([1.0, 3, 0])) == pytest.approx(2 * pi + 12 * pi)
    assert surface_area(Kind.BOX, np.array([1.0, 2, 3])) == pytest.approx(88)


@repeated
@given(shapes(), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_samples_lie_on_the_surface(shape, count, seed):
    kind, size = shape
    points = sample_surface(kind, size, count, np.random.default_rng(seed))
    assert points.shape == (count, 3)
    np.testing.assert_allclose(signed_distance(kind, size, points), 0, atol=1e-12)
    again = sample_surface(kind, size, count, np.random.default_rng(seed))
    np.testing.assert_array_equal(points, again)


PIECES = {
    # Shares of the area, and which piece a point belongs to.
    Kind.SPHERE: (lambda s: np.full(8, 1.0), lambda p, s: (p > 0) @ [1, 2, 4]),
    Kind.CAPSULE: (
        lambda s: np.array([s[0], s[0], s[1], s[1]]),
        lambda p, s: 2 * (np.abs(p[:, 2]) < s[1]) + (p[:, 2] > 0),
    ),
    Kind.CYLINDER: (
        # Inner and outer half (by area) of the two ends, lower and upper half of the side.
        lambda s: np.array([s[0] / 4, s[0] / 4, s[0] / 4, s[0] / 4, s[1], s[1]]),
        lambda p, s: np.where(
            np.abs(p[:, 2]) > s[1] - 1e-9,
            2 * (np.linalg.norm(p[:, :2], axis=1) > s[0] / np.sqrt(2)) + (p[:, 2] > 0),
            4 + (p[:, 2] > 0),
        ),
    ),
    Kind.BOX: (
        lambda s: np.repeat([s[1] * s[2], s[0] * s[2], s[0] * s[1]], 2),
        lambda p, s: np.argmax(np.concatenate([-p / s, p / s], axis=1)[:, [0, 3, 1, 4, 2, 5]], axis=1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("size", [(0.01, 0.01, 0.01), (0.004, 0.03, 0.015), (0.03, 0.004, 0.05)])
def test_samples_are_uniform_by_area(kind, size):
    size = sized(kind, *size)
    area, piece = PIECES[kind]
    points = sample_surface(kind, size, 20_000, np.random.default_rng(0))
    counts = np.bincount(piece(points, size), minlength=len(area(size)))
    expected = area(size) / np.sum(area(size)) * len(points)
    # Edges attract a little from the shell's outer half: 2 % of the thinnest extent.
    np.testing.assert_allclose(counts, expected, rtol=0.06, atol=40)
    if kind in (Kind.SPHERE, Kind.CAPSULE):
        assert chisquare(counts, expected).pvalue > 1e-4
