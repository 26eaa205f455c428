"""Joint targets of a grasp: open before it, at it, and pressing.

A contact point c with outward object normal n moves along n by the row n . J_c dq. For a wanted way d of
all contacts of a grasp, with A the rows and S a diagonal that puts slides and hinges on one scale, the
step is

    dq = S (A S)^T ((A S) (A S)^T + DAMPING^2)^-1 d        (damped least squares).

Only the way along the normal is asked for. With one contact on a finger, dq is then along A^T: every
joint turns the way that moves the contact outward, and none turns against another to keep the point on a
straight line.

Inward the object is in the way, and what counts is force. The torques -A^T f press with f along every
normal, the same for all contacts of a grasp, so that they balance. A joint with a position gain k exerts them
when it is sent that much over k beyond the grasp; f is FORCE, or less if a motor could not do it.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fistful.geometry.pose import apply, rotation_about
from fistful.hands.hand import Hand
from fistful.hands.kinematics import BodyPoses, Tree
from fistful.hands.model import Model

BACK_OFF = 0.010
"""m. How far the contacts are from the object before the grasp."""
FORCE = 12.0
"""N. What each contact presses with."""
STIFFNESS = 5.0
"""N m/rad. Position gain of the joints that squeeze targets are meant for; see physics.protocol."""
EFFORT = 0.9
"""Of a motor's limit, that a squeeze may ask for."""
MAX_OPENING = 0.6
"""rad. No joint opens farther than this: a contact beside a joint would else ask for any turn."""
SLIDE_SCALE = 0.05
"""m. A slide counts as a hinge with this lever."""
DAMPING = 0.005
"""m. Levers shorter than this hardly move a contact, and are not made to."""
ROUNDING = 1e-9
"""m. A contact that moves less than this has not moved."""
_STEPS, _HALVINGS = 5, 5


class Targets(NamedTuple):
    """Joint vectors of N grasps, and what they do to their C contacts.

    Attributes:
      pre_grasp: (N, K) float. The stage's own joints opened.
      grasp: (N, K) float. The grasp itself.
      squeeze: (N, K) float. The stage's own joints closed farther than the object lets them.
      opened: (N, C) float, m. How far along the outward normal each contact is at the pre-grasp; 0 for the
        palm, less than asked for where limits or shared joints do not allow more.
      pressed: (N, C) float, m. How far inward each contact would be at the squeeze with nothing in the way.
    """

    pre_grasp: np.ndarray
    grasp: np.ndarray
    squeeze: np.ndarray
    opened: np.ndarray
    pressed: np.ndarray


def joint_targets(
    hand: Hand,
    p_OH: np.ndarray,
    R_OH: np.ndarray,
    q: np.ndarray,
    joint_mask: np.ndarray,
    contact_body: np.ndarray,
    contact_p_B: np.ndarray,
    normals_O: np.ndarray,
    *,
    back_off: float = BACK_OFF,
    force: float = FORCE,
) -> Targets:
    """Pre-grasp, grasp and squeeze targets of N grasps; other joints than the stage's own stay bit for bit.

    The hand base does not move, so a contact on the palm stays where it is. All targets are within the joint
    limits, if the grasp is.

    Args:
      hand: Hand.
      p_OH: (N, 3) float, m. Hand base in the object's frame. Not used: displacements do not depend on it.
      R_OH: (N, 3, 3) float. Its orientation.
      q: (N, K) float. Joints of the grasps.
      joint_mask: (N, K) bool. Joints of the stage's own opposition space.
      contact_body: (N, C) int. Bodies of the contact points.
      contact_p_B: (N, C, 3) float, m. Contact points in the frames of their bodies.
      normals_O: (N, C, 3) float. Outward unit normals of the object at the contacts, in its frame.
      back_off: Way of the contacts from the grasp out to the pre-grasp, m.
      force: What each contact presses with at the squeeze target, N.
    """
    q, body = np.asarray(q, float), np.asarray(contact_body, int)
    own = np.broadcast_to(np.asarray(joint_mask, bool), q.shape)
    p_B, n_H = np.asarray(contact_p_B, float), apply(np.swapaxes(R_OH, 1, 2)[:, None], normals_O)
    model = hand.model
    start, rows = _rows(model, q, body, p_B, n_H)
    scale = np.where(own, np.where(_slides(model), SLIDE_SCALE, 1.0), 0.0)

    # Outwards the way is free and long: step by step, each from the Jacobian where the last one led.
    pre = q
    free = scale
    low, high = _range(model, q, scale, MAX_OPENING)
    for step in range(_STEPS):
        here, outward = (start, rows) if step == 0 else _rows(model, pre, body, p_B, n_H)
        dq = _damped_step(outward, free, back_off - (here - start))
        pre = np.clip(pre + dq, low, high)
        # What has reached an end leaves the rest of the way to the other joints.
        free = np.where((pre <= low) & (dq < 0) | (pre >= high) & (dq > 0), 0.0, free)

    torque = -np.sum(rows, axis=1) * (scale > 0)
    least = np.min(
        np.where(torque != 0, EFFORT * model.torque_limit / _or_one(np.abs(torque)), np.inf), axis=1
    )
    gain = STIFFNESS / np.where(_slides(model), SLIDE_SCALE**2, 1.0)
    closed = np.clip(q + np.minimum(force, least)[:, None] * torque / gain, model.lower, model.upper)

    def outward_by(target: np.ndarray) -> np.ndarray:
        return _rows(model, target, body, p_B, n_H)[0] - start

    pre, opened = _never_backwards(q, np.where(own, pre, q), outward_by, 1.0)
    closed, pressed = _never_backwards(q, np.where(own, closed, q), outward_by, -1.0)
    return Targets(pre, q.copy(), closed, opened, pressed)


