"""A small ray caster on MuJoCo's geometry: needs no display, no GL and no system package."""

import mujoco
import numpy as np
from PIL import Image

from fistful.view.camera import AMBIENT, HEADLIGHT, KEY, SHADED, Camera, axes_of, key_light

BACKGROUND = np.array([1.0, 1.0, 1.0])
SUBPIXELS = 3
_FAR = 1e3


def render(m: mujoco.MjModel, d: mujoco.MjData, camera: Camera, width: int, height: int) -> Image.Image:
    """A lit, antialiased picture of all geoms in their colours; kinematics must be up to date. No I/O.

    One light beside the camera, with shadows (by casting from the light to every visible point), and a
    little light from everywhere. One ray a pixel, then SUBPIXELS^2 where neighbouring pixels differ.
    """
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    colour = _colours(m, d, camera, _rays(camera, x.ravel(), y.ravel(), width, height))
    colour = colour.reshape(height, width, 3)
    rough = np.argwhere(_differs(colour))
    steps = (np.arange(SUBPIXELS) + 0.5) / SUBPIXELS
    dy, dx = (offset.ravel() for offset in np.meshgrid(steps, steps))
    rays = _rays(camera, (rough[:, 1:] + dx).ravel(), (rough[:, :1] + dy).ravel(), width, height)
    colour[rough[:, 0], rough[:, 1]] = _colours(m, d, camera, rays).reshape(len(rough), -1, 3).mean(axis=1)
    return Image.fromarray((255 * np.clip(colour, 0, 1)).astype(np.uint8))


def geoms_seen(m: mujoco.MjModel, d: mujoco.MjData, camera: Camera, width: int, height: int) -> np.ndarray:
    """(height, width) int. The geom that each pixel shows, or -1; kinematics must be up to date. No I/O."""
    x, y = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    rays = _rays(camera, x.ravel(), y.ravel(), width, height)
    return _cast(m, d, camera.eye, rays)[1].reshape(height, width)


def _rays(camera: Camera, x: np.ndarray, y: np.ndarray, width: int, height: int) -> np.ndarray:
    """Unit rays (N, 3) through points x, y (N,) of the picture, in pixels from its upper left corner."""
    forward, right, above = axes_of(camera.target - camera.eye, camera.up)
    half = np.tan(np.deg2rad(camera.fov_deg) / 2)
    u, v = (2 * x - width) / height * half, (1 - 2 * y / height) * half
    rays = forward + u[:, None] * right + v[:, None] * above
    return rays / np.linalg.norm(rays, axis=1, keepdims=True)


def _differs(colour: np.ndarray) -> np.ndarray:
    """Mask (H, W) of the pixels whose colour is not that of a neighbour."""
    mask = np.zeros(colour.shape[:2], dtype=bool)
    for axis in (0, 1):
        step = np.abs(np.diff(colour, axis=axis)).max(axis=-1) > 0.08
        pad = [(0, 1), (0, 0)] if axis == 0 else [(0, 0), (0, 1)]
        mask |= np.pad(step, pad) | np.pad(step, [p[::-1] for p in pad])
    return mask


def _colours(m: mujoco.MjModel, d: mujoco.MjData, camera: Camera, rays: np.ndarray) -> np.ndarray:
    """What each ray from the camera sees, (N, 3) in 0..1."""
    colour = np.tile(BACKGROUND, (len(rays), 1))
    distance, geom, normal = _cast(m, d, camera.eye, rays)
    seen = np.flatnonzero(geom >= 0)
    if not len(seen):
        return colour
    rays, n = rays[seen], normal[seen]
    points = camera.eye + distance[seen, None] * rays
    n = n * np.where(np.sum(n * rays, axis=1) > 0, -1.0, 1.0)[:, None]
    light = key_light(camera)
    to_light = light - points
    reach = np.linalg.norm(to_light, axis=1, keepdims=True)
    to_light /= reach
    blocked = _cast(m, d, light, -to_light)[0] < reach[:, 0] - 1e-3
    diffuse = np.maximum(np.sum(n * to_light, axis=1), 0.0) * np.where(blocked, SHADED, 1.0)
    headlight = np.abs(np.sum(n * rays, axis=1))
    halfway = to_light - rays
    halfway /= np.linalg.norm(halfway, axis=1, keepdims=True)
    gloss = np.where(blocked, 0.0, 0.12 * np.maximum(np.sum(n * halfway, axis=1), 0.0) ** 40)
    shade = AMBIENT + HEADLIGHT * headlight + KEY * diffuse
    colour[seen] = m.geom_rgba[geom[seen], :3] * shade[:, None] + gloss[:, None]
    return colour


def _cast(
    m: mujoco.MjModel, d: mujoco.MjData, origin: np.ndarray, rays: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distance (N,), geom (N,) or -1, and normal (N, 3) where unit rays from one point meet a geom first."""
    n = len(rays)
    distance, geom, normal = np.empty(n), np.empty(n, dtype=np.int32), np.zeros(3 * n)
    mujoco.mj_multiRay(
        m,
        d,
        np.ascontiguousarray(origin, float),
        rays.ravel(),
        None,
        True,
        -1,
        geom,
        distance,
        normal,
        n,
        _FAR,
    )
    return np.where(geom >= 0, distance, np.inf), geom, normal.reshape(-1, 3)
