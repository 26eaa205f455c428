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
BURIED = 2e-4
"""m. A point deeper than this in another shape is not on the outside."""
MAX_CANDIDATES = 64
"""Contact candidates of one surface: pairs of two surfaces are then scored exhaustively in no time."""


class Skin(NamedTuple):
    """Points of the outer surface: body (N,), position p_B (N, 3) m and normal n_B (N, 3) in its frame."""

    body: np.ndarray
    p_B: np.ndarray
    n_B: np.ndarray

    def take(self, index: np.ndarray) -> "Skin":
        """The points of an index array or mask."""
        return Skin(self.body[index], self.p_B[index], self.n_B[index])

    @staticmethod
    def join(parts: list["Skin"]) -> "Skin":
        """All points of several skins, in order."""
        return Skin(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def sample_skin(model: Model) -> Skin:
    """Dense points on the outside of the hand, the same for the same model.

    Left out are points inside another shape of the same body or between two that abut, and points buried in
    another body at the open pose: a joint's inside is not skin.
    """
    parts = []
    for index, geom in enumerate(model.geoms):
        shape = geom.primitive
        count = max(24, round(POINTS_PER_M2 * surface_area(shape.kind, shape.size)))
        local = sample_surface(shape.kind, shape.size, count, np.random.default_rng(index))
        normals = outward_normal(shape.kind, shape.size, local)
        body = np.full(count, geom.body)
        parts.append(Skin(body, shape.p_BG + local @ shape.R_BG.T, normals @ shape.R_BG.T))
    if not parts:
        raise HandError("the hand has no collision shape")
    skin = Skin.join(parts)
    owner = np.repeat(np.arange(len(parts)), [len(part.body) for part in parts])
    poses = model.poses(model.open_pose)
    # A little way out: where two shapes abut, the points between them are on both surfaces, and inside.
    outside = geom_distances(model, poses, poses.points(skin.body, skin.p_B + BURIED * skin.n_B))
    outside[np.arange(len(owner)), owner] = np.inf
    return skin.take(np.all(outside > 0, axis=1))


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
    # Spread at the open pose, so that neighbouring links share the count by their area.
    p_H = model.poses(model.open_pose).points(points.body, points.p_B)
    return points.take(farthest_points(p_H, MAX_CANDIDATES))
