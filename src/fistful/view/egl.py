"""MuJoCo's own renderer on an EGL context: no display needed, no environment variable.

Invariant: all of OpenGL happens under one lock, with the context made current before and released after. So
any thread may draw, and whoever else uses OpenGL in this process finds no context of ours in the way.
"""

import atexit
import os
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from PIL import Image

from fistful.view.camera import AMBIENT, HEADLIGHT, KEY, SHADED, Camera, axes_of, key_light

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLES = 8
"""Samples a pixel that are asked for; drivers give what they can."""
FINER = 2
"""Pictures are drawn this much larger and averaged: multisampling leaves highlights and shadows jagged."""
# Side of the shadow map; slices and stacks of round shapes.
_SHADOW, _SLICES, _STACKS = 4096, 48, 24
# Lights shine this far off their axis; the shadow map covers the part of that which the camera sees.
_CUTOFF_DEG = 80.0
_PLATFORM = "PYOPENGL_PLATFORM"


class Canvas:
    """Where pictures are drawn: one OpenGL context, and what it was told about the last model drawn.

    Raises:
      Exception: EGL can not be had; of which kind depends on what is missing.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._pid = os.getpid()
        self._model: mujoco.MjModel | None = None
        self._loaded: mujoco.MjrContext | None = None
        before = os.environ.get(_PLATFORM)
        try:
            # PyOpenGL looks at the variable when it is imported, here; programs that we start should not.
            from mujoco.egl import GLContext
        finally:
            if before is None:
                os.environ.pop(_PLATFORM, None)
        self._gl = GLContext(1, 1)
        # After MuJoCo's own handler, which ends EGL, was registered: so before it runs.
        atexit.register(self.close)

    @property
    def usable(self) -> bool:
        """Whether this process made the context: a forked one has lost the threads of the driver."""
        return self._pid == os.getpid()

    def close(self) -> None:
        """Give the context back. Without this, Python complains when it exits."""
        if self._gl is None or not self.usable:
            return
        with self._lock:
            self._gl.make_current()
            self._unload()
            self._gl.free()
            self._gl = None

    def draw(
        self, m: mujoco.MjModel, d: mujoco.MjData, camera: Camera, width: int, height: int
    ) -> Image.Image:
        """A lit, antialiased picture of all geoms in their colours; kinematics must be up to date."""
        size = (FINER * width, FINER * height)
        pixels = np.empty((size[1], size[0], 3), dtype=np.uint8)
        scene = _scene(m, d, camera)
        with self._current():
            loaded = self._load(m)
            loaded.shadowScale = min(0.9, 0.8 * camera.fov_deg / _CUTOFF_DEG)
            if loaded.offWidth != size[0] or loaded.offHeight != size[1]:
                mujoco.mjr_resizeOffscreen(*size, loaded)
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, loaded)
            if loaded.currentBuffer != mujoco.mjtFramebuffer.mjFB_OFFSCREEN:
                raise RuntimeError("EGL has no offscreen framebuffer")
            view = mujoco.MjrRect(0, 0, *size)
            mujoco.mjr_render(view, scene, loaded)
            mujoco.mjr_readPixels(pixels, None, view, loaded)
        return Image.fromarray(np.flipud(pixels)).reduce(FINER)

    @contextmanager
    def _current(self) -> "Iterator[None]":
        from mujoco import egl
        from OpenGL import EGL

        with self._lock:
            if self._gl is None:
                raise RuntimeError("the EGL context is closed")
            self._gl.make_current()
            try:
                yield
            finally:
                none = EGL.EGL_NO_SURFACE
                EGL.eglMakeCurrent(egl.EGL_DISPLAY, none, none, EGL.EGL_NO_CONTEXT)

    def _load(self, m: mujoco.MjModel) -> mujoco.MjrContext:
        """Meshes of a model on the device. The last model is kept, so that animations send it once."""
        if self._loaded is None or self._model is not m:
            self._unload()
            quality, wanted = m.vis.quality, (SAMPLES, _SHADOW, _SLICES, _STACKS)
            names = ("offsamples", "shadowsize", "numslices", "numstacks")
            before = [getattr(quality, name) for name in names]
            for name, value in zip(names, wanted, strict=True):
                setattr(quality, name, value)
            try:
                self._loaded = mujoco.MjrContext(m, mujoco.mjtFontScale.mjFONTSCALE_50)
            finally:
                for name, value in zip(names, before, strict=True):
                    setattr(quality, name, value)
            self._model = m
        return self._loaded

    def _unload(self) -> None:
        if self._loaded is not None:
            self._loaded.free()
        self._loaded = self._model = None


def _scene(m: mujoco.MjModel, d: mujoco.MjData, camera: Camera) -> mujoco.MjvScene:
    """All geoms with our camera, our lights and a white wall behind them."""
    scene = mujoco.MjvScene(m, maxgeom=m.ngeom + 8)
    options = mujoco.MjvOption()
    options.flags[:] = 0
    options.flags[mujoco.mjtVisFlag.mjVIS_STATIC] = 1
    options.geomgroup[:] = 1
    everything = mujoco.mjtCatBit.mjCAT_ALL.value
    mujoco.mjv_updateScene(m, d, options, None, mujoco.MjvCamera(), everything, scene)
    scene.flags[:] = 0
    scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = 1
    _part(scene, camera)
    _aim(scene, camera)
    _light(scene, camera)
    _add_wall(scene, camera)
    return scene


def _part(scene: mujoco.MjvScene, camera: Camera) -> None:
    """Flat faces of different boxes apart by a hundredth of a pixel or so.

    MuJoCo adds the light that casts shadows in a pass of its own: where faces of two boxes lie in one plane,
    as in hands made of boxes, it would be added twice, in speckles.
    """
    step = 1e-5 * float(np.linalg.norm(camera.target - camera.eye))
    for k in range(scene.ngeom):
        geom = scene.geoms[k]
        if geom.type == mujoco.mjtGeom.mjGEOM_BOX:
            geom.size = np.maximum(geom.size - k * step, 0.5 * geom.size)


def _aim(scene: mujoco.MjvScene, camera: Camera) -> None:
    """The camera as it is, which MuJoCo's own free camera (azimuth, elevation, no roll) could not be."""
    distance = float(np.linalg.norm(camera.target - camera.eye))
    forward, _, above = axes_of(camera.target - camera.eye, camera.up)
    near, far = 0.1 * distance, 5 * distance
    half = near * float(np.tan(np.deg2rad(camera.fov_deg) / 2))
    for eye in scene.camera:
        eye.pos, eye.forward, eye.up = camera.eye, forward, above
        eye.frustum_near, eye.frustum_far = near, far
        eye.frustum_bottom, eye.frustum_top = -half, half
        # Zero: the width follows from the shape of the picture.
        eye.frustum_center, eye.frustum_width, eye.orthographic = 0.0, 0.0, 0


