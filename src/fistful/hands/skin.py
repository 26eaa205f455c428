"""The skin of a hand: points on its outer surface, and the contact candidates among them."""

from typing import NamedTuple

import numpy as np

from fistful.errors import HandError
from fistful.geometry.pose import apply
from fistful.geometry.primitives import outward_normal, sample_surface, surface_area
from fistful.geometry.sampling import farthest_points
from fistful.hands.description import Patch
from fistful.hands.kinematics import BodyPoses
from fistful.hands.model import Model

POINTS_PER_M2 = 110_000
"""Density of the dense samples: one point per 3 mm x 3 mm."""
SKIN_VERSION = 1
"""Part of a hand's key: raise it when the same model may get other skin points or candidates."""
OVERSAMPLING, BENT_POSES = 4, 24
BURIED = 2e-4
"""m. A point deeper than this in another shape is not on the outside."""
EDGE_STEP, EDGE_DROP = 2.5e-3, 6e-4
"""m. A contact candidate is this far from the edges of its surface; see _distance_over_the_edge."""
FEW_CANDIDATES = 8
MAX_CANDIDATES = 64
"""Contact candidates of one surface: pairs of two surfaces are then scored exhaustively in no time."""


class Skin(NamedTuple):
    """Points on the outside of the hand.

    Attributes:
      body: (N,) int. The body each point is fixed to.
      p_B: (N, 3) float, m. Position in the body's frame.
      n_B: (N, 3) float. Outward unit normal in the body's frame.
      geom: (N,) int. The shape it lies on.
    """

    body: np.ndarray
    p_B: np.ndarray
    n_B: np.ndarray
    geom: np.ndarray

    def take(self, index: np.ndarray) -> "Skin":
        """The points of an index array or mask."""
        return Skin(*(column[index] for column in self))

    @staticmethod
    def join(parts: list["Skin"]) -> "Skin":
        """All points of several skins, in order."""
        return Skin(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def sample_skin(model: Model) -> Skin:
    """Points on the outside of the hand, about one per 3 mm x 3 mm, the same for the same model.

    Those of one shape are spread by farthest-point sampling. Left out are points inside another shape of the
    same body or between two that abut, and points that another body covers in every pose that is tried: what
    a bent knuckle uncovers is skin, the inside of a joint is not.
    """
    parts = []
    for index, geom in enumerate(model.geoms):
        shape = geom.primitive
        count = max(24, round(POINTS_PER_M2 * surface_area(shape.kind, shape.size)))
        dense = sample_surface(shape.kind, shape.size, OVERSAMPLING * count, np.random.default_rng(index))
        local = dense[farthest_points(dense, count)]
        normals = outward_normal(shape.kind, shape.size, local)
        p_B, n_B = shape.p_BG + local @ shape.R_BG.T, normals @ shape.R_BG.T
        parts.append(Skin(np.full(count, geom.body), p_B, n_B, np.full(count, index)))
    if not parts:
        raise HandError("the hand has no collision shape")
    skin = Skin.join(parts)
    skin = skin.take(~_covered(model, skin, model.open_pose, by_own_body=True))
    covered = _covered(model, skin, model.open_pose)
    rng = np.random.default_rng(0)
    for q in rng.uniform(model.lower, model.upper, (BENT_POSES, len(model.joints))):
        covered[covered] = _covered(model, skin.take(covered), q)
    return skin.take(~covered)


def _covered(model: Model, skin: Skin, q: np.ndarray, *, by_own_body: bool = False) -> np.ndarray:
    """Mask (N,) of the points that lie inside a shape of another body (or of their own) at joint values q."""
    poses = model.poses(q)
    # A little way out: where two shapes abut, the points between them are on both surfaces, and inside.
    outside = geom_distances(model, poses, poses.points(skin.body, skin.p_B + BURIED * skin.n_B))
    own = model.geom_body == skin.body[:, None]
    outside[~own if by_own_body else own] = np.inf
    outside[np.arange(len(skin.geom)), skin.geom] = np.inf
    return np.any(outside <= 0, axis=1)


def geom_distances(model: Model, poses: BodyPoses, p_H: np.ndarray) -> np.ndarray:
    """Signed distances of points to every shape of the hand.

    Args:
      model: Hand.
      poses: Poses of its bodies, with batch shape (...).
      p_H: (..., N, 3) float, m. Points in the hand base frame.

    Returns:
      (..., N, G) float, m. Negative inside.
    """
    shapes, body = model.shapes, model.geom_body
    R_HB, p_HB = poses.R_HB[..., body, :, :], poses.p_HB[..., body, :]
    R_HG = R_HB @ shapes.R_BG
    p_HG = p_HB + apply(R_HB, shapes.p_BG)
    local = np.einsum(
        "...ngi,...gij->...ngj", p_H[..., :, None, :] - p_HG[..., None, :, :], R_HG, optimize=False
    )
    return shapes.signed_distance(local)


def select(skin: Skin, body: int, direction: np.ndarray, cone_deg: float) -> np.ndarray:
    """Mask (N,) of the points of a body whose normal lies in the cone around `direction` (body frame)."""
    axis = np.asarray(direction, dtype=float) / np.linalg.norm(direction)
    return (skin.body == body) & (skin.n_B @ axis >= np.cos(np.deg2rad(cone_deg)))


def contact_candidates(model: Model, skin: Skin, patches: tuple[Patch, ...]) -> Skin:
    """At most MAX_CANDIDATES well spread points of the patches; may be empty.

    Raises:
      HandError: A patch names a body that the model does not have.
    """
    mask = np.zeros(len(skin.body), dtype=bool)
    for patch in patches:
        if patch.body not in model.bodies:
            raise HandError(f"a patch names body {patch.body!r}; the model has {', '.join(model.bodies)}")
        mask |= select(skin, model.bodies.index(patch.body), np.array(patch.direction), patch.cone_deg)
    points = skin.take(mask)
    if not len(points.body):
        return points
    # What only a bent knuckle uncovers is no place to hold an object with, nor is an edge.
    open_skin = points.take(~_covered(model, points, model.open_pose))
    inner = open_skin.take(_distance_over_the_edge(model, open_skin) < EDGE_DROP)
    points = next((p for p in (inner, open_skin) if len(p.body) >= FEW_CANDIDATES), points)
    # Spread at the open pose, so that neighbouring links share the count by their area.
    p_H = model.poses(model.open_pose).points(points.body, points.p_B)
    return points.take(farthest_points(p_H, MAX_CANDIDATES))


def _distance_over_the_edge(model: Model, skin: Skin) -> np.ndarray:
    """How far (N,), m, a step of EDGE_STEP sideways leads off the surface, in the worst direction.

    On a flat face it is 0, on a finger of radius r it is about EDGE_STEP^2 / 2r, and beyond the edge of a
    box the whole overshoot.
    """
    other = np.eye(3)[np.argmin(np.abs(skin.n_B), axis=1)]
    u = np.cross(skin.n_B, other)
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    v = np.cross(skin.n_B, u)
    angles = np.linspace(0, 2 * np.pi, 8, endpoint=False)[:, None, None]
    steps = skin.p_B + EDGE_STEP * (np.cos(angles) * u + np.sin(angles) * v)
    poses = model.poses(model.open_pose)
    away = geom_distances(model, poses, poses.points(skin.body, steps))
    away[:, model.geom_body != skin.body[:, None]] = np.inf
    return away.min(axis=-1).max(axis=0)
