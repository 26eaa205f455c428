"""The fast optimiser: its least-squares system against plain residuals, its steps against plain algebra.

The oracle is a list of residuals in float64 (torch, as the reference), one number for each contact and for each
point and shape that overlap. Cost, gradient and Gauss-Newton matrix follow from it and its central differences.
"""

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch

from fistful.geometry.pose import apply, rotation_about
from fistful.geometry.quiet_warp import wp
from fistful.hands import hand_names
from fistful.objects import load_object
from fistful.synthesis import fast, reference
from fistful.synthesis.antipodal import AntipodalPairs, antipodal_pairs
from fistful.synthesis.contact_set import contact_sets
from fistful.synthesis.core import Core, launch
from fistful.synthesis.fast import Fast
from fistful.synthesis.fast_kernels import REFINING, TRYING
from fistful.synthesis.sequence import Planner
from fistful.synthesis.settings import Settings
from fistful.synthesis.stage import packed, unpacked
from fistful.synthesis.start_kernels import WINDOW, PairData
from fistful.synthesis.task import Solution, Task
from test_energy import (
    HANDS,
    SEQUENCE,
    States,
    core,
    hand,
    hand_tables,
    hand_tensors,
    object_tables,
    object_tensors,
    states,
)

TOLERANCE = 2e-4
STEP = 1e-7
"""Of the differences, m or rad; in float64."""


# Residuals, in mm: contacts and overlaps. Their half square sum is the cost.


def contact_residuals(hand, objects, bodies: reference.Poses, contact, s: Fast) -> torch.Tensor:
    """Distance of each contact, and how far skin and opposed contact leave their cones, (N, 3 C)."""
    n, body = torch.arange(len(contact))[:, None], hand.candidate_body[contact]
    x = reference.contact_points(hand, bodies, contact)
    d, normal = reference.near(objects, len(objects.size) - 1, x)
    skin = (bodies.R[n, body] @ hand.candidate_n_B[contact][..., None])[..., 0]
    line = x[:, torch.arange(x.shape[1]) ^ 1] - x
    toward = line / line.norm(dim=2, keepdim=True)
    align = torch.relu(np.cos(np.deg2rad(s.align_deg)) + (skin * normal).sum(dim=2))
    friction = torch.relu(np.cos(np.deg2rad(s.friction_deg)) + (toward * normal).sum(dim=2))
    return torch.cat([1e3 * d, s.angle_weight_mm * align, s.angle_weight_mm * friction], dim=1)


def overlap_residuals(hand, objects, bodies, base, state: reference.State, s: Fast) -> torch.Tensor:
    """Depths of the hand in target and held objects, of these in the target, and both ways, (N, ...)."""
    target = len(objects.size) - 1
    skin, shapes = reference.skin_points(hand, bodies), reference.shape_poses(hand, bodies)
    held = reference.Poses(base.points(0, state.p_HO), base.R @ state.R_HO)
    shape_moves = reference.moves(hand, state.mask)[:, reference.shape_body(hand)].double()
    skin_moves = shape_moves[:, reference.point_shape(hand)]

    def in_shapes(points: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.relu(-reference.shape_distance(hand, g, shapes.seen(g, points)))
            for g in range(len(hand.ball))
        ]

    parts = [reference.depth(objects, target, skin)]
    if s.both_ways:
        parts += in_shapes(reference.surface(objects, target))
    for h in range(target):
        points = held.points(h, reference.surface(objects, h))
        parts += [reference.depth(objects, target, points)]
        parts += [skin_moves * reference.depth(objects, h, held.seen(h, skin))]
        if s.both_ways:
            parts += [shape_moves[:, [g]] * depths for g, depths in enumerate(in_shapes(points))]
    return 1e3 * torch.cat(parts, dim=1)


def self_residuals(hand, skin_bodies, shape_bodies, state: reference.State) -> torch.Tensor:
    """Depths of the hand's skin in other shapes of the hand, of pairs that J_n moves, (N, ...).

    Skin and shapes may be placed apart, to see what each of them contributes to a derivative.
    """
    skin, shapes = reference.skin_points(hand, skin_bodies), reference.shape_poses(hand, shape_bodies)
    moves = reference.moves(hand, state.mask)[:, reference.shape_body(hand)]
    tested = torch.zeros(len(hand.ball), len(hand.ball), dtype=torch.bool)
    tested[hand.geom_pair[:, 0], hand.geom_pair[:, 1]] = tested[hand.geom_pair[:, 1], hand.geom_pair[:, 0]] = True
    own, parts = reference.point_shape(hand), []
    for h in range(len(hand.ball)):
        depths = torch.relu(-reference.shape_distance(hand, h, shapes.seen(h, skin)))
        parts.append(depths * (tested[own, h] & (moves[:, own] | moves[:, [h]])))
    return 1e3 * torch.cat(parts, dim=1)


class System(NamedTuple):
    """Cost (N,), gradient (N, D) and matrix (N, D, D) by translation, rotation about H, joints."""

    cost: np.ndarray
    g: np.ndarray
    H: np.ndarray


