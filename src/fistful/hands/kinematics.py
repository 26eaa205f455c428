"""Forward kinematics of a tree of bodies, in batches."""

from typing import NamedTuple

import numpy as np

from fistful.geometry.pose import apply, rotation_about


class Tree(NamedTuple):
    """Bodies in topological order and the joints between them; H is the hand base, body 0.

    Attributes:
      parent: (B,) int. Index of each body's parent P, smaller than its own; -1 for the base.
      p_PB: (B, 3) float, m. Origin of the body in its parent with all joints at `zero`.
      R_PB: (B, 3, 3) float. Orientation, likewise.
      joint_body: (J,) int, non-decreasing. The body each joint moves; several joints of one body are applied
        in order.
      slides: (J,) bool. True for a prismatic joint, False for a hinge.
      anchor_B: (J, 3) float, m. A point of the hinge axis in the body frame.
      axis_B: (J, 3) float, unit. Axis in the body frame.
      zero: (J,) float. Joint value at which the body is at (p_PB, R_PB).
    """

    parent: np.ndarray
    p_PB: np.ndarray
    R_PB: np.ndarray
    joint_body: np.ndarray
    slides: np.ndarray
    anchor_B: np.ndarray
    axis_B: np.ndarray
    zero: np.ndarray


class BodyPoses(NamedTuple):
    """Poses of all bodies in the hand base frame: p_HB (..., B, 3), R_HB (..., B, 3, 3)."""

    p_HB: np.ndarray
    R_HB: np.ndarray

    def points(self, body: np.ndarray, p_B: np.ndarray) -> np.ndarray:
        """Points (N, 3) fixed to bodies (N,), in the hand base frame: (..., N, 3)."""
        return self.p_HB[..., body, :] + apply(self.R_HB[..., body, :, :], p_B)

    def directions(self, body: np.ndarray, v_B: np.ndarray) -> np.ndarray:
        """Directions (N, 3) fixed to bodies (N,), in the hand base frame: (..., N, 3)."""
        return apply(self.R_HB[..., body, :, :], v_B)


def forward_kinematics(tree: Tree, joints: np.ndarray) -> BodyPoses:
    """Poses of all bodies for a batch of joint vectors.

    Args:
      tree: Bodies and joints.
      joints: (..., J) float. Every joint of the tree, coupled ones included.

    Returns:
      Poses with the batch shape of `joints`.
    """
    joints = np.asarray(joints, dtype=float)
    batch, bodies = joints.shape[:-1], len(tree.parent)
    p_HB = np.empty((*batch, bodies, 3))
    R_HB = np.empty((*batch, bodies, 3, 3))
    carried: list[list[int]] = [[] for _ in tree.parent]
    for j, b in enumerate(tree.joint_body):
        carried[b].append(j)
    for b, parent in enumerate(tree.parent):
        p = np.broadcast_to(tree.p_PB[b], (*batch, 3))
        R = np.broadcast_to(tree.R_PB[b], (*batch, 3, 3))
        for j in carried[b]:
            travel = joints[..., j] - tree.zero[j]
            if tree.slides[j]:
                p = p + travel[..., None] * apply(R, tree.axis_B[j])
            else:
                # The anchor stays where it is: p + R a = p' + R' a.
                turned = R @ rotation_about(tree.axis_B[j], travel)
                p = p + apply(R - turned, tree.anchor_B[j])
                R = turned
        if parent >= 0:
            p = p_HB[..., parent, :] + apply(R_HB[..., parent, :, :], p)
            R = R_HB[..., parent, :, :] @ R
        p_HB[..., b, :], R_HB[..., b, :, :] = p, R
    return BodyPoses(p_HB, R_HB)