def _light(scene: mujoco.MjvScene, camera: Camera) -> None:
    """The lights of the ray caster: from everywhere, from the camera, and the key light with and without
    shadows."""
    key = key_light(camera)
    to_target = (camera.target - key) / np.linalg.norm(camera.target - key)
    ahead = (camera.target - camera.eye) / np.linalg.norm(camera.target - camera.eye)
    lights = (
        (camera.eye, ahead, AMBIENT, HEADLIGHT, 0.0, 0),
        (key, to_target, 0.0, SHADED * KEY, 0.0, 0),
        (key, to_target, 0.0, (1 - SHADED) * KEY, 0.24, 1),
    )
    for light, (place, way, ambient, diffuse, specular, shadows) in zip(scene.lights, lights, strict=False):
        light.pos, light.dir = place, way
        light.ambient, light.diffuse, light.specular = [ambient] * 3, [diffuse] * 3, [specular] * 3
        light.attenuation, light.exponent, light.castshadow, light.headlight = [1, 0, 0], 0.0, shadows, 0
        light.type, light.texid = mujoco.mjtLightType.mjLIGHT_SPOT, -1
        light.cutoff = _CUTOFF_DEG
    scene.nlight = len(lights)


def _add_wall(scene: mujoco.MjvScene, camera: Camera) -> None:
    """A white wall far behind everything: without one the background is black, and so are edges."""
    distance = float(np.linalg.norm(camera.target - camera.eye))
    forward, right, above = axes_of(camera.target - camera.eye, camera.up)
    place = camera.eye + 4.5 * distance * forward
    wall = scene.geoms[scene.ngeom]
    size = np.array([20 * distance, 20 * distance, 0.01 * distance])
    turn = np.stack([right, above, -forward], axis=1).ravel()
    mujoco.mjv_initGeom(wall, mujoco.mjtGeom.mjGEOM_BOX, size, place, turn, np.ones(4, dtype=np.float32))
    wall.emission, wall.specular, wall.category = 1.0, 0.0, mujoco.mjtCatBit.mjCAT_DECOR
    scene.ngeom += 1
