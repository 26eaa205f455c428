"""Farthest-point sampling against the definition, written out."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fistful.geometry.sampling import farthest_points

repeated = settings(max_examples=50, deadline=None, derandomize=True)


def naive(points: np.ndarray, count: int, first: int) -> list[int]:
    chosen = [first]
    while len(chosen) < min(count, len(points)):
        rest = [i for i in range(len(points)) if i not in chosen]
        nearest = [min(np.sum((points[i] - points[c]) ** 2) for c in chosen) for i in rest]
        chosen.append(rest[int(np.argmax(nearest))])
    return chosen


@repeated
@given(st.integers(0, 2**32 - 1), st.integers(1, 25), st.integers(1, 30))
def test_is_the_definition(seed, size, count):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(size, 3))
    first = int(rng.integers(size))
    assert farthest_points(points, count, first=first).tolist() == naive(points, count, first)


@repeated
@given(st.integers(0, 2**32 - 1), st.integers(2, 30))
def test_prefixes_are_samples_too(seed, size):
    points = np.random.default_rng(seed).normal(size=(size, 3))
    whole = farthest_points(points, size)
    for count in range(1, size):
        np.testing.assert_array_equal(farthest_points(points, count), whole[:count])


@repeated
@given(st.integers(0, 2**32 - 1))
def test_coincident_points_are_each_returned_once(seed):
    points = np.random.default_rng(seed).integers(0, 2, (20, 3)).astype(float)
    assert sorted(farthest_points(points, 50)) == list(range(20))


def test_edges():
    assert len(farthest_points(np.zeros((0, 3)), 5)) == 0
    assert len(farthest_points(np.zeros((3, 3)), 0)) == 0
    # On a line the ends come first, then the middle.
    line = np.linspace(0, 1, 5)[:, None] * np.array([1.0, 0, 0])
    assert farthest_points(line, 3).tolist() == [0, 4, 2]
