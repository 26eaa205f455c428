"""The shake of SeqGrasp's Fig. 6: palm down, left and right, then the wrist turned by +-90 degrees.

Seen from the hand, which moves, nothing moves but the objects, and these feel inertial forces beside their
weight. Simulated that way it is exact: a hand that is moved in the world would slip a little under its
objects at every step, by the square of the step. The joints are taken to be fed forward: they do not feel
the motion.
"""

from typing import NamedTuple

import numpy as np

from fistful.geometry.pose import apply, rotation_about

SIDE = 0.1
"""m to each side."""
_SWINGS = ((0.0, SIDE, 0.35), (SIDE, -SIDE, 0.5), (-SIDE, SIDE, 0.5), (SIDE, 0.0, 0.35))
_TURNS = ((0.0, np.pi / 2, 1.0), (np.pi / 2, -np.pi / 2, 2.0), (-np.pi / 2, 0.0, 1.0))
"""From, to and seconds of each leg, eased by a cosine: at most 4 m/s2 sideways; 2.5 rad/s is what the last
joint of a Panda arm can do."""


class Motion(NamedTuple):
    """The motion of the hand at one time, in its own base frame H; gravity is part of it."""

    felt_H: np.ndarray
    """(3,) float, m/s2. Gravity minus the acceleration of the base: what a body at rest in the hand feels."""
    omega_H: np.ndarray
    """(3,) float, rad/s. Angular velocity."""
    alpha_H: np.ndarray
    """(3,) float, rad/s2. Angular acceleration."""


def motion(t: float, down_H: np.ndarray, along_H: np.ndarray, gravity: float) -> Motion:
    """The hand t s after the shake began. It is still once both parts are over.

    Args:
      t: s.
      down_H: (3,) float. Unit vector out of the palm, the way of gravity while the palm faces down.
      along_H: (3,) float. Unit vector along the fingers, about which the wrist turns.
      gravity: m/s2.
    """
    swing_s = sum(leg[2] for leg in _SWINGS)
    _, _, sideways = _eased(_SWINGS, t)
    angle, speed, turning = _eased(_TURNS, t - swing_s)
    felt = gravity * down_H - sideways * np.cross(down_H, along_H)
    return Motion(rotation_about(along_H, np.array(-angle)) @ felt, speed * along_H, turning * along_H)


def inertial_wrench(
    moving: Motion,
    mass: np.ndarray,
    inertia_H: np.ndarray,
    r_H: np.ndarray,
    v_H: np.ndarray,
    w_H: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Weight and inertial force (..., 3), N, and torque (..., 3), N m, about the centres of mass of bodies.

    With L = I (omega + w), the balance of momentum in the turning frame gives

        f = m (felt - alpha x r - omega x (omega x r) - 2 omega x v),
        tau = - I alpha - w x (I omega) + I (w x omega) - omega x (I (omega + w)).

    Args:
      moving: Motion of the hand.
      mass: (...) float, kg.
      inertia_H: (..., 3, 3) float, kg m2. About the centres of mass.
      r_H, v_H, w_H: (..., 3) float. Places, velocities and angular velocities of the bodies in the hand.
    """
    felt, omega, alpha = moving
    spin = np.cross(omega, r_H)
    f = felt - np.cross(alpha, r_H) - np.cross(omega, spin) - 2 * np.cross(omega, v_H)
    tau = (
        -apply(inertia_H, alpha)
        - np.cross(w_H, apply(inertia_H, omega))
        + apply(inertia_H, np.cross(w_H, omega))
        - np.cross(omega, apply(inertia_H, omega + w_H))
    )
    return mass[..., None] * f, tau


def _eased(legs: tuple[tuple[float, float, float], ...], t: float) -> tuple[float, float, float]:
    """Place, speed and acceleration on a way of legs, at rest between them."""
    if t < 0:
        return legs[0][0], 0.0, 0.0
    for start, end, seconds in legs:
        if t < seconds:
            half, rate = (end - start) / 2, np.pi / seconds
            phase = rate * t
            return (
                start + half * (1 - np.cos(phase)),
                half * rate * np.sin(phase),
                half * rate**2 * np.cos(phase),
            )
        t -= seconds
    return legs[-1][1], 0.0, 0.0
