"""Fitted primitives: exact shapes are found again, compound bodies are cut, flat ones are refused."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from fistful.geometry.fitting import MAX_PARTS, TOLERANCE, _halves, fit_primitive, fit_primitives
from fistful.geometry.primitives import Kind, sample_surface, signed_distance

BOX_CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], dtype=float)


def posed(points: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return points @ Rotation.random(rng=rng).as_matrix().T + rng.uniform(-0.1, 0.1, 3)


def surface(kind: Kind, size: tuple[float, ...]) -> np.ndarray:
    """Many surface points; the corners of a box, which a sample would miss."""
    if kind == Kind.BOX:
        return BOX_CORNERS * size
    padded = np.concatenate([size, np.zeros(3 - len(size))])
    points = sample_surface(kind, padded, 3000, np.random.default_rng(1))
    if kind == Kind.CYLINDER:
        angle = np.linspace(0, 2 * np.pi, 100)
        rim = size[0] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        ends = [np.column_stack([rim, np.full(100, z)]) for z in (-size[1], size[1])]
        points = np.concatenate([points, *ends])
    return points


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (Kind.SPHERE, (0.012,)),
        (Kind.CAPSULE, (0.008, 0.02)),
        (Kind.CAPSULE, (0.01, 0.006)),
        (Kind.CYLINDER, (0.012, 0.03)),
        (Kind.CYLINDER, (0.03, 0.008)),
        (Kind.BOX, (0.008, 0.012, 0.025)),
        (Kind.BOX, (0.03, 0.03, 0.006)),
        (Kind.BOX, (0.02, 0.02, 0.02)),
        (Kind.CYLINDER, (0.02, 0.02)),
    ],
)
def test_exact_primitives_are_found_again(kind, size, seed):
    (fit,) = fit_primitives(posed(surface(kind, size), seed))
    assert fit.primitive.kind == kind
    # Facets of the sampled hull lie inside a round shape; a box is exact.
    tolerance = 1e-5 if kind == Kind.BOX else 3e-4
    assert fit.rms < tolerance
    found = fit.primitive.size
    if kind == Kind.BOX:
        found, size = np.sort(found), np.sort(size)
    np.testing.assert_allclose(found[: len(size)], size, atol=2 * tolerance)


@pytest.mark.parametrize("kind", Kind)
def test_the_fit_is_where_the_points_are(kind):
    size = {Kind.SPHERE: (0.02,), Kind.BOX: (0.01, 0.02, 0.03)}.get(kind, (0.01, 0.02))
    points = posed(surface(kind, size), 9)
    shape = fit_primitive(points).primitive
    local = (points - shape.p_BG) @ shape.R_BG
    assert np.abs(signed_distance(shape.kind, shape.size, local)).max() < 5e-4
    np.testing.assert_allclose(shape.R_BG @ shape.R_BG.T, np.eye(3), atol=1e-9)
    assert np.linalg.det(shape.R_BG) == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
def test_rms_and_max_are_those_of_the_hull(seed):
    points = np.random.default_rng(seed).uniform(-0.02, 0.02, (12, 3)) * [1, 1, 2]
    fit = fit_primitive(points)
    hull = ConvexHull(points)
    corners = points[hull.simplices]
    # Weight each triangle by its area, as a uniform sample does.
    weights = np.random.default_rng(0).dirichlet(np.ones(3), 400)
    samples = np.einsum("kc,fci->fki", weights, corners)
    distance = signed_distance(
        fit.primitive.kind, fit.primitive.size, (samples - fit.primitive.p_BG) @ fit.primitive.R_BG
    )
    edges = corners[:, 1:] - corners[:, :1]
    area = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1)
    rms = np.sqrt(np.sum(area * np.mean(distance**2, axis=1)) / np.sum(area))
    assert fit.rms == pytest.approx(rms, rel=0.2)
    assert fit.rms <= fit.max


def test_a_compound_body_is_cut():
    """A broad box with a slender one on top: no single primitive follows their hull."""
    broad = BOX_CORNERS * [0.03, 0.03, 0.01]
    slender = BOX_CORNERS * [0.004, 0.004, 0.03] + [0, 0, 0.05]
    points = posed(np.concatenate([broad, slender]), 3)
    alone = fit_primitive(points)
    parts = fit_primitives(points)
    assert alone.rms > TOLERANCE
    assert 2 <= len(parts) <= MAX_PARTS
    assert max(part.rms for part in parts) < 0.9 * alone.rms


@pytest.mark.parametrize("seed", range(5))
def test_the_halves_are_the_whole_hull(seed):
    """Cutting loses no volume: the section holds every corner of the cut."""
    points = np.random.default_rng(seed).normal(size=(60, 3)) * [1, 1, 2]
    low, high = _halves(points)
    volume = ConvexHull(low).volume + ConvexHull(high).volume
    assert volume == pytest.approx(ConvexHull(points).volume, rel=1e-9)


def test_the_same_points_give_the_same_fit():
    points = posed(surface(Kind.CAPSULE, (0.01, 0.02)), 5)
    first, second = fit_primitive(points), fit_primitive(points)
    np.testing.assert_array_equal(first.primitive.p_BG, second.primitive.p_BG)
    np.testing.assert_array_equal(first.primitive.R_BG, second.primitive.R_BG)
    assert first.rms == second.rms


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((0, 3)),
        np.zeros((1, 3)),
        np.eye(3),
        np.zeros((20, 3)),
        np.linspace(0, 1, 20)[:, None] * np.ones(3),
        np.random.default_rng(0).normal(size=(20, 3)) * [1, 1, 0],
        np.full((20, 3), np.nan),
    ],
    ids=["none", "point", "triangle", "coincident", "line", "plane", "nan"],
)  # fmt: skip
def test_points_without_volume_are_refused(points):
    with pytest.raises(ValueError, match="no volume"):
        fit_primitives(points)
