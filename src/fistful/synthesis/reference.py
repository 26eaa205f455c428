"""The energy of a grasp in torch, term by term as in the paper (SeqGrasp section IV-C).

The readable version of what the kernels compute: it reads the same tables, skips nothing, leaves the
gradient to autograd and runs in float64 or float32. Oracle of the tests, baseline of the benchmark;
nothing else imports it, so the package needs no torch.

N grasps at once. O is the frame of the target object, H that of the hand base, B of a body, G of a shape.
"""

from dataclasses import fields, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, relu

from fistful.synthesis.tables import HandTables, ObjectTables
from fistful.synthesis.weights import Weights

FOLD = 0.05
"""As in the kernels: a normal shorter than this comes from a fold of the field and fades out."""


class State(NamedTuple):
    """N grasps g_n = (p, r, theta) with their contacts, and what the hand holds already.

    Attributes:
      x: (N, 9 + K). Position of H in O, m; first two columns of its rotation; joints.
      mask: (N, K). J_n: positive for the joints that may move.
      contact: (N, C) int. Contact candidates x_j in use; 2i and 2i + 1 oppose.
      p_HO, R_HO: (N, Q, 3), (N, Q, 3, 3). Poses of the Q held objects in the hand.
    """

    x: Tensor
    mask: Tensor
    contact: Tensor
    p_HO: Tensor
    R_HO: Tensor


class Poses(NamedTuple):
    """M things placed in O: origins p (N, M, 3) and orientations R (N, M, 3, 3)."""

    p: Tensor
    R: Tensor

    def points(self, i: int, points: Tensor) -> Tensor:
        """Points (P, 3) or (N, P, 3) of thing i: where they are, (N, P, 3)."""
        return self.p[:, i, None] + points @ self.R[:, i].mT

    def seen(self, i: int, points: Tensor) -> Tensor:
        """Points of O, (P, 3) or (N, P, 3), in the frame of thing i: (N, P, 3)."""
        return (points - self.p[:, i, None]) @ self.R[:, i]


def tensors(tables: HandTables | ObjectTables, dtype: torch.dtype = torch.float64) -> Any:
    """The same tables with torch tensors in place of arrays."""

    def tensor(array: np.ndarray) -> Tensor:
        return torch.tensor(array, dtype=torch.int64 if np.issubdtype(array.dtype, np.integer) else dtype)

    return replace(tables, **{f.name: tensor(getattr(tables, f.name)) for f in fields(tables)})


def energy(hand: Any, objects: Any, state: State, weights: Weights) -> tuple[Tensor, Tensor]:
    """E = w^T [E_fc E_dis E_hop E_hsp E_joint E_oop], eq. 3, with our three terms after the paper's six.

    Args:
      hand, objects: `tensors` of the tables. The last object is the target O_n, those before it are held.
      state: N grasps.
      weights: w. As in the kernels, our terms are 0 where their weight is 0.

    Returns:
      E (N,) and the terms (N, 9) in the order of `weights.TERMS`.
    """
    target = len(objects.size) - 1
    base, bodies = base_pose(state.x), body_poses(hand, state.x)
    shapes = shape_poses(hand, bodies)
    held = Poses(base.points(0, state.p_HO), base.R @ state.R_HO)
    H_g = skin_points(hand, bodies)
    x = contact_points(hand, bodies, state.contact)
    d, n = near(objects, target, x)
    moving = moves(hand, state.mask)
    zero = torch.zeros_like(state.x[:, 0])
    terms = {
        "fc": e_fc(x, n, objects.centre[target], objects.size[target]),
        "dis": e_dis(d),
        "hop": e_hop(objects, target, H_g),
        "hsp": e_hsp(hand, shapes, H_g),
        "joint": e_joint(hand, state.x[:, 9:]),
        "oop": e_oop(objects, held) if target else zero,
        "hho": e_hho(hand, objects, shapes, H_g, held, moving, weights.ohp > 0) if weights.hho else zero,
        "ohp": e_ohp(hand, shapes, surface(objects, target)).sum(dim=1) if weights.ohp else zero,
        "friction": e_friction(x, n, weights.mu) if weights.friction else zero,
    }
    w = torch.tensor([getattr(weights, name) for name in terms], dtype=state.x.dtype)
    E = torch.stack([*terms.values()], dim=1)
    return E @ w, E


