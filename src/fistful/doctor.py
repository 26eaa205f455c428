"""Checks of a machine: what fistful needs, tried for real."""

import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

import numpy as np


class Result(NamedTuple):
    """Name of a check, whether it passed, and one line about it."""

    name: str
    ok: bool
    detail: str


def checks() -> tuple[Callable[[], Result], ...]:
    """All checks, cheapest first; none of them raises."""
    return tuple(_guarded(check) for check in (_python, _packages, _cache, _kernels, _hand, _picture))


def _guarded(check: Callable[[], tuple[str, str]]) -> Callable[[], Result]:
    """A failing check is a result, not an exception."""
    name = check.__name__.strip("_")

    def run() -> Result:
        try:
            title, detail = check()
            return Result(title, True, detail)
        except Exception as error:
            return Result(name, False, f"{type(error).__name__}: {' '.join(str(error).split())}")

    return run


def _python() -> tuple[str, str]:
    return "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"


def _packages() -> tuple[str, str]:
    names = [
        r.split(";")[0].split(">")[0].split("<")[0].strip()
        for r in requires("fistful") or []
        if "extra" not in r
    ]
    missing = []
    found = []
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        raise RuntimeError(
            f"not installed: {', '.join(missing)}; run {sys.executable} -m pip install fistful"
        )
    return "packages", ", ".join(found)


def _cache() -> tuple[str, str]:
    from fistful.storage import content_key, default_storage

    storage = default_storage("doctor")
    key = content_key("doctor")
    storage.store(key, {"x": np.arange(3)}, {})
    if storage.load(key).entry is None:
        raise RuntimeError(f"what was written to {storage.folder} can not be read back")
    storage.path(key).unlink()
    return "cache", f"{storage.folder.parent} is writable"


def _kernels() -> tuple[str, str]:
    import warp

    from fistful.geometry.mesh_distance import signed_distance

    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=float)
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    distance = signed_distance(corners, faces, np.array([[0.1, 0.1, 0.1], [-0.5, 0.2, 0.2]])).values
    if not np.allclose(distance, [-0.1, 0.5], atol=1e-5):
        raise RuntimeError(f"the compiled distance kernel is wrong on this machine: {distance}")
    return "kernels", f"compiled and correct; kept in {warp.config.kernel_cache_dir}"


def _hand() -> tuple[str, str]:
    from fistful.hands import hand_names, load_hand

    hands = [load_hand(name) for name in hand_names()]
    return "hands", ", ".join(hand.name for hand in hands)


def _picture() -> tuple[str, str]:
    import mujoco

    from fistful.view.camera import framing
    from fistful.view.render import render, renderer, why_no_egl

    spec = mujoco.MjSpec.from_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
    m = spec.compile()
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    x, z = np.eye(3)[[0, 2]]
    picture = np.asarray(render(m, d, framing(0.1 * np.array([x, -x, z, -z]), x + z, z), 16, 16))
    if picture.min() == picture.max():
        raise RuntimeError(f"{renderer()} drew an empty picture")
    if renderer() == "egl":
        return "pictures", "drawn by EGL; no display is needed"
    return "pictures", f"drawn by ray casting; EGL: {why_no_egl() or 'not asked for'}"
