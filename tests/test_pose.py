"""Rotations: group axioms, round trips, and two other libraries' formulas."""

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from fistful.geometry.pose import (
    apply,
    quaternion_from_rotation,
    rotation_about,
    rotation_from_quaternion,
    rotation_from_rpy,
)

repeated = settings(max_examples=50, deadline=None, derandomize=True)
seeds = st.integers(0, 2**32 - 1)
angles = st.floats(-10, 10)


def quaternions(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(*shape, 4))


@repeated
@given(seeds)
def test_rotation_from_quaternion_is_a_rotation_and_scipys(seed):
    wxyz = quaternions(seed, 5, 2)
    R = rotation_from_quaternion(wxyz)
    np.testing.assert_allclose(R @ np.swapaxes(R, -1, -2), np.broadcast_to(np.eye(3), R.shape), atol=1e-12)
    np.testing.assert_allclose(np.linalg.det(R), 1)
    expected = Rotation.from_quat(wxyz.reshape(-1, 4), scalar_first=True).as_matrix()
    np.testing.assert_allclose(R.reshape(-1, 3, 3), expected, atol=1e-12)


@repeated
@given(seeds, st.floats(0.01, 100))
def test_quaternion_need_not_be_normalised_and_has_two_signs(seed, scale):
    wxyz = quaternions(seed)
    for other in (scale * wxyz, -wxyz):
        np.testing.assert_allclose(
            rotation_from_quaternion(other), rotation_from_quaternion(wxyz), atol=1e-12
        )


@repeated
@given(seeds)
def test_quaternion_round_trip(seed):
    wxyz = quaternions(seed)
    wxyz /= np.linalg.norm(wxyz)
    back = quaternion_from_rotation(rotation_from_quaternion(wxyz))
    assert back[0] >= 0
    assert abs(back @ wxyz) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("axis", np.concatenate([np.eye(3), [[0.6, 0.8, 0], [0.6, 0, -0.8]]]))
def test_half_turns_where_the_trace_formula_divides_by_zero(axis):
    R = rotation_about(axis, np.pi)
    np.testing.assert_allclose(rotation_from_quaternion(quaternion_from_rotation(R)), R, atol=1e-12)


@repeated
@given(seeds, st.floats(0, 0.05))
def test_nearest_rotation_of_a_matrix_with_rounding(seed, noise):
    R = rotation_from_quaternion(quaternions(seed))
    rough = R + noise * np.random.default_rng(seed).uniform(-1, 1, (3, 3))
    left, _, right = np.linalg.svd(rough)
    np.testing.assert_allclose(
        rotation_from_quaternion(quaternion_from_rotation(rough)), left @ right, atol=2 * noise**2 + 1e-12
    )


@repeated
@given(seeds, angles, angles)
def test_rotations_about_one_axis_add_up(seed, a, b):
    axis = np.random.default_rng(seed).normal(size=3)
    axis /= np.linalg.norm(axis)
    product = rotation_about(axis, a) @ rotation_about(axis, b)
    np.testing.assert_allclose(product, rotation_about(axis, a + b), atol=1e-12)
    np.testing.assert_allclose(rotation_about(axis, a) @ axis, axis, atol=1e-12)
    np.testing.assert_allclose(rotation_about(axis, -a), rotation_about(axis, a).T, atol=1e-12)


@repeated
@given(seeds, angles)
def test_rotation_about_is_mujocos(seed, angle):
    axis = np.random.default_rng(seed).normal(size=3)
    axis /= np.linalg.norm(axis)
    wxyz, expected = np.empty(4), np.empty(9)
    mujoco.mju_axisAngle2Quat(wxyz, axis, angle)
    mujoco.mju_quat2Mat(expected, wxyz)
    np.testing.assert_allclose(rotation_about(axis, angle), expected.reshape(3, 3), atol=1e-12)


def test_rotation_about_keeps_the_batch_shape():
    angle = np.linspace(0, 1, 6).reshape(2, 3)
    R = rotation_about(np.array([0, 0, 1.0]), angle)
    assert R.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(R[1, 2], rotation_about(np.array([0, 0, 1.0]), 1.0))


@repeated
@given(angles, angles, angles)
def test_rpy_is_about_fixed_axes_in_the_order_roll_pitch_yaw(roll, pitch, yaw):
    expected = Rotation.from_euler("xyz", [roll, pitch, yaw]).as_matrix()
    np.testing.assert_allclose(rotation_from_rpy(np.array([roll, pitch, yaw])), expected, atol=1e-12)


def test_rpy_by_hand():
    # Roll takes y to z, yaw leaves z alone; x goes to y by yaw.
    R = rotation_from_rpy(np.array([np.pi / 2, 0, np.pi / 2]))
    np.testing.assert_allclose(R, [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=1e-12)


def test_apply_matches_a_loop():
    rng = np.random.default_rng(0)
    R, v = rng.normal(size=(4, 5, 3, 3)), rng.normal(size=(4, 5, 3))
    expected = [[R[i, j] @ v[i, j] for j in range(5)] for i in range(4)]
    np.testing.assert_allclose(apply(R, v), expected)
