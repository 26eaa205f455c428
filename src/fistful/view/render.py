"""Pictures of a MuJoCo model without a display: by EGL, or by ray casting where there is no EGL."""

import os
from threading import Lock
from typing import Literal, get_args

import mujoco
from PIL import Image

from fistful.errors import FistfulError
from fistful.view import raycast
from fistful.view.camera import Camera
from fistful.view.egl import Canvas

Renderer = Literal["egl", "raycast"]
VARIABLE = "FISTFUL_RENDERER"

_lock = Lock()
_canvas: Canvas | None = None
_why_not: str | None = None


def render(m: mujoco.MjModel, d: mujoco.MjData, camera: Camera, width: int, height: int) -> Image.Image:
    """A lit, antialiased picture on white of all geoms in their colours; kinematics must be up to date.

    Raises:
      FistfulError: FISTFUL_RENDERER asks for something that is unknown or not there.
    """
    if renderer() == "egl":
        canvas = _egl()
        assert canvas is not None
        return canvas.draw(m, d, camera, width, height)
    return raycast.render(m, d, camera, width, height)


def renderer() -> Renderer:
    """What draws pictures in this process: EGL if it works here, if FISTFUL_RENDERER does not say otherwise.

    Raises:
      FistfulError: FISTFUL_RENDERER asks for something that is unknown or not there.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in get_args(Renderer):
        known = " or ".join(get_args(Renderer))
        raise FistfulError(f"{VARIABLE} is {wanted!r}; it is {known}, or unset for the best there is")
    if wanted == "raycast":
        return "raycast"
    if _egl() is not None:
        return "egl"
    if wanted == "egl":
        raise FistfulError(
            f"{VARIABLE} asks for EGL, which does not work here ({_why_not}); unset it to draw by ray casting"
        )
    return "raycast"


def why_no_egl() -> str | None:
    """Why EGL does not work here; None if it does, or if it was not tried yet."""
    return _why_not


def _egl() -> Canvas | None:
    """The canvas of this process, made and tried when it is first asked for."""
    global _canvas, _why_not
    with _lock:
        if _canvas is None and _why_not is None:
            try:
                _canvas = _tried()
            except Exception as error:
                # Missing libraries, drivers and devices show as errors of many kinds.
                _why_not = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return _canvas if _canvas is not None and _canvas.usable else None


def _tried() -> Canvas:
    """A canvas that has drawn a picture: a context alone does not say that drivers can."""
    import numpy as np

    m = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    canvas = Canvas()
    x, zero, z = np.eye(3)[0], np.zeros(3), np.eye(3)[2]
    try:
        pixels = np.asarray(canvas.draw(m, d, Camera(x, zero, z), 16, 16))
        if pixels[0, 0].min() < 255 or pixels[8, 8].max() == 255:
            raise RuntimeError("EGL drew a wrong picture")
    except BaseException:
        canvas.close()
        raise
    return canvas
