"""A plan in motion: every stage from its pre-grasp to the squeeze, then a turn around what the hand holds."""

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from fistful.planning.plan import Plan
from fistful.storage import write_file
from fistful.view.camera import Camera, axes_of, turned
from fistful.view.figure import Figure, best_views, view_of
from fistful.view.moment import joints_between
from fistful.view.picture import caption, figures_of, write
from fistful.view.render import render

CLOSING, SQUEEZING, RESTING, OPENING, TURNING = 9, 3, 4, 4, 36
"""Frames: to the grasp, to the squeeze, at rest, to the next pre-grasp, around."""
FRAME_MS = 80
LARGEST = 5_000_000
"""Bytes. Animations that would be larger are saved with fewer colours, then smaller."""


def plan_animation(
    plan: Plan,
    stage: int = -1,
    grasp: int | None = None,
    size: int = 480,
    progress: Callable[[str], None] | None = None,
) -> list[Image.Image]:
    """Frames of the sequence that leads to a grasp (by default the best of the stage). No I/O.

    1. For each stage: the hand at the pre-grasp, closing to the grasp, squeezing. Objects are shown from
       their own stage on.
    2. On to the next stage's pre-grasp, with what is held so far.
    3. Once around the hand with everything that it holds.

    Args:
      plan: Plan.
      stage: Number of the last stage.
      grasp: Which grasp of it.
      size: Width of a frame, in pixels; a line of text is below.
      progress: Called with a line now and then.
    """
    figures = figures_of(plan, stage, grasp)
    camera = _camera(plan, figures)
    total = sum(len(_motion(figures, n)) for n in range(len(figures))) + TURNING
    frames: list[Image.Image] = []

    def shoot(figure: Figure, q: np.ndarray, seen_from: Camera) -> None:
        if progress is not None:
            progress(f"picture {len(frames) + 1} of {total}")
        figure.pose(q)
        picture = render(figure.m, figure.d, seen_from, size, size)
        frames.append(_captioned(picture, caption(plan, figure)))

    for n, figure in enumerate(figures):
        for q in _motion(figures, n):
            shoot(figure, q, camera)
    for k in range(TURNING):
        shoot(figures[-1], figures[-1].moment.q[2], turned(camera, 2 * np.pi * k / TURNING))
    return frames


def _motion(figures: Sequence[Figure], number: int) -> list[np.ndarray]:
    """Joints (K,) of all frames of a stage."""
    moment = figures[number].moment
    phases = [*np.linspace(0, 1, CLOSING), *np.linspace(1, 2, SQUEEZING + 1)[1:], *[2.0] * RESTING]
    path = [joints_between(moment, phase) for phase in phases]
    if number + 1 < len(figures):
        start, end = moment.q[2], figures[number + 1].moment.q[0]
        path += [start + s * (end - start) for s in np.linspace(0, 1, OPENING + 2)[1:-1]]
    return path


def _camera(plan: Plan, figures: Sequence[Figure]) -> Camera:
    """One camera for all frames: nothing leaves the picture, neither opening nor turning."""
    way = best_views(figures[-1])[0]
    seen = np.concatenate([f.points(q) for f in figures for q in f.moment.q])
    camera = view_of(plan.hand, seen, way)
    last = figures[-1].points(figures[-1].moment.q[2]) - camera.target
    forward, right, above = axes_of(camera.target - camera.eye, camera.up)
    around = []
    for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
        x, z = last @ right, last @ forward
        x, z = np.cos(angle) * x - np.sin(angle) * z, np.sin(angle) * x + np.cos(angle) * z
        around.append(np.outer(x, right) + np.outer(last @ above, above) + np.outer(z, forward))
    # Framed symmetrically about the axis of the turn, which is the camera's target.
    mirrored = np.concatenate([seen - camera.target, *around])
    flip = 2 * np.outer(mirrored @ right, right)
    both = np.concatenate([mirrored, mirrored - flip]) + camera.target
    return view_of(plan.hand, both, way)


def _captioned(picture: Image.Image, text: str) -> Image.Image:
    size = max(13, picture.width // 24)
    page = Image.new("RGB", (picture.width, picture.height + round(1.8 * size)), "white")
    page.paste(picture, (0, 0))
    write(ImageDraw.Draw(page), text, picture.width / 2, picture.height + 0.3 * size, size, picture.width - 8)
    return page


def save_gif(frames: Sequence[Image.Image], path: Path) -> None:
    """Write an animation that repeats, atomically, below 5 MB: with fewer colours or smaller if need be.

    Raises:
      ValueError: There is no frame.
    """
    if not frames:
        raise ValueError("an animation needs at least one frame")
    path.parent.mkdir(parents=True, exist_ok=True)
    body = b""
    for shrink, colours in ((1.0, 256), (1.0, 96), (0.75, 96), (0.5, 64), (0.25, 32)):
        body = _gif(_resized(frames, shrink), colours)
        if len(body) < LARGEST:
            break
    write_file(path, lambda file: file.write(body))


def _resized(frames: Sequence[Image.Image], factor: float) -> list[Image.Image]:
    size = (round(factor * frames[0].width), round(factor * frames[0].height))
    return [frame.convert("RGB") if factor == 1 else frame.convert("RGB").resize(size) for frame in frames]


def _gif(frames: Sequence[Image.Image], colours: int) -> bytes:
    """One palette for all frames, of samples of them: nothing flickers, and what is still is saved once."""
    chosen = [frames[k] for k in sorted({round(k) for k in np.linspace(0, len(frames) - 1, 8)})]
    samples = Image.new("RGB", (frames[0].width, sum(f.height for f in chosen)))
    for k, frame in enumerate(chosen):
        samples.paste(frame, (0, k * frame.height))
    few = samples.resize((samples.width // 2, samples.height // 2), Image.Resampling.NEAREST)
    palette = few.quantize(colours, Image.Quantize.MAXCOVERAGE, kmeans=1)
    indexed = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    file = BytesIO()
    indexed[0].save(
        file,
        "GIF",
        save_all=True,
        append_images=indexed[1:],
        duration=FRAME_MS,
        loop=0,
        optimize=False,
        disposal=1,
    )
    return file.getvalue()