# The paper's terms, each (N,).


def e_fc(x: Tensor, n: Tensor, centre: Tensor, size: Tensor) -> Tensor:
    """Force closure, eq. 4-5: |G c|^2, unit forces along the normals n (N, C, 3) at contacts x (N, C, 3).

    As printed, torques in metres add some 1e-3 of what forces add, and E_fc only asks that normals cancel.
    Here they are about the centre of mass, and divided by the object's size, half its bounding box diagonal.
    """
    force = n.sum(dim=1)
    torque = torch.linalg.cross(x - centre, n).sum(dim=1) / size
    return force.square().sum(dim=1) + torque.square().sum(dim=1)


def e_dis(d: Tensor) -> Tensor:
    """Contact distance, eq. 6: sum over the contacts of their distances |d(x_j, O_n)|, (N, C), m."""
    return d.abs().sum(dim=1)


def e_hop(objects: Any, target: int, H_g: Tensor) -> Tensor:
    """Hand-object penetration, eq. 7: sum of the depths of skin points H_g (N, P, 3) in O_n, m."""
    return depth(objects, target, H_g).sum(dim=1)


def e_hsp(hand: Any, shapes: Poses, H_g: Tensor) -> Tensor:
    """Hand self-penetration, eq. 8: sum of the depths of skin points of a shape in another, both ways, m.

    As printed it sums distances between self-penetrating points, which fall as the points close in on each
    other: it would not push them apart. Depths do, as in eq. 7 and 10.
    """
    shape, total = point_shape(hand), torch.zeros_like(H_g[:, 0, 0])
    for h in range(len(hand.ball)):
        others = torch.cat([hand.geom_pair[hand.geom_pair[:, i] == h, 1 - i] for i in range(2)])
        p_G = shapes.seen(h, H_g[:, torch.isin(shape, others)])
        total = total + relu(-shape_distance(hand, h, p_G)).sum(dim=1)
    return total


def e_joint(hand: Any, theta: Tensor) -> Tensor:
    """Joint limits, eq. 9: |(theta - upper)^+|_1 + |(lower - theta)^+|_1 of joints (N, K), rad (m)."""
    return relu(theta - hand.upper).sum(dim=1) + relu(hand.lower - theta).sum(dim=1)


def e_oop(objects: Any, held: Poses) -> Tensor:
    """Object-object penetration, eq. 10: sum of the depths of points of held objects in the target O_n, m."""
    n = held.p.shape[1]
    points = torch.cat([held.points(i, surface(objects, i)) for i in range(n)], dim=1)
    return depth(objects, n, points).sum(dim=1)


# Our terms.


def e_hho(
    hand: Any, objects: Any, shapes: Poses, H_g: Tensor, held: Poses, moving: Tensor, both_ways: bool
) -> Tensor:
    """Sum of the depths of moving bodies (N, B) in held objects, m; the paper lets fingers enter them.

    Both ways (if E_ohp is in use): also of points of held objects in the shapes of moving bodies.
    """
    shape_moves = moving[:, shape_body(hand)]
    total = torch.zeros_like(H_g[:, 0, 0])
    for i in range(held.p.shape[1]):
        depths = depth(objects, i, held.seen(i, H_g))
        total = total + (depths * shape_moves[:, point_shape(hand)]).sum(dim=1)
        if both_ways:
            points = held.points(i, surface(objects, i))
            total = total + (e_ohp(hand, shapes, points) * shape_moves).sum(dim=1)
    return total


