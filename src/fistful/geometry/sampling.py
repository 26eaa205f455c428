"""Points spread over surfaces."""

import numpy as np


def farthest_points(points: np.ndarray, count: int, *, first: int = 0) -> np.ndarray:
    """Indices of `count` points, each the farthest from those before it (FPS).

    Args:
      points: (N, 3) float. Candidates.
      count: Number of indices wanted; at most N are returned.
      first: Index to start from. The result depends on nothing else.

    Returns:
      (min(count, N),) int. Distinct indices, in order of selection, so every prefix is itself well spread.
    """
    count = min(count, len(points))
    chosen = np.empty(count, dtype=np.int64)
    # Separate contiguous columns: ten times faster than rows of three.
    x, y, z = np.ascontiguousarray(np.asarray(points, dtype=float).T)
    squared = np.full(len(points), np.inf)
    index = first
    for k in range(count):
        chosen[k] = index
        d = (x - x[index]) ** 2
        d += (y - y[index]) ** 2
        d += (z - z[index]) ** 2
        np.minimum(squared, d, out=squared)
        # -1 marks a chosen point, so that coincident points are still returned only once each.
        squared[index] = -1.0
        index = int(np.argmax(squared))
    return chosen
