"""Can two surfaces of a hand hold a ball between them? Found by optimisation, from many starts at once.

With ball radius r and centre c, contact points a, b of the two surfaces and their outward normals n_a, n_b,
all functions of the joints q, a grasp of the ball is a root of

    a + r n_a = c,    b + r n_b = c        (touching, tangent; an offset along the surface counts less),
    n_a + n_b = 0                          (opposed; weighted low, friction does the rest),
    max(r - d_g(c), 0) = 0 for every shape g (no shape enters the ball).

It is solved by Levenberg-Marquardt in (q, c) with the contact points fixed, which are then chosen anew
among the candidates near the ball, and so on; a ball that some shape still enters is first pushed out of it,
so that other candidates are near. The verdict is closed form for the ball, and MuJoCo's for self-collision.
"""

from typing import NamedTuple

import mujoco
import numpy as np

from fistful.hands.kinematics import BodyPoses
from fistful.hands.model import Model, freeze
from fistful.hands.skin import Skin, geom_distances

ROUNDS, STEPS = 6, 8
SLIDING = 0.3
"""Weight of the ball's offset along a surface against that from it: it may touch between two candidates."""
TOUCH_TOLERANCE = 1e-3
"""m. How near a surface must come to the ball to touch it."""
OVERLAP_TOLERANCE = 5e-4
"""m. How deep shapes may overlap, with the ball or with each other."""
MAX_TILT_DEG = 40.0
"""Largest angle between the line through the contacts and their normals: friction 0.84 holds it."""
GOOD_TILT_DEG = 15.0
"""A smaller angle is not worth looking for."""
OFF_PATCH = 8e-3
"""m. How far from the nearest candidate a contact may be: candidates are about this far apart."""


class BallGrasp(NamedTuple):
    """A ball held between two surfaces: joints q (K,), centre c_H (3,), radius, and what was measured.

    `gap` is the larger distance of the two surfaces to the ball, `overlap` the deepest penetration of
    anything, `tilt_deg` the angle between the contact line and the contact normals.
    """

    q: np.ndarray
    c_H: np.ndarray
    radius: float
    gap: float
    overlap: float
    tilt_deg: float


def grasp_ball(
    model: Model, first: Skin, second: Skin, mask: np.ndarray, starts: np.ndarray, radius: float
) -> BallGrasp | None:
    """A grasp of a ball of `radius` between two surfaces, or None if no start leads to one.

    Args:
      model: Hand.
      first, second: Contact candidates of the two surfaces.
      mask: (K,) bool. Joints that may move; the others stay at the open pose.
      starts: (S, K) float. Joint vectors to start from.
      radius: m.

    Returns:
      The grasp with the smallest tilt among those within all tolerances, or the first with a tilt that is
      as good as one needs.
    """
    if not len(starts):
        return None
    moving = _Moving.of(model, mask, first, second)
    x, c, best = np.array(starts)[:, mask], None, None
    for _ in range(ROUNDS):
        i, j, middle = _choose_contacts(moving, x, c, radius)
        x, c = _solve(moving, i, j, x, middle if c is None else c, radius)
        q = np.repeat(model.open_pose[None], len(x), axis=0)
        q[:, mask] = x
        overlap, pushed = _push_out(moving.model, moving.model.poses(x), c, radius)
        clear = np.flatnonzero(overlap < OVERLAP_TOLERANCE)
        grasps = [best, *(_judge(model, first, second, q[k], c[k], radius) for k in clear)]
        best = min((g for g in grasps if g is not None), key=lambda g: g.tilt_deg, default=None)
        if best is not None and best.tilt_deg < GOOD_TILT_DEG:
            break
        c = pushed
    return best


def self_overlap(model: Model, q: np.ndarray) -> np.ndarray:
    """Deepest self-penetration of the hand at joint vectors (N, K), by MuJoCo's collision detection: (N,) m.

    0 where it does not touch itself.
    """
    m, deepest = model.compiled, np.zeros(len(q))
    d = mujoco.MjData(m)
    for i, joints in enumerate(model.expand(q)):
        d.qpos[:] = joints
        mujoco.mj_kinematics(m, d)
        mujoco.mj_collision(m, d)
        if d.ncon:
            deepest[i] = max(-float(d.contact.dist.min()), 0.0)
    return deepest