def moved(x: np.ndarray, step: float) -> np.ndarray:
    """States (N, D, 9 + K): each moved along each of the D = 6 + K unknowns."""
    N, K = len(x), x.shape[1] - 9
    p, R, q = (np.repeat(part[:, None], 6 + K, axis=1) for part in unpacked(x))
    for i in range(3):
        p[:, i, i] += step
        R[:, 3 + i] = rotation_about(np.eye(3)[i], step) @ R[:, 3 + i]
    q[:, np.arange(6, 6 + K), np.arange(K)] += step
    flat = (part.reshape(N * (6 + K), *part.shape[2:]) for part in (p, R, q))
    return packed(*flat).reshape(N, 6 + K, 9 + K)


def by_residuals(hand, objects, some: States, s: Fast) -> tuple[System, np.ndarray]:
    """The system with the exact Gauss-Newton matrix J^T J, and the one with the bound that kernels use.

    A depth between two moving bodies has the derivative u - v; (u - v)^2 <= 2 u^2 + 2 v^2 keeps the bodies
    apart in the matrix. Neither feels the base.
    """
    N, D = len(some.x), some.x.shape[1] - 3

    def evaluate(x: np.ndarray) -> tuple[torch.Tensor, reference.Poses, reference.State]:
        many = some.take(np.repeat(np.arange(N), len(x) // N))
        state = reference.State(
            torch.tensor(x), *(torch.tensor(v).double() for v in many[1:2]), torch.tensor(many.contact).long(),
            *(torch.tensor(v).double() for v in many[3:]),
        )  # fmt: skip
        base, bodies = reference.base_pose(state.x), reference.body_poses(hand, state.x)
        r = torch.cat(
            [
                contact_residuals(hand, objects, bodies, state.contact, s),
                overlap_residuals(hand, objects, bodies, base, state, s),
            ],
            dim=1,
        )
        return r, bodies, state

    x = some.x.astype(float)
    r, bodies, state = evaluate(x)
    r_self = self_residuals(hand, bodies, bodies, state)
    J, u, v = [], [], []
    copies = reference.Poses(*(t.repeat_interleave(D, dim=0) for t in bodies))
    for sign in (1, -1):
        r_moved, there, many = evaluate(moved(x, sign * STEP).reshape(N * D, -1))
        J.append(r_moved)
        u.append(self_residuals(hand, there, copies, many))
        v.append(self_residuals(hand, copies, there, many))
    J, u, v = (((a - b) / (2 * STEP)).reshape(N, D, -1).numpy() for a, b in (J, u, v))
    u[:, :6] = v[:, :6] = 0
    r, r_self = r.numpy(), r_self.numpy()
    cost = 0.5 * (r**2).sum(axis=1) + 0.5 * (r_self**2).sum(axis=1)
    g = np.einsum("ndr,nr->nd", J, r) + np.einsum("ndr,nr->nd", u + v, r_self)
    square = J @ J.swapaxes(1, 2)
    exact = square + (u + v) @ (u + v).swapaxes(1, 2)
    bound = square + 2 * (u @ u.swapaxes(1, 2) + v @ v.swapaxes(1, 2))
    return System(cost, g, bound), exact


def by_kernels(core: Core, some: States, s: Fast) -> System:
    lives = new_lives(core, task_of(some, core), PAIR, s)
    lives.batch.write(**some._asdict())
    launch(lives.step[:3])
    return System(lives.batch.read("energy"), lives.refine.new_g.numpy(), lives.refine.new_H.numpy())


def task_of(some: States, core: Core) -> Task:
    """A task that has these masks and held objects."""
    N = len(some.x)
    surface = np.zeros((N, core.contacts), dtype=int)
    return Task(
        q=some.x[:, 9:], mask=some.mask > 0, surface=surface, p_HO=some.p_HO, R_HO=some.R_HO, key=np.arange(N)
    )


PAIR = AntipodalPairs(
    np.array([[-0.02, 0, 0]]), np.array([[0.02, 0, 0]]), np.zeros((1, 3)), np.zeros((1, 3)), np.array([0.04]), 31, 1, 0
)


def new_lives(core: Core, task: Task, pairs: AntipodalPairs, s: Fast, seed: int = 0):
    opposed = PairData()
    for name, array in (("a", pairs.a_O), ("b", pairs.b_O), ("width", pairs.width)):
        dtype = float if array.ndim == 1 else wp.vec3
        setattr(opposed, name, wp.array(array.astype(np.float32), dtype=dtype, device="cpu"))
    return fast._Lives(core, task, opposed, seed, s)


def assert_system(core: Core, hand, objects, some: States, s: Fast) -> tuple[float, float, float]:
    """Kernels agree with the residuals; largest errors of cost, gradient and matrix, relative."""
    found, (expected, exact) = by_kernels(core, some, s), by_residuals(hand, objects, some, s)
    free = np.concatenate([np.ones((len(some.x), 6)), some.mask], axis=1) > 0
    both = free[:, :, None] & free[:, None]
    # |g_i| <= sqrt(H_ii) |r| and |H_ij| <= sqrt(H_ii H_jj): the scales of rounding, whatever the units.
    spread = np.sqrt(np.einsum("nii->ni", expected.H)) + 1e-3
    cost = np.abs(found.cost - expected.cost) / (expected.cost + 1e-3)
    g = np.abs(found.g - expected.g) / (spread * np.sqrt(2 * expected.cost[:, None]) + 1e-3)
    H = np.abs(found.H - expected.H) / (spread[:, :, None] * spread[:, None])
    return cost, np.where(free, g, 0), np.where(both, H, 0)
