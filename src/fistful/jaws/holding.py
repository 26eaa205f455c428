"""How many times its weight an object could have before two pressing jaws lose it.

The analytic models differ in one thing only: the friction wrenches that a jaw can give while it presses. Each
of these sets is convex and symmetric, and known by its support: the wrench of most work on a twist.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from fistful.jaws.grasp import Resting

GRAVITY = 9.80665
"""m/s2."""
LENGTH = 0.01
"""m. Divides torques, so that all six rows of a wrench are forces (IPC-GraspSim's baselines use 1 cm)."""
_MAX_ROUNDS = 300
# Of the closing force: load factors and improvements below this are 0 (the linear programme is no finer).
_RESOLUTION = 1e-7


class Jaw(NamedTuple):
    """What one jaw can do at the full closing force; wrenches are (force, torque about c / LENGTH), N."""

    normal: np.ndarray  # (6,) float64, N. Wrench of its normal forces
    friction: Callable[[np.ndarray], np.ndarray]  # twist (6,) -> the friction wrench (6,) of most work on it


class Load(NamedTuple):
    """Bounds of the largest load factor, both certain."""

    lower: float
    upper: float


def weight(resting: Resting) -> np.ndarray:
    """(6,) float64, N. The wrench of gravity about the centre of mass."""
    return np.array([0.0, 0.0, -resting.mass * GRAVITY, 0.0, 0.0, 0.0])


def wrench(x_W: np.ndarray, force: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """(..., 6) float64. Wrenches of forces (..., 3) at points (..., 3): (f, (x - c) x f / LENGTH)."""
    return np.concatenate([force, np.cross(x_W - centre, force) / LENGTH], axis=-1)


def load_factor(
    jaws: Sequence[Jaw], load: np.ndarray, *, enough: float = np.inf, tolerance: float = 1e-3
) -> Load:
    """The largest lambda for which the jaws hold lambda times the load; 0 if they hold nothing.

        maximise lambda  subject to  sum_j s_j (W_j + w_j) = -lambda load,  w_j in K_j,  0 <= s_j <= 1

    with W_j the normal wrench and K_j the friction wrenches of jaw j. Solved by column generation:

    1. Each jaw is replaced by the convex hull of 0 and some points W_j + w of its own: a linear programme,
       whose optimum is a lower bound.
    2. Its dual is a twist xi with -load . xi >= 1, and for any such twist the largest lambda is at most
       sum_j max(0, W_j . xi + max over K_j of w . xi) / (-load . xi): an upper bound.
    3. The points that reach these maxima are added, until the bounds meet.

    Args:
      jaws: Jaws.
      load: (6,) float, N. The wrench that has to be held, not 0.
      enough: Stop as soon as the bounds tell whether lambda is at least this.
      tolerance: Relative distance of the bounds at which it is solved.
    """
    from scipy.optimize import linprog

    size = float(np.linalg.norm(load))
    force = max(float(np.linalg.norm(jaw.normal[:3])) for jaw in jaws)
    unit, enough = load / size, enough * size / force
    scaled = [(jaw.normal / force, jaw.friction) for jaw in jaws]
    first = np.concatenate([np.eye(6), -np.eye(6)])
    columns = [[normal, *(normal + slip(xi) / force for xi in first)] for normal, slip in scaled]
    lower, upper = 0.0, np.inf
    for _ in range(_MAX_ROUNDS):
        owner = np.concatenate([np.full(len(c), j) for j, c in enumerate(columns)])
        A_eq = np.column_stack([*(g for c in columns for g in c), unit])
        A_ub = np.column_stack([owner == np.arange(len(jaws))[:, None], np.zeros(len(jaws))]).astype(float)
        cost = np.zeros(A_eq.shape[1])
        cost[-1] = -1.0
        answer = linprog(cost, A_ub, np.ones(len(jaws)), A_eq, np.zeros(6), method="highs")
        if answer.x is None:  # Numerically hard: what was certain before stays certain.
            break
        lower = max(lower, float(answer.x[-1]))
        xi = answer.eqlin.marginals
        best = [normal + slip(xi) / force for normal, slip in scaled]
        works = np.array([g @ xi for g in best])
        against = float(-unit @ xi)
        if against > 0:
            upper = min(upper, float(np.maximum(works, 0.0).sum()) / against)
        gap = works - np.maximum(-answer.ineqlin.marginals, 0.0)
        solved = upper - lower <= max(tolerance * upper, _RESOLUTION)
        decided = lower >= enough or upper < enough < np.inf
        if solved or decided or gap.max() < _RESOLUTION:
            break
        for column, g, more in zip(columns, best, gap, strict=True):
            if more >= _RESOLUTION:
                column.append(g)
    return Load(lower * force / size, upper * force / size)
