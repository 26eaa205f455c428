"""Pictures of a simulated grasp of soft jaws: pads coloured by strain energy, on their way."""

import mujoco
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fistful.geometry.pose import quaternion_from_rotation
from fistful.jaws.jaw_run import JawRun
from fistful.jaws.outcome import Frame
from fistful.view.camera import Camera, framing
from fistful.view.figure import add_mesh
from fistful.view.fingers import FINGER, fingers
from fistful.view.picture import sheet
from fistful.view.render import render
from fistful.view.strain import OBJECT, largest_energy, patches, ramp

SIZE = 420
_PLANE = (0.93, 0.94, 0.95)


def jaw_picture(run: JawRun, size: int = SIZE) -> Image.Image:
    """The first touch, the squeeze, and how it ended, in a row, with forces and a legend. No I/O."""
    frames, camera, largest = run.recording.frames, _camera(run), largest_energy(run)
    cells = []
    for name, k in _moments(run):
        picture = frame_picture(run, frames[k], camera, largest, size)
        force = run.force_N[min(k, len(run.force_N) - 1)].mean() if len(run.force_N) else 0.0
        cells.append((f"{name}, {1e3 * frames[k].time:.0f} ms, {abs(force):.1f} N", picture))
    return _with_legend(sheet(cells, len(cells)), largest)


def jaw_animation(run: JawRun, size: int = SIZE, most: int = 36) -> list[Image.Image]:
    """Frames of the whole grasp, at most so many. No I/O."""
    frames = run.recording.frames
    chosen = np.unique(np.linspace(0, len(frames) - 1, min(most, len(frames))).round().astype(int))
    camera, largest = _camera(run), largest_energy(run)
    return [frame_picture(run, frames[k], camera, largest, size) for k in chosen]


def frame_picture(run: JawRun, frame: Frame, camera: Camera, largest: float, size: int) -> Image.Image:
    """One frame. No I/O."""
    spec = mujoco.MjSpec()
    geom = add_mesh(spec, "object", run.vertices_O, run.faces)
    geom.pos, geom.quat = frame.p_WO, quaternion_from_rotation(frame.R_WO)
    geom.rgba = [*OBJECT, 1]
    extent = 0.6 * float(np.ptp(run.vertices_O, axis=0).max()) + 0.03
    middle = np.asarray(run.record["p_WG"])[:2]
    plane = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, pos=[*middle, -0.0005])
    plane.size, plane.rgba = [extent, extent, 0.0005], [*_PLANE, 1]
    for jaw in range(2):
        _add_pad(spec, run, frame, jaw, largest)
    for box in fingers(run, frame):
        part = spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, pos=box.centre_W, size=box.half)
        part.quat, part.rgba = quaternion_from_rotation(box.R_WG), [*FINGER, 1]
    m = spec.compile()
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    return render(m, d, camera, size, size)


def _add_pad(spec: mujoco.MjSpec, run: JawRun, frame: Frame, jaw: int, largest: float) -> None:
    """The surface of a pad: a mesh has one colour, so there is one mesh a shade."""
    for patch in patches(run, frame, jaw, largest):
        # A flat patch has no volume. MuJoCo wants points off its plane, so it gets some that no face uses.
        spare = patch.vertices_W.mean(axis=0) + 1e-5 * np.eye(3)
        vertices = np.concatenate([patch.vertices_W, spare])
        geom = add_mesh(spec, f"pad {jaw} {patch.shade}", vertices, patch.faces)
        geom.rgba = [*patch.colour, 1]


def _with_legend(picture: Image.Image, largest: float) -> Image.Image:
    """The same with a bar of the pads' colours below."""
    high, left, wide = 34, 14, 220
    out = Image.new("RGB", (picture.width, picture.height + high), "white")
    out.paste(picture, (0, 0))
    draw, y = ImageDraw.Draw(out), picture.height + 4
    for x in range(wide):
        # As the pads: the shade goes with the root of the density.
        colour = tuple(round(255 * c) for c in ramp((x / wide) ** 0.5))
        draw.line((left + x, y, left + x, y + 18), fill=colour)
    told = f"strain energy of the pads, 0 to {largest / 1e3:.3g} kJ per m3"
    draw.text((left + wide + 12, y + 9), told, "black", ImageFont.load_default(16), anchor="lm")
    return out


def _moments(run: JawRun) -> list[tuple[str, int]]:
    """Names and places of the frames of `jaw_picture`."""
    last = len(run.recording.frames) - 1
    lifted = np.flatnonzero(run.height_mm > 0.2)
    squeezed = min(max(int(lifted[0]) - 1, 0), last) if len(lifted) else last
    moments = [("touching", 0), ("squeezed", squeezed), (run.record["outcome"]["reason"], last)]
    return moments if len(lifted) else [moments[0], moments[2]]


def _camera(run: JawRun) -> Camera:
    """Sees everything from first to last frame: across the closing axis, along it and from above."""
    frames = run.recording.frames
    points = [
        x.reshape(-1, 3)
        for f in (frames[0], frames[-1])
        for x in (
            f.nodes_W,
            f.p_WO + run.vertices_O @ np.asarray(f.R_WO).T,
            np.stack([box.corners_W for box in fingers(run, f)]),
        )
    ]
    up = np.array([0.0, 0.0, 1.0])
    axis = np.asarray(run.record["R_WG"])[:, 0]
    level = axis - (axis @ up) * up
    level = level / np.linalg.norm(level) if np.linalg.norm(level) > 0.1 else np.array([1.0, 0.0, 0.0])
    return framing(np.concatenate(points), 0.7 * level + np.cross(level, up) + 0.45 * up, up)