def e_ohp(hand: Any, shapes: Poses, points: Tensor) -> Tensor:
    """Sum of the depths of object points, (P, 3) or (N, P, 3), in each shape of the hand, (N, G), m.

    The other way round than eq. 7: it sees an edge of the object that passes between skin points.
    """
    depths = [relu(-shape_distance(hand, g, shapes.seen(g, points))) for g in range(len(hand.ball))]
    return torch.stack([of_shape.sum(dim=1) for of_shape in depths], dim=1)


def e_friction(x: Tensor, n: Tensor, mu: float) -> Tensor:
    """How far the lines between opposed contacts leave their friction cones: sum of (cos atan mu - cos a)^+.

    a is the angle between the inward normal -n_j of a contact and the direction to its partner.
    """
    line = x[:, torch.arange(x.shape[1]) ^ 1] - x
    toward = line / line.norm(dim=2, keepdim=True).clamp(min=1e-4)
    return relu((1 + mu**2) ** -0.5 + (n * toward).sum(dim=2)).sum(dim=1)


# Distance to an object, read from its grid.


def near(objects: Any, k: int, p: Tensor) -> tuple[Tensor, Tensor]:
    """Distance d(p, O_k), (...,), m, negative inside, and outward normal (..., 3) at points p (..., 3).

    In the box of the grid d is interpolated, and so is the nodes' gradient g; n = g / sqrt(g.g + FOLD^2).
    Outside, q is the nearest point of the box, s = q - d(q) n(q) about the nearest point of the surface, and
    distance and normal are length and direction of p - s.
    """
    q = clamped(objects, k, p)
    d = interpolated(objects, k, objects.values, q)
    g = interpolated(objects, k, objects.gradients, q)
    n = g / (g.square().sum(dim=-1, keepdim=True) + FOLD**2).sqrt()
    spoke = p - q + d[..., None] * n
    length = spoke.norm(dim=-1).clamp(min=1e-9)
    outside = (p != q).any(dim=-1)
    return torch.where(outside, length, d), torch.where(outside[..., None], spoke / length[..., None], n)


def depth(objects: Any, k: int, p: Tensor) -> Tensor:
    """How deep in object k points are, (-d(p, O_k))^+, m; it lies well in the box of its grid."""
    return relu(-interpolated(objects, k, objects.values, clamped(objects, k, p)))


def clamped(objects: Any, k: int, p: Tensor) -> Tensor:
    """The nearest points in the box of the grid."""
    upper = objects.origin[k] + objects.spacing[k] * (objects.shape[k] - 1)
    return torch.minimum(torch.maximum(p, objects.origin[k]), upper)


def interpolated(objects: Any, k: int, nodes: Tensor, p: Tensor) -> Tensor:
    """Trilinear interpolation of `nodes` (V, ...) at points p (..., 3) in the box of the grid of object k."""
    _, ny, nz = objects.shape[k].tolist()
    t = (p - objects.origin[k]) / objects.spacing[k]
    cell = torch.minimum(t.detach().long(), objects.shape[k] - 2)
    first = objects.node_start[k] + (cell[..., 0] * ny + cell[..., 1]) * nz + cell[..., 2]
    u, v, w = (t - cell).reshape(*p.shape, *[1] * (nodes.ndim - 1)).unbind(p.ndim - 1)
    total = torch.zeros_like(u)
    for a, b, c in product((0, 1), repeat=3):
        weight = (u if a else 1 - u) * (v if b else 1 - v) * (w if c else 1 - w)
        total = total + weight * nodes[first + (a * ny + b) * nz + c]
    return total


def surface(objects: Any, k: int) -> Tensor:
    """Surface points of object k in its own frame, (P, 3)."""
    start = objects.tree_point
    return objects.points[start[k] : start[k + 1]]


# The hand.


def base_pose(x: Tensor) -> Poses:
    """X_OH: position, and the 6D rotation made orthonormal (Gram-Schmidt)."""
    e = normalize(x[:, 3:6])
    f = normalize(x[:, 6:9] - (e * x[:, 6:9]).sum(dim=1, keepdim=True) * e)
    return Poses(x[:, None, :3], torch.stack([e, f, torch.linalg.cross(e, f)], dim=2)[:, None])


