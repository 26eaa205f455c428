"""Will a grasp hold in physics? Seven numbers of its geometry, and weights that were learnt from verdicts.

    chance = 1 / (1 + exp(-(offset + weights . features)))

No feature knows which object or hand it is about: all are ratios of lengths, angles or torques. Weights are
the same for all protocols, because they rank grasps as well as weights of their own would; how harsh a
protocol is, is its offset. docs/prediction.md has the evidence. Fitted by

    python benchmarks/prediction.py collect --objects ... --out VERDICTS
    python benchmarks/prediction.py fit VERDICTS
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from fistful.geometry.pose import apply
from fistful.geometry.sdf import SdfGrid
from fistful.hands.hand import Hand
from fistful.hands.model import lock
from fistful.objects.object import Object
from fistful.physics.protocol import PAPER
from fistful.synthesis.measure import Tolerance
from fistful.synthesis.stage import Grasps, Stage, contact_points
from fistful.synthesis.targets import SLIDE_SCALE, STIFFNESS, contact_jacobian

FEATURES = ("tilt", "gap", "edge", "imbalance", "support", "swing", "self_overlap")
"""Columns of `features`.

tilt: mean angle between the skin of the hand and the surface of the object at the contacts, over 45 deg.
gap: largest distance of a contact from the object, over what is allowed.
edge: how far the object falls away or rises beside its contacts, over the distance from them; 0 on a plane.
imbalance: length of the sum of the unit normals at the contacts, over that of pairs; opposed normals have 0.
support: how broad the skin near the object is spread across the line of contacts, over the object's size.
swing: torque of the weight about the line of contacts, over the torsion that the squeeze lets them resist.
self_overlap: deepest overlap of the hand with itself, over what is allowed.
"""
PATCH = 5e-3
"""m. Radius of a contact: about half the width of a fingertip, and how far friction resists torsion."""
NEAR = 3e-3
"""m. Skin that is nearer to the object than this supports it."""
LEAST_FORCE = 0.5
"""N. What a contact presses with at least, in `swing`."""
GRAVITY = 9.8
"""m/s2."""
_MOST = 2.0
"""Features above this, or unknown, count as this."""
_AROUND, _BLOCK = 8, 64


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Log-odds of holding.

    Attributes:
      weights: Of the features, in the order of FEATURES.
      offset: By name of the protocol. Protocols that are not there count as the first, which is the mildest.
    """

    weights: tuple[float, ...]
    offset: Mapping[str, float] = field(hash=False)

    def chance(self, X: np.ndarray, protocol: str) -> np.ndarray:
        """Chances (N,) of features (N, F)."""
        offset = self.offset.get(protocol, next(iter(self.offset.values())))
        return 1 / (1 + np.exp(-(offset + np.sum(X * self.weights, axis=1))))


FITTED = Prediction(
    weights=(-2.17, -1.35, -4.53, -1.69, 6.49, -1.24, -1.84),
    offset={"paper": 5.93, "strict": 2.76},
)
"""Of 1,680 grasps of 30 objects by the Allegro hand, alone and beside others."""


def chance_to_hold(
    hand: Hand, objects: Sequence[Object], stage: Stage, protocol: str = PAPER.name
) -> np.ndarray:
    """Chance (N,), 0 to 1, that each grasp holds all objects in physics, if the grasp it continues did.

    For ranking under any protocol; as a rate, for those of `FITTED.offset`.

    Args:
      hand: Hand.
      objects: The objects held, in the order of the stages; the last is the stage's own.
      stage: Stage.
      protocol: Name of the protocol.
    """
    return FITTED.chance(features(hand, objects, stage), protocol)


def features(hand: Hand, objects: Sequence[Object], stage: Stage) -> np.ndarray:
    """What of a grasp tells whether it will hold, (N, F) float from 0 to 2; see FEATURES."""
    if stage not in _known:
        _known[stage] = lock(_features(hand, objects, stage))
    return _known[stage]


# Some milliseconds a grasp, and a plan asks for its best grasps again and again.
_known: WeakKeyDictionary[Stage, np.ndarray] = WeakKeyDictionary()


def _features(hand: Hand, objects: Sequence[Object], stage: Stage) -> np.ndarray:
    g, m, item, limit = stage.grasps, stage.measures, objects[-1], Tolerance()
    x_H = contact_points(hand, g.q, g.contact_body, g.contact_p_B)
    x_O = g.p_OH[:, None] + apply(g.R_OH[:, None], x_H)
    n_H = apply(np.swapaxes(g.R_OH, 1, 2)[:, None], g.contact_n_O)
    columns = [
        _tilt(hand, g, n_H) / np.deg2rad(45),
        m.contact_distance_mm.max(axis=1) / limit.contact_mm,
        _edge(item.sdf, x_O, g.contact_n_O),
        np.linalg.norm(np.sum(g.contact_n_O, axis=1), axis=1) * 2 / x_O.shape[1],
        _support(hand, item, g),
        _swing(hand, item, g, x_O, n_H),
        m.self_penetration_mm / limit.penetration_mm,
    ]
    return np.clip(np.nan_to_num(np.stack(columns, axis=1), nan=_MOST, posinf=_MOST), 0.0, _MOST)


