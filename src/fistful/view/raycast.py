"""A small ray caster on MuJoCo's geometry: needs no display, no GL and no system package."""

from typing import NamedTuple

import mujoco
import numpy as np
from PIL import Image

BACKGROUND = np.array([1.0, 1.0, 1.0])
_FAR = 1e3


class Camera(NamedTuple):
    """A perspective camera: position and target (3,) m, rough up direction (3,), vertical field of view."""

    eye: np.ndarray
    target: np.ndarray
    up: np.ndarray
    fov_deg: float = 30.0


def framing(points: np.ndarray, towards: np.ndarray, up: np.ndarray, fov_deg: float = 30.0) -> Camera:
    """The camera that looks at points (N, 3) along -`towards` from just far enough to see them all."""
    forward, right, above = _axes(-towards, up)
    x, y, z = points @ right, points @ above, points @ forward
    middle = [(c.min() + c.max()) / 2 for c in (x, y, z)]
    target = middle[0] * right + middle[1] * above + middle[2] * forward
    # A point at (x, y, z) from the target is in a square picture if max(|x|, |y|) <= tan(fov / 2) (D + z).
    sideways = np.maximum(np.abs(x - middle[0]), np.abs(y - middle[1])) / np.tan(np.deg2rad(fov_deg) / 2)
    distance = 1.06 * float(np.max(sideways - (z - middle[2])))
    return Camera(target - distance * forward, target, up, fov_deg)


def render(m: mujoco.MjModel, d: mujoco.MjData, camera: Camera, width: int, height: int) -> Image.Image:
    """A lit, antialiased picture of all geoms in their colours; kinematics must be up to date. No I/O.

    One light beside the camera, with shadows (by casting from the light to every visible point), and a
    little light from everywhere.
    """
    oversampling = 3
    w, h = width * oversampling, height * oversampling
    forward, right, above = _axes(camera.target - camera.eye, camera.up)
    half = np.tan(np.deg2rad(camera.fov_deg) / 2)
    u = (2 * (np.arange(w) + 0.5) / w - 1) * half * w / h
    v = (1 - 2 * (np.arange(h) + 0.5) / h) * half
    rays = forward + u[None, :, None] * right + v[:, None, None] * above
    rays = (rays / np.linalg.norm(rays, axis=-1, keepdims=True)).reshape(-1, 3)

    distance, geom, normal = _cast(m, d, camera.eye, rays)
    seen = np.flatnonzero(geom >= 0)
    image = np.tile(BACKGROUND, (len(rays), 1))
    points = camera.eye + distance[seen, None] * rays[seen]
    n = normal[seen]
    n = n * np.where(np.sum(n * rays[seen], axis=1) > 0, -1.0, 1.0)[:, None]
    light = camera.eye + np.linalg.norm(camera.target - camera.eye) * (0.7 * above - 0.6 * right)
    to_light = light - points
    reach = np.linalg.norm(to_light, axis=1, keepdims=True)
    to_light /= reach
    blocked = _cast(m, d, light, -to_light)[0] < reach[:, 0] - 1e-3
    diffuse = np.maximum(np.sum(n * to_light, axis=1), 0.0) * np.where(blocked, 0.25, 1.0)
    headlight = np.abs(np.sum(n * rays[seen], axis=1))
    halfway = to_light - rays[seen]
    halfway /= np.linalg.norm(halfway, axis=1, keepdims=True)
    gloss = np.where(blocked, 0.0, 0.12 * np.maximum(np.sum(n * halfway, axis=1), 0.0) ** 40)
    shade = 0.30 + 0.25 * headlight + 0.50 * diffuse
    image[seen] = m.geom_rgba[geom[seen], :3] * shade[:, None] + gloss[:, None]
    pixels = (255 * np.clip(image, 0, 1)).astype(np.uint8).reshape(h, w, 3)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS)


def _axes(forward: np.ndarray, up: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Orthonormal forward, right and up of a camera."""
    forward = forward / np.linalg.norm(forward)
    right = np.cross(forward, up)
    right = right / np.linalg.norm(right)
    return forward, right, np.cross(right, forward)


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
