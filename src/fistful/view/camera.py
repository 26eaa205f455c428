"""A camera by where it is and what it looks at, the same for every way to draw a picture."""

from typing import NamedTuple

import numpy as np

# How bright the lights are: from everywhere, from the camera, the key light, and how much of that reaches
# into its shadows.
AMBIENT, HEADLIGHT, KEY, SHADED = 0.36, 0.28, 0.46, 0.25


class Camera(NamedTuple):
    """A perspective camera: position and target (3,) m, rough up direction (3,), vertical field of view."""

    eye: np.ndarray
    target: np.ndarray
    up: np.ndarray
    fov_deg: float = 30.0


class Axes(NamedTuple):
    """Orthonormal directions (3,) of a camera."""

    forward: np.ndarray
    right: np.ndarray
    above: np.ndarray


def axes_of(forward: np.ndarray, up: np.ndarray) -> Axes:
    """Axes of a camera that looks `forward` (3,), upright as far as `up` (3,) can be had."""
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, up)
    right = right / np.linalg.norm(right)
    return Axes(forward, right, np.cross(right, forward))


def framing(
    points: np.ndarray, towards: np.ndarray, up: np.ndarray, fov_deg: float = 30.0, aspect: float = 1.0
) -> Camera:
    """The camera that looks at points (N, 3) along -`towards` from just far enough to see them all.

    Args:
      points: (N, 3) float, m.
      towards: (3,) float. From the points to the camera.
      up: (3,) float. Rough up direction.
      fov_deg: Vertical field of view.
      aspect: Width of the picture over its height.
    """
    forward, right, above = axes_of(-towards, up)
    x, y, z = points @ right, points @ above, points @ forward
    middle = [(c.min() + c.max()) / 2 for c in (x, y, z)]
    target = middle[0] * right + middle[1] * above + middle[2] * forward
    # A point at (x, y, z) from the target is seen if max(|x| / aspect, |y|) <= tan(fov / 2) (D + z).
    sideways = np.maximum(np.abs(x - middle[0]) / aspect, np.abs(y - middle[1]))
    sideways /= np.tan(np.deg2rad(fov_deg) / 2)
    distance = 1.06 * float(np.max(sideways - (z - middle[2])))
    return Camera(target - distance * forward, target, up, fov_deg)


def turned(camera: Camera, angle: float) -> Camera:
    """The camera moved around its target by an angle, rad, about its own upward axis."""
    forward, right, above = axes_of(camera.target - camera.eye, camera.up)
    distance = float(np.linalg.norm(camera.target - camera.eye))
    ahead = np.cos(angle) * forward + np.sin(angle) * right
    return camera._replace(eye=camera.target - distance * ahead, up=above)


def key_light(camera: Camera) -> np.ndarray:
    """Where (3,), m, the light stands that casts shadows: above the camera and to its left."""
    _, right, above = axes_of(camera.target - camera.eye, camera.up)
    return camera.eye + np.linalg.norm(camera.target - camera.eye) * (0.7 * above - 0.6 * right)