def fit(
    X: np.ndarray, y: np.ndarray, groups: np.ndarray, ridge: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regression by Newton's method: weights (F,) for all rows, and offsets (G,) one a group.

    Minimises the negative log-likelihood + ridge / 2 |weights * spread of the features|^2; offsets are free.

    Args:
      X: (N, F) float. Features.
      y: (N,) bool or float. What happened, 1 or 0.
      groups: (N,) int. Which offset each row has, 0 to G - 1.
      ridge: Strength of the penalty, in rows.
    """
    F, spread = X.shape[1], X.std(axis=0) + 1e-9
    A = np.concatenate([X / spread, np.eye(groups.max() + 1)[groups]], axis=1)
    penalty = np.where(np.arange(A.shape[1]) < F, ridge, 1e-6)
    b = np.zeros(A.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(-A @ b))
        hessian = (A.T * (p * (1 - p))) @ A + np.diag(penalty)
        step = np.linalg.solve(hessian, A.T @ (y - p) - penalty * b)
        # Far away, a full step can lead farther.
        b += step / max(1.0, np.abs(step).max() / 4)
        if np.abs(step).max() < 1e-10:
            break
    return b[:F] / spread, b[F:]


def _tilt(hand: Hand, g: Grasps, n_H: np.ndarray) -> np.ndarray:
    """Mean angle (N,), rad, between the skin's outward normals and the object's inward ones at contacts."""
    from scipy.spatial import KDTree

    # One number more, far apart for different bodies: the nearest skin is then that of the contact's body.
    skin, far = hand.skin, 10.0
    tree = KDTree(np.concatenate([skin.p_B, far * skin.body[:, None]], axis=1))
    where = np.concatenate([g.contact_p_B, far * g.contact_body[..., None]], axis=-1)
    _, nearest = tree.query(np.nan_to_num(where))
    R_HB = hand.poses(g.q).R_HB[np.arange(len(g))[:, None], g.contact_body]
    facing = -np.sum(apply(R_HB, skin.n_B[nearest]) * n_H, axis=-1)
    return np.arccos(np.clip(facing, -1.0, 1.0)).mean(axis=1)


def _edge(sdf: SdfGrid, x_O: np.ndarray, n_O: np.ndarray) -> np.ndarray:
    """Mean distance (N,) of points in the tangent planes of the contacts from the surface, over PATCH."""
    foot = x_O - n_O * sdf.query(x_O)[0][..., None]
    other = np.eye(3)[np.argmin(np.abs(n_O), axis=-1)]
    u = np.cross(n_O, other)
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    angle = 2 * np.pi * np.arange(_AROUND) / _AROUND
    ring = np.cos(angle)[:, None] * u[..., None, :] + np.sin(angle)[:, None] * np.cross(n_O, u)[..., None, :]
    return np.abs(sdf.query(foot[..., None, :] + PATCH * ring)[0]).mean(axis=(1, 2)) / PATCH


def _support(hand: Hand, item: Object, g: Grasps) -> np.ndarray:
    """Second largest spread (N,) of the skin points near the object, over its size."""
    skin, N = hand.skin, len(g)
    low, high = item.vertices.min(axis=0) - NEAR, item.vertices.max(axis=0) + NEAR
    rows, points = [], []
    for start in range(0, N, _BLOCK):
        some = slice(start, start + _BLOCK)
        poses = hand.poses(g.q[some])
        # Of the body in the object: few bodies, many points.
        R_OB = g.R_OH[some, None] @ poses.R_HB
        p_OB = g.p_OH[some, None] + apply(g.R_OH[some, None], poses.p_HB)
        p_O = p_OB[:, skin.body] + apply(R_OB[:, skin.body], skin.p_B)
        near = np.all((p_O > low) & (p_O < high), axis=-1)
        near[near] = item.sdf.query(p_O[near])[0] < NEAR
        rows.append(start + np.nonzero(near)[0])
        points.append(p_O[near])
    row, p_O = np.concatenate([np.zeros(0, int), *rows]), np.concatenate([np.zeros((0, 3)), *points])
    count = np.maximum(np.bincount(row, minlength=N), 1)
    middle = _sums(row, p_O, N) / count[:, None]
    off = p_O - middle[row]
    square = _sums(row, (off[:, :, None] * off[:, None]).reshape(-1, 9), N).reshape(N, 3, 3)
    across = np.linalg.eigvalsh(square / count[:, None, None])[:, 1]
    return np.sqrt(np.maximum(across, 0.0)) / _size(item)


def _sums(row: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """Sums (count, D) of the values (M, D) of each row (M,)."""
    return np.stack([np.bincount(row, v, minlength=count) for v in values.T], axis=1)


def _swing(hand: Hand, item: Object, g: Grasps, x_O: np.ndarray, n_H: np.ndarray) -> np.ndarray:
    """Torque (N,) of the weight about the line of the first two contacts, over that of the squeeze."""
    model = hand.model
    slides = model.tree.slides[[model.all_joints.index(name) for name in model.joints]]
    gain = STIFFNESS / np.where(slides, SLIDE_SCALE**2, 1.0)
    torque = np.clip(gain * (g.squeeze - g.q), -model.torque_limit, model.torque_limit) * g.joint_mask
    # The force f along all normals whose torques -A^T f are nearest to these; see synthesis.targets.
    J = contact_jacobian(model, g.q, g.contact_body, g.contact_p_B)
    row = np.einsum("nci,ncik->nk", n_H, J) * g.joint_mask
    force = -np.sum(torque * row, axis=1) / np.maximum(np.sum(row**2, axis=1), 1e-12)
    line = x_O[:, 1] - x_O[:, 0]
    line /= np.maximum(np.linalg.norm(line, axis=1, keepdims=True), 1e-9)
    mass = item.mass_properties.at_density(PAPER.density or 500.0)
    lever = np.linalg.norm(np.cross(mass.com_O - x_O[:, 0], line), axis=1)
    return mass.mass * GRAVITY * lever / (np.maximum(force, LEAST_FORCE) * PATCH)


def _size(item: Object) -> float:
    """Half the diagonal of the bounding box, m."""
    return float(np.linalg.norm(item.report.extents_m)) / 2