def body_poses(hand: Any, x: Tensor) -> Poses:
    """X_OB by forward kinematics; the anchor of a hinge stays where it is."""
    p_OB, R_OB = [], []
    for b, parent in enumerate(hand.parent.tolist()):
        p, R = (p_OB[parent], R_OB[parent]) if parent >= 0 else (t[:, 0] for t in base_pose(x))
        p, R = p + R @ hand.p_PB[b], R @ hand.R_PB[b]
        for j in range(hand.joint_start[b], hand.joint_start[b + 1]):
            driven = hand.factor[j] * x[:, 9 + hand.driver[j]] if hand.driver[j] >= 0 else 0.0 * x[:, 0]
            travel = driven + hand.offset[j] - hand.zero[j]
            if hand.slides[j]:
                p = p + travel[:, None] * (R @ hand.axis_B[j])
            else:
                anchor = p + R @ hand.anchor_B[j]
                R = R @ rotation_about(hand.axis_B[j], travel)
                p = anchor - R @ hand.anchor_B[j]
        p_OB.append(p)
        R_OB.append(R)
    return Poses(torch.stack(p_OB, dim=1), torch.stack(R_OB, dim=1))


def rotation_about(axis: Tensor, angle: Tensor) -> Tensor:
    """I + sin K + (1 - cos) K^2 (Rodrigues), (N, 3, 3), where K v = axis x v."""
    identity = torch.eye(3, dtype=axis.dtype)
    K = torch.linalg.cross(axis.expand(3, 3), identity).T
    return identity + angle.sin()[:, None, None] * K + (1 - angle.cos())[:, None, None] * (K @ K)


def moves(hand: Any, mask: Tensor) -> Tensor:
    """Whether the joints of J_n move a body, (N, B) bool."""
    moved: list[Tensor] = []
    for b, parent in enumerate(hand.parent.tolist()):
        drivers = hand.driver[hand.joint_start[b] : hand.joint_start[b + 1]]
        here = (mask[:, drivers[drivers >= 0]] > 0).any(dim=1)
        moved.append(here | moved[parent] if parent >= 0 else here)
    return torch.stack(moved, dim=1)


def contact_points(hand: Any, bodies: Poses, contact: Tensor) -> Tensor:
    """x_j: where the contact candidates in use, (N, C), are, (N, C, 3)."""
    n, b = torch.arange(len(contact))[:, None], hand.candidate_body[contact]
    return bodies.p[n, b] + (bodies.R[n, b] @ hand.candidate_p_B[contact][..., None])[..., 0]


def skin_points(hand: Any, bodies: Poses) -> Tensor:
    """H_g: where the skin points are, (N, P, 3)."""
    counts = shape_body(hand)[point_shape(hand)].bincount(minlength=len(hand.parent)).tolist()
    return torch.cat([bodies.points(b, points) for b, points in enumerate(hand.points.split(counts))], dim=1)


def shape_poses(hand: Any, bodies: Poses) -> Poses:
    """X_OG."""
    b = shape_body(hand)
    return Poses(bodies.p[:, b] + (bodies.R[:, b] @ hand.p_BG[..., None])[..., 0], bodies.R[:, b] @ hand.R_BG)


def shape_distance(hand: Any, g: int, p: Tensor) -> Tensor:
    """Distance of points (..., 3), frame of shape g, to it, m, negative inside; see `geometry.primitives`."""
    d = p.abs() - hand.core[g]
    if hand.cylinder[g]:
        d = torch.stack([p[..., :2].norm(dim=-1) - hand.core[g, 0], d[..., 2]], dim=-1)
    return relu(d).norm(dim=-1) - relu(-d.amax(dim=-1)) - hand.radius[g]


def shape_body(hand: Any) -> Tensor:
    """The body of each shape, (G,)."""
    return torch.repeat_interleave(hand.geom_start.diff())


def point_shape(hand: Any) -> Tensor:
    """The shape of each skin point, (P,)."""
    return torch.repeat_interleave(hand.tree_point.diff())
