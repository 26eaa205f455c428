"""Plane and space curves sampled as points, in millimetres: what the built-in objects are drawn with."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import CubicSpline

Points = NDArray[np.float64]

STEP_MM = 4.0
"""Longest edge, in mm, that curves and surfaces are sampled with unless told otherwise."""

_CHORD_ERROR_MM = 0.05
"""Largest distance between a fillet and the chords that stand for it."""


def polyline(*corners: Sequence[float], closed: bool = False, step: float = STEP_MM) -> Points:
    """Points along straight lines between corners, rounded where a corner gives a fillet radius.

    Args:
        corners: (x, y) or (x, y, fillet radius) each.
        closed: join the last corner to the first; the first point is not repeated.
        step: longest distance between neighbouring points.

    Returns:
        (n, 2) points.
    """
    count = len(corners)
    p = np.array([corner[:2] for corner in corners], dtype=float)
    rounded: list[Points] = []
    for i, corner in enumerate(corners):
        radius = corner[2] if len(corner) == 3 else 0.0
        is_end = not closed and i in (0, count - 1)
        if radius <= 0.0 or is_end:
            rounded.append(p[i : i + 1])
        else:
            rounded.append(_fillet(p[i - 1], p[i], p[(i + 1) % count], radius))
    return _divide(np.concatenate(rounded), closed=closed, step=step)


def spline(
    points: ArrayLike, *, tangents: tuple[ArrayLike, ArrayLike] | None = None, step: float = STEP_MM
) -> Points:
    """Points at equal arc length on the cubic spline through the given points.

    Args:
        points: (k, d) points to pass through, parametrised by chord length.
        tangents: unit tangents at both ends, (d,) each; None lets the ends run free (not-a-knot).
        step: longest distance between neighbouring results.

    Returns:
        (n, d) points, both ends included.
    """
    p = np.asarray(points, dtype=float)
    chord = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(p, axis=0), axis=1))])
    ends: Any = "not-a-knot"
    if tangents is not None:
        ends = tuple((1, np.asarray(t, dtype=float)) for t in tangents)
    curve = CubicSpline(chord, p, bc_type=ends)
    return resample(curve(np.linspace(0.0, chord[-1], 40 * len(p))), step=step)


def resample(points: Points, *, closed: bool = False, step: float = STEP_MM) -> Points:
    """Points at equal arc length on a polyline of (n, d) points; a closed one does not repeat its start."""
    p = np.concatenate([points, points[:1]]) if closed else points
    length = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(p, axis=0), axis=1))])
    count = max(3, math.ceil(length[-1] / step))
    at = np.linspace(0.0, length[-1], count + 1)[: count if closed else None]
    return np.stack([np.interp(at, length, column) for column in p.T], axis=1)


def circle(radius: float = 1.0, count: int = 32) -> Points:
    """Points of a circle about the origin, (count, 2), counter-clockwise."""
    angle = np.arange(count) * (2.0 * np.pi / count)
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def ribbed_circle(radius: float, *, ribs: int, height: float = 0.03, per_rib: int = 6) -> Points:
    """Points of a circle whose radius waves by a relative height, (ribs * per_rib, 2), counter-clockwise."""
    wave = 1.0 + height * np.cos(np.arange(ribs * per_rib) * (2.0 * np.pi / per_rib))
    return circle(radius, ribs * per_rib) * wave[:, None]


def superellipse(width: float, depth: float, power: float = 2.0, count: int = 48) -> Points:
    """Points of |2x/width|^power + |2y/depth|^power = 1, (count, 2): 2 is an ellipse, 4 nearly a box."""
    c = circle(1.0, count)
    c /= np.sum(np.abs(c) ** power, axis=1, keepdims=True) ** (1.0 / power)
    return c * (width / 2.0, depth / 2.0)


def _fillet(before: Points, corner: Points, after: Points, radius: float) -> Points:
    """Arc of a radius that touches both legs of a corner, (n, 2); a straight corner stays one point."""
    u = (before - corner) / np.linalg.norm(before - corner)
    v = (after - corner) / np.linalg.norm(after - corner)
    opening = math.acos(np.clip(u @ v, -1.0, 1.0))
    turn = math.pi - opening
    if turn < 1e-6:
        return corner[None]
    bisector = (u + v) / np.linalg.norm(u + v)
    centre = corner + bisector * radius / math.sin(opening / 2.0)
    start = corner + u * radius / math.tan(opening / 2.0) - centre
    end = corner + v * radius / math.tan(opening / 2.0) - centre
    per_chord = 2.0 * math.acos(max(0.0, 1.0 - _CHORD_ERROR_MM / radius))
    count = max(2, math.ceil(turn / per_chord))
    t = np.linspace(0.0, 1.0, count + 1)[:, None]
    return centre + (np.sin((1.0 - t) * turn) * start + np.sin(t * turn) * end) / math.sin(turn)


def _divide(points: Points, *, closed: bool, step: float) -> Points:
    """The same polyline with every segment longer than a step cut into equal parts."""
    following = np.roll(points, -1, axis=0)
    pieces = []
    for i, (a, b) in enumerate(zip(points, following, strict=True)):
        if i == len(points) - 1 and not closed:
            pieces.append(a[None])
            break
        parts = max(1, math.ceil(float(np.linalg.norm(b - a)) / step - 1e-9))
        pieces.append(a + (b - a) * (np.arange(parts) / parts)[:, None])
    return np.concatenate(pieces)
