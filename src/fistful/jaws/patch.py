"""Where a pad presses on an object: contact elements, found by rays from the opened jaws.

Pressure is proportional to how deep the rigid object reaches into the pad, and scaled to the closing force.
"""

from typing import Literal, NamedTuple

import numpy as np

from fistful.errors import JawsError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper, Pad
from fistful.jaws.pad_mesh import polygon_area

SPACING = 1e-3
"""m. Between contact elements."""
ROOM = 5e-3
"""m. Rays start this far behind the fully opened pads: noise of 1 mm can put an opened pad a little into
the object, which then is pushed aside. Only a pad that is deeper in than this starts inside."""
FACING = 0.25
"""Smallest cosine between closing direction and normal of a face that bears on a pad. Steeper faces (beyond
75 degrees) are narrower in the pad's plane than its elements: their share would depend on where rays fall."""

Compression = Literal["full", "elastic"]
"""How deep the object reaches into a pad where it is deepest: by the pad's thickness (REACH's assumption), or
as deep as a bed of springs gives way under the closing force."""


class Patch(NamedTuple):
    """Elements of one pad that press on the object at the full closing force."""

    x_W: np.ndarray  # (N, 3) float64, m
    n_W: np.ndarray  # (N, 3) float64. Unit normals into the object
    f: np.ndarray  # (N,) float64, N. Normal forces, all > 0; their part along the closing axis adds up to F
    depth: float  # m. Compression of the pad where it is largest


class Touch(NamedTuple):
    """Where rays from one opened jaw first meet the object."""

    x_W: np.ndarray  # (N, 3) float64, m
    n_W: np.ndarray  # (N, 3) float64. Unit normals into the object
    distances: np.ndarray  # (N,) float64, m. From the opened jaw, >= -ROOM; inf where nothing is met
    inside: bool  # Some ray starts inside the object


def surface(resting: Resting) -> MeshDistance:
    """The resting object in the world, ready for rays; build it once for many grasps."""
    return MeshDistance(resting.vertices_W, resting.item.faces)


def foundation(pad: Pad) -> float:
    """Pressure for a unit compression of a pad, Pa/m.

    k = M / thickness with the constrained modulus M = E (1 - nu) / ((1 + nu) (1 - 2 nu)): the pad is thin and
    glued, so it can not give way sideways. A contact narrower than the thickness is softer than that.
    """
    E, nu = pad.youngs_modulus, pad.poissons_ratio
    if not (E > 0 and 0 <= nu < 0.5 and pad.thickness > 0):
        raise JawsError(
            f"a pad with E = {E:g} Pa, nu = {nu:g} and {1e3 * pad.thickness:g} mm has no stiffness; "
            "E and thickness must be > 0 and 0 <= nu < 0.5"
        )
    return E * (1 - nu) / ((1 + nu) * (1 - 2 * nu)) / pad.thickness


def outline_points(outline: np.ndarray, spacing: float = SPACING) -> np.ndarray:
    """(N, 2) float64, m. Midpoints of the cells of a square grid that lie inside a simple polygon."""
    outline = np.asarray(outline, float)
    low, high = outline.min(axis=0), outline.max(axis=0)
    cells = np.maximum(np.ceil((high - low) / spacing - 1e-9).astype(int), 1)
    axes = [a + (b - a) * (np.arange(n) + 0.5) / n for a, b, n in zip(low, high, cells, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    return points[_inside(outline, points)]


def _inside(outline: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Mask (N,) of points inside a polygon, by the parity of crossings with a ray along +y."""
    (y0, z0), (y1, z1) = outline.T, np.roll(outline, -1, axis=0).T
    py, pz = points[:, :1], points[:, 1:]
    spans = (z0 > pz) != (z1 > pz)
    with np.errstate(divide="ignore", invalid="ignore"):
        right = py < y0 + (y1 - y0) * (pz - z0) / (z1 - z0)
    return np.sum(spans & right, axis=1) % 2 == 1


def touch(mesh: MeshDistance, grasp: JawGrasp, gripper: Gripper, jaw: int, points: np.ndarray) -> Touch:
    """Where rays along the closing axis, from points (N, 2) of the opened pad of one jaw, meet the object.

    Rays start `ROOM` behind the fully opened jaw and end at the other one: from the nominal contact, a
    perturbed jaw could start inside the object and meet its far side.
    """
    towards = grasp.axis_W if jaw == 0 else -grasp.axis_W
    start = grasp.p_WG - (gripper.opening / 2 + ROOM) * towards + points @ grasp.R_WG[:, 1:].T
    rays = np.broadcast_to(towards, start.shape)
    hits = mesh.first_hits(start, rays, max_distance=gripper.opening + ROOM)
    inside = bool(np.any((hits.faces >= 0) & (hits.normals @ towards > 0)))
    reached = np.where(np.isfinite(hits.distances), hits.distances, 0.0)
    return Touch(start + reached[:, None] * towards, -hits.normals, hits.distances - ROOM, inside)


def press(
    mesh: MeshDistance,
    grasp: JawGrasp,
    gripper: Gripper,
    jaw: int,
    points: np.ndarray,
    compression: Compression = "full",
) -> Patch | None:
    """The patch of one jaw at the closing force F; None if the pad misses the object or starts inside it.

    With h_i the distances along the rays and d the compression, element i is pressed by
    d_i = max(0, d - (h_i - min h)). Its force along the closing axis is F d_i / sum_k d_k. A face at an angle
    to the axis has a larger area under the same pressure: the normal force is that divided by the cosine.
    Each jaw is pressed on the object where it lies; that the first jaw to touch pushes it is not modelled.

    Args:
      mesh: `surface` of the object.
      grasp: Grasp.
      gripper: Gripper.
      jaw: 0 or 1.
      points: (N, 2) float, m. `outline_points` of the pad.
      compression: What sets d.
    """
    met = touch(mesh, grasp, gripper, jaw, points)
    towards = grasp.axis_W if jaw == 0 else -grasp.axis_W
    hit = np.isfinite(met.distances) & (met.n_W @ towards >= FACING)
    if met.inside or not hit.any():
        return None
    gaps = met.distances[hit] - met.distances[hit].min()
    depth = gripper.pad.thickness
    if compression == "elastic":
        spring = foundation(gripper.pad) * polygon_area(gripper.pad.outline) / len(points)
        depth = _compressed(gaps, gripper.closing_force / spring)
    pressed = depth > gaps
    axial = depth - gaps[pressed]
    axial *= gripper.closing_force / axial.sum()
    n_W = met.n_W[hit][pressed]
    return Patch(met.x_W[hit][pressed], n_W, axial / (n_W @ towards), depth)


def _compressed(gaps: np.ndarray, wanted: float) -> float:
    """The d that solves sum_i max(0, d - gaps_i) = wanted > 0; exact, by sorting."""
    ordered = np.sort(gaps)
    # With the n nearest elements pressed: n d - (sum of their gaps) = wanted.
    depths = (wanted + np.cumsum(ordered)) / np.arange(1, len(ordered) + 1)
    reaches_next = depths > np.append(ordered[1:], np.inf)
    return float(depths[np.argmin(reaches_next)])