def contact_jacobian(model: Model, q: np.ndarray, body: np.ndarray, p_B: np.ndarray) -> np.ndarray:
    """Derivatives of points fixed to bodies by the independent joints, in the hand base frame.

    d p_H / d q = (d p_H / d joints) C, with joints = C q + c. A hinge with axis a through o moves a point p
    behind it by a x (p - o), a slide by a.

    Args:
      model: Hand.
      q: (N, K) float. Joints.
      body: (N, C) int. Bodies of the points.
      p_B: (N, C, 3) float, m. Points in the frames of their bodies.

    Returns:
      (N, C, 3, K) float, m per rad or m.
    """
    return _points_and_jacobian(model, q, body, p_B)[1]


def _points_and_jacobian(
    model: Model, q: np.ndarray, body: np.ndarray, p_B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The points in the hand base frame (N, C, 3), and `contact_jacobian`."""
    joints = model.expand(q)
    poses = model.poses(q)
    row = np.arange(len(joints))[:, None]
    p_H = poses.p_HB[row, body] + apply(poses.R_HB[row, body], p_B)
    anchor_H, axis_H = _joint_axes(model.tree, joints, poses)
    turned = np.cross(axis_H[:, None], p_H[:, :, None] - anchor_H[:, None])
    way = np.where(model.tree.slides[:, None], axis_H[:, None], turned)
    way = way * _carries(model.tree)[body][..., None]
    return p_H, np.einsum("ncji,jk->ncik", way, model.coupling)


def _joint_axes(tree: Tree, joints: np.ndarray, poses: BodyPoses) -> tuple[np.ndarray, np.ndarray]:
    """A point (N, J, 3) and the direction (N, J, 3) of every joint's axis in the hand base frame.

    Of several joints on one body, each turns the axes of those after it; so the frame of a body between its
    joints is needed, which its pose alone does not tell.
    """
    anchor_H, axis_H = np.empty((2, *joints.shape, 3))
    p = R = np.zeros(0)
    before = -1
    for j, b in enumerate(tree.joint_body):
        if b != before:
            parent = tree.parent[b]
            R = poses.R_HB[:, parent] @ tree.R_PB[b]
            p = poses.p_HB[:, parent] + apply(poses.R_HB[:, parent], tree.p_PB[b])
            before = b
        anchor_H[:, j] = p + apply(R, tree.anchor_B[j])
        axis_H[:, j] = apply(R, tree.axis_B[j])
        travel = joints[:, j] - tree.zero[j]
        if tree.slides[j]:
            p = p + travel[:, None] * axis_H[:, j]
        else:
            R = R @ rotation_about(tree.axis_B[j], travel)
            p = anchor_H[:, j] - apply(R, tree.anchor_B[j])
    return anchor_H, axis_H


def _carries(tree: Tree) -> np.ndarray:
    """(B, J) float: 1 where a joint moves a body, because it belongs to the body or to one it hangs from."""
    carried = np.zeros((len(tree.parent), len(tree.joint_body)))
    for b, parent in enumerate(tree.parent):
        if parent >= 0:
            carried[b] = carried[parent]
        carried[b, tree.joint_body == b] = 1.0
    return carried


def _rows(
    model: Model, q: np.ndarray, body: np.ndarray, p_B: np.ndarray, n_H: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Heights (N, C) of the contact points along their normals, m, and the derivatives (N, C, K)."""
    p_H, J = _points_and_jacobian(model, q, body, p_B)
    return np.einsum("nci,nci->nc", p_H, n_H), np.einsum("nci,ncik->nck", n_H, J)


def _damped_step(rows: np.ndarray, scale: np.ndarray, way: np.ndarray) -> np.ndarray:
    """The step (N, K) of this file's head for rows (N, C, K) and wanted ways (N, C); 0 where scale is 0."""
    scaled = rows * scale[:, None]
    gram = scaled @ np.swapaxes(scaled, 1, 2) + DAMPING**2 * np.eye(rows.shape[1])
    return scale * np.einsum("nck,nc->nk", scaled, np.linalg.solve(gram, way[..., None])[..., 0])


def _never_backwards(
    q: np.ndarray, target: np.ndarray, outward_by: Callable[[np.ndarray], np.ndarray], sign: float
) -> tuple[np.ndarray, np.ndarray]:
    """Targets (N, K) halved towards q until no contact goes the wrong way, and the ways (N, C) of contacts.

    It happens where a lever is short against the turn, or where contacts share joints and contradict. What
    is still wrong after five halvings stays at q.
    """
    for halving in range(_HALVINGS + 1):
        way = sign * outward_by(target)
        wrong = np.any(way < -ROUNDING, axis=1, keepdims=True)
        if not wrong.any():
            break
        target = np.where(wrong, q + (0.5 if halving < _HALVINGS else 0.0) * (target - q), target)
    else:
        way = sign * outward_by(target)
    return target, way + 0.0  # No minus zero.


def _or_one(divisor: np.ndarray) -> np.ndarray:
    """The divisor, 1 where it is 0."""
    return np.where(divisor > 0, divisor, 1.0)


def _range(model: Model, q: np.ndarray, scale: np.ndarray, most: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends (N, K) of the joints' way: their limits, and `most` (rad) from where they are."""
    return np.maximum(model.lower, q - most * scale), np.minimum(model.upper, q + most * scale)


def _slides(model: Model) -> np.ndarray:
    """(K,) bool. Which independent joints are slides."""
    return model.tree.slides[[model.all_joints.index(name) for name in model.joints]]