class _Moving(NamedTuple):
    """The hand with only the joints of a space left: all else is part of the base, at the open pose."""

    model: Model
    first: Skin
    second: Skin

    @classmethod
    def of(cls, model: Model, mask: np.ndarray, first: Skin, second: Skin) -> "_Moving":
        frozen, index = freeze(model, mask)
        poses = model.poses(model.open_pose)
        skins = []
        for skin in (first, second):
            fixed = (index[skin.body] == 0)[:, None]
            p = np.where(fixed, poses.points(skin.body, skin.p_B), skin.p_B)
            n = np.where(fixed, poses.directions(skin.body, skin.n_B), skin.n_B)
            skins.append(Skin(index[skin.body], p, n, skin.geom))
        return cls(frozen, *skins)


def _choose_contacts(
    moving: _Moving, x: np.ndarray, c: np.ndarray | None, radius: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each start the pair of candidates that fits best, (S,), (S,), and the centre between (S, 3).

    The cost of a pair is the squared distance of its touch points from each other (or from the centre, where
    there is one) plus r^2 |n_a + n_b|^2: without the second term the ball ends up wedged at a knuckle.
    """
    poses = moving.model.poses(x)
    touch, normal = [], []
    for skin in (moving.first, moving.second):
        n = poses.directions(skin.body, skin.n_B)
        normal.append(n)
        touch.append(poses.points(skin.body, skin.p_B) + radius * n)
    a, b = touch
    # |n_a + n_b|^2 = 2 + 2 n_a . n_b for unit normals.
    cost = 2 * radius**2 * (1 + normal[0] @ np.swapaxes(normal[1], 1, 2))
    if c is None:
        cost += np.sum((a[:, :, None] - b[:, None]) ** 2, axis=-1)
    else:
        cost += (
            np.sum((a - c[:, None]) ** 2, axis=-1)[:, :, None]
            + np.sum((b - c[:, None]) ** 2, axis=-1)[:, None]
        )
    i, j = np.unravel_index(np.argmin(cost.reshape(len(x), -1), axis=1), cost.shape[1:])
    rows = np.arange(len(x))
    return i, j, (a[rows, i] + b[rows, j]) / 2


def _residual(model: Model, a: Skin, b: Skin, x: np.ndarray, radius: float) -> np.ndarray:
    """The equations of this file's head at x = (q, c), (S, V, K + 3), one contact pair a start.

    Returns:
      (S, V, 9 + G) float, m.
    """
    q, c = x[..., :-3], x[..., -3:]
    poses = model.poses(q)
    rows = np.arange(len(x))
    touch, normal = [], []
    for skin in (a, b):
        R, p = poses.R_HB[rows, :, skin.body], poses.p_HB[rows, :, skin.body]
        n = np.einsum("svij,sj->svi", R, skin.n_B)
        off = p + np.einsum("svij,sj->svi", R, skin.p_B) + radius * n - c
        along = np.sum(off * n, axis=-1, keepdims=True) * n
        touch.append(along + SLIDING * (off - along))
        normal.append(n)
    opposed = 0.5 * radius * (normal[0] + normal[1])
    inside = np.maximum(radius - geom_distances(model, poses, c[..., None, :])[..., 0, :], 0.0)
    return np.concatenate([*touch, opposed, inside], axis=-1)


def _solve(
    moving: _Moving, i: np.ndarray, j: np.ndarray, q: np.ndarray, c: np.ndarray, radius: float
) -> tuple[np.ndarray, np.ndarray]:
    """STEPS Levenberg-Marquardt steps in joints (S, K) and centre (S, 3), for all starts at once.

    The Jacobian is by forward differences, and a proposal is evaluated together with its variations: one
    kinematics call a step. Radians and metres differ by about the length of a finger; `scale` evens it out.
    """
    model, a, b = moving.model, moving.first.take(i), moving.second.take(j)
    scale = np.concatenate([np.ones(q.shape[1]), np.full(3, 0.1)])
    step = 1e-6 * scale
    variations = np.concatenate([np.zeros((1, len(scale))), np.diag(step)])
    lower = np.concatenate([model.lower, np.full(3, -np.inf)])
    upper = np.concatenate([model.upper, np.full(3, np.inf)])

    def evaluate(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r = _residual(model, a, b, x[:, None] + variations, radius)
        return r[:, 0], np.swapaxes((r[:, 1:] - r[:, :1]) / 1e-6, 1, 2)

    x = np.concatenate([q, c], axis=1)
    r, J = evaluate(x)
    damping = np.full(len(x), 1e-3)
    for _ in range(STEPS):
        normal = np.swapaxes(J, 1, 2) @ J
        trace = np.trace(normal, axis1=1, axis2=2) / len(scale)
        normal = normal + (damping * trace)[:, None, None] * np.eye(len(scale))
        gradient = np.einsum("smv,sm->sv", J, r)
        proposal = np.clip(x - scale * np.linalg.solve(normal, gradient[..., None])[..., 0], lower, upper)
        r_new, J_new = evaluate(proposal)
        better = np.sum(r_new**2, axis=1) < np.sum(r**2, axis=1)
        x = np.where(better[:, None], proposal, x)
        r, J = np.where(better[:, None], r_new, r), np.where(better[:, None, None], J_new, J)
        damping = np.where(better, 0.3 * damping, 4.0 * damping)
    return x[:, :-3], x[:, -3:]


def _push_out(model: Model, poses: BodyPoses, c: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """How deep the ball at each centre (S, 3) is entered, (S,) m, and the centres moved out of it."""
    d, gradient = _distance_and_gradient(model, poses, c)
    rows, deepest = np.arange(len(c)), np.argmin(d, axis=1)
    overlap = np.maximum(radius - d[rows, deepest], 0.0)
    # Half the spacing of candidates farther, or the same ones would be nearest again.
    way = np.where(overlap > OVERLAP_TOLERANCE, overlap + OFF_PATCH / 2, 0.0)
    return overlap, c + way[:, None] * gradient[rows, :, deepest]


def _distance_and_gradient(model: Model, poses: BodyPoses, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances (S, G), m, of a point (S, 3) to all shapes, and central differences (S, 3, G) of them."""
    h = 1e-6
    varied = c[:, None] + h * np.concatenate([np.zeros((1, 3)), np.eye(3), -np.eye(3)])
    d = geom_distances(model, poses, varied)
    return d[:, 0], (d[:, 1:4] - d[:, 4:]) / (2 * h)


def _judge(
    model: Model, first: Skin, second: Skin, q: np.ndarray, c: np.ndarray, radius: float
) -> BallGrasp | None:
    """The grasp if it is one: both surfaces touch on their patches, opposed, and nothing overlaps."""
    poses = model.poses(q)
    distances = geom_distances(model, poses, c[None])[0] - radius
    overlap = float(max(-distances.min(), 0.0))
    if overlap > OVERLAP_TOLERANCE:
        return None
    gaps, directions = [], []
    for skin in (first, second):
        points = poses.points(skin.body, skin.p_B)
        # Where a shape of the surface's bodies is nearest to the ball, by its own distance function.
        owners = [g for g in np.argsort(distances) if model.geoms[g].body in skin.body]
        gaps.append(abs(distances[owners[0]]))
        direction = _towards(model, poses, c, int(owners[0]))
        contact = c + (radius + distances[owners[0]]) * direction
        if np.min(np.linalg.norm(points - contact, axis=1)) > OFF_PATCH:
            return None
        directions.append(direction)
    gap = float(max(gaps))
    tilt = float(np.rad2deg(np.arccos(np.clip(-directions[0] @ directions[1], -1, 1))) / 2)
    if gap > TOUCH_TOLERANCE or tilt > MAX_TILT_DEG:
        return None
    overlap = max(overlap, float(self_overlap(model, q[None])[0]))
    return None if overlap > OVERLAP_TOLERANCE else BallGrasp(q, c, radius, gap, overlap, tilt)


def _towards(model: Model, poses: BodyPoses, c: np.ndarray, geom: int) -> np.ndarray:
    """Unit vector from c to the nearest point of a shape: minus the gradient of its distance."""
    gradient = _distance_and_gradient(model, BodyPoses(poses.p_HB[None], poses.R_HB[None]), c[None])[1]
    return -gradient[0, :, geom] / np.linalg.norm(gradient[0, :, geom])
