"""Pictures without a browser: both ways to draw them agree, plans in stills and in motion, charts."""

import colorsys
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from PIL import Image

import fistful as ff
from fistful.errors import FistfulError
from fistful.view import animation, chart, raycast, render
from fistful.view.animation import plan_animation, save_gif
from fistful.view.camera import Camera, axes_of, framing, turned
from fistful.view.colours import ACTIVE, FROZEN, RGB, SEQUENCE
from fistful.view.figure import best_views, figure_of, view_axes
from fistful.view.picture import figures_of, grasp_picture, object_picture, plan_picture

SIZE = 96
NAMES = ("ball", "cube")
TURNING = 10
"""Frames of a turn; fewer than users get."""


def has_egl() -> bool:
    return render._egl() is not None


needs_egl = pytest.mark.skipif("not has_egl()", reason="EGL does not work here: pictures are by ray casting")


@pytest.fixture(autouse=True)
def unforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(render.VARIABLE, raising=False)


@pytest.fixture(scope="module")
def plan() -> ff.Plan:
    objects = [ff.load_object(name, rescale=True) for name in NAMES]
    return ff.plan(ff.load_hand("allegro"), objects, count=8, validate=False)


def scene() -> tuple[mujoco.MjModel, mujoco.MjData]:
    """Primitives and a mesh that is neither centred nor aligned, in groups that viewers hide."""
    vertices = np.array([[0, 0, 0], [0.2, 0, 0], [0, 0.1, 0], [0, 0, 0.15]], dtype=float) + 0.05
    faces = np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]])
    spec = mujoco.MjSpec.from_string("""<mujoco><worldbody>
        <geom type="box" size=".02 .06 .1" pos="-.1 0 0" euler="20 30 0" rgba=".9 .2 .2 1" group="4"/>
        <body pos="0 0 -.1"><joint/><geom type="capsule" size=".03 .08" euler="70 0 0" rgba="0 .6 .3 1"/>
        </body>
        <geom type="cylinder" size=".03 .05" pos="0 .12 .1" rgba=".2 .3 .9 1"/></worldbody></mujoco>""")
    mesh = spec.add_mesh(name="m", uservert=vertices.ravel(), userface=faces.ravel())
    mesh.inertia = mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="m", rgba=[0.9, 0.8, 0.3, 1])
    m = spec.compile()
    d = mujoco.MjData(m)
    d.qpos[:] = 0.3
    mujoco.mj_kinematics(m, d)
    return m, d


def covered(picture: Image.Image) -> np.ndarray:
    """(H, W) bool. Where something is drawn."""
    return np.asarray(picture).min(axis=2) < 250


def like(picture: Image.Image, colour: RGB) -> float:
    """Share of the pixels that show a colour, lit more or less."""
    pixels = np.asarray(picture.resize((120, 120))).reshape(-1, 3) / 255
    hue, saturation, _ = colorsys.rgb_to_hsv(*colour)
    hsv = np.array([colorsys.rgb_to_hsv(*p) for p in pixels])
    off = np.abs((hsv[:, 0] - hue + 0.5) % 1 - 0.5)
    return float(np.mean((off < 0.03) & (np.abs(hsv[:, 1] - saturation) < 0.17) & (hsv[:, 2] > 0.2)))


def in_python(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if k not in (render.VARIABLE, "PYOPENGL_PLATFORM")}
    return subprocess.run(
        [sys.executable, "-c", code], env=kept | variables, capture_output=True, text=True, timeout=120
    )


# Cameras.


def test_framed_points_are_seen_and_fill_the_picture():
    rng = np.random.default_rng(0)
    points, towards, up = rng.normal(size=(50, 3)), rng.normal(size=3), rng.normal(size=3)
    for aspect in (0.5, 1.0, 2.0):
        camera = framing(points, towards, up, aspect=aspect)
        forward, right, above = axes_of(camera.target - camera.eye, camera.up)
        p = points - camera.eye
        half = (p @ forward) * np.tan(np.deg2rad(camera.fov_deg / 2))
        reach = np.maximum(np.abs(p @ right) / aspect, np.abs(p @ above)) / half
        assert 0.8 < reach.max() <= 1.0


def test_a_full_turn_ends_where_it_began():
    camera = Camera(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.0, 0.2]), np.array([0.0, 0.3, 1.0]))
    eyes = [turned(camera, a).eye for a in np.deg2rad([0, 90, 180, 360])]
    assert np.allclose(eyes[0], camera.eye) and np.allclose(eyes[3], camera.eye)
    assert np.allclose(eyes[0] + eyes[2], 2 * camera.target)
    assert np.allclose(
        np.linalg.norm(np.array(eyes) - camera.target, axis=1), np.linalg.norm(eyes[0] - camera.target)
    )


# Two ways to draw.


@needs_egl
@pytest.mark.parametrize(("width", "height"), [(200, 200), (300, 150), (150, 260)])
@pytest.mark.parametrize("up", [[0.0, 0.0, 1.0], [0.7, 0.2, -0.4]])
def test_both_renderers_draw_the_same(width: int, height: int, up: list[float]):
    m, d = scene()
    around = np.array([[x, y, z] for x in (-0.17, 0.25) for y in (-0.1, 0.16) for z in (-0.17, 0.2)])
    camera = framing(around, np.array([0.5, -1.0, 0.4]), np.array(up), aspect=width / height)
    canvas = render._egl()
    assert canvas is not None
    a, b = canvas.draw(m, d, camera, width, height), raycast.render(m, d, camera, width, height)
    assert a.size == b.size == (width, height) and a.mode == b.mode == "RGB"
    assert np.sum(covered(a) & covered(b)) / np.sum(covered(a) | covered(b)) > 0.98
    assert np.asarray(a)[0, 0].min() == np.asarray(b)[0, 0].min() == 255, "the background is white"
    both = covered(a) & covered(b)
    assert both.mean() > 0.03
    difference = np.abs(np.asarray(a).astype(int) - np.asarray(b))[both]
    assert difference.mean() < 8, "lights and colours are alike"


@needs_egl
def test_egl_leaves_the_model_alone_and_serves_threads():
    m, d = scene()
    before = [m.vis.quality.offsamples, m.vis.quality.shadowsize, m.vis.quality.numslices]
    camera = framing(0.25 * np.eye(3), np.ones(3), np.array([0.0, 0.0, 1.0]))
    alone = np.asarray(render.render(m, d, camera, SIZE, SIZE))
    other, state = scene()
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(render.render, *((m, d), (other, state))[k % 2], camera, SIZE, SIZE) for k in range(8)
        ]
        assert all(np.array_equal(alone, np.asarray(job.result())) for job in jobs)
    assert before == [m.vis.quality.offsamples, m.vis.quality.shadowsize, m.vis.quality.numslices]


@needs_egl
def test_faces_in_one_plane_do_not_speckle():
    """MuJoCo alone would light what two boxes share twice."""
    box = "<geom type='box' size='.1 .1 .1' pos='{} 0 0' rgba='.5 .5 .5 1'/>"
    m = mujoco.MjModel.from_xml_string(
        f"<mujoco><worldbody>{box.format(0)}{box.format(0.05)}</worldbody></mujoco>"
    )
    d = mujoco.MjData(m)
    mujoco.mj_kinematics(m, d)
    camera = Camera(np.array([0.0, 0.0, 1.0]), np.zeros(3), np.array([0.0, 1.0, 0.0]))
    canvas = render._egl()
    assert canvas is not None
    face = np.asarray(canvas.draw(m, d, camera, SIZE, SIZE))[30:66, 36:66]
    assert np.ptp(face.astype(int)) < 12


def test_raycast_can_be_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(render.VARIABLE, "raycast")
    assert render.renderer() == "raycast"
    m, d = scene()
    camera = framing(0.25 * np.eye(3), np.ones(3), np.array([0.0, 0.0, 1.0]))
    want = raycast.render(m, d, camera, 40, 30)
    assert np.array_equal(render.render(m, d, camera, 40, 30), want)


def test_an_unknown_renderer_is_a_clear_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(render.VARIABLE, "osmesa")
    with pytest.raises(FistfulError, match="FISTFUL_RENDERER is 'osmesa'; it is egl or raycast"):
        render.renderer()


DRAW = """
import mujoco, numpy as np
from fistful.view.camera import Camera
from fistful.view.render import render, renderer, why_no_egl
m = mujoco.MjModel.from_xml_string("<mujoco><worldbody><geom size='.1'/></worldbody></mujoco>")
d = mujoco.MjData(m)
mujoco.mj_kinematics(m, d)
x, y, z = np.eye(3)
picture = np.asarray(render(m, d, Camera(x, 0 * x, z), 32, 32))
print(renderer(), picture.min() < 250, why_no_egl())
"""
BROKEN = [{"PYOPENGL_PLATFORM": "osmesa"}, {"MUJOCO_EGL_DEVICE_ID": "99"}]


@pytest.mark.parametrize("variables", BROKEN, ids=lambda v: next(iter(v)))
def test_without_egl_pictures_are_drawn_all_the_same(variables: dict[str, str]):
    done = in_python(DRAW, **variables)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.startswith("raycast True") and "None" not in done.stdout
    forced = in_python(DRAW, FISTFUL_RENDERER="egl", **variables)
    assert forced.returncode == 1 and "asks for EGL, which does not work here" in forced.stderr


@needs_egl
def test_egl_ends_quietly_and_is_not_used_after_a_fork():
    done = in_python(DRAW + "import os\nassert 'PYOPENGL_PLATFORM' not in os.environ")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "egl True None\n")
    fork = "import os\nif os.fork() == 0:\n    print(renderer(), flush=True)\n    os._exit(0)\nos.wait()"
    done = in_python(DRAW + fork, PYTHONUNBUFFERED="1")
    assert done.returncode == 0 and done.stdout.split("\n")[1] == "raycast", done


# Plans.


def test_views_show_all_objects(plan: ff.Plan):
    figure = figure_of(plan, 1, plan.best())
    first, second = best_views(figure)
    assert first @ second < np.cos(np.deg2rad(59)), "the two rows of a picture show different things"
    axes = view_axes(plan.hand)
    for way in (first, second):
        assert way @ axes.forward < 0, "seen from the palm's side"
        camera = framing(figure.points(figure.moment.q[1]), way, axes.above)
        seen = raycast.geoms_seen(figure.m, figure.d, camera, SIZE, SIZE)
        assert all(np.mean(seen == geom) > 0.01 for geom in figure.geoms)
        edge = np.concatenate([seen[0], seen[-1], seen[:, 0], seen[:, -1]])
        assert np.all(edge == -1), "nothing is cut off"


def test_a_plan_in_one_picture(plan: ff.Plan):
    sheet = plan_picture(plan, size=160)
    assert sheet.width == 320 and 320 < sheet.height < 370
    cells = [sheet.crop((160 * k, 160 * j, 160 * k + 160, 160 * j + 160)) for j in (0, 1) for k in (0, 1)]
    for k, cell in enumerate(cells):
        assert 0.1 < covered(cell).mean() < 0.9
        assert like(cell, SEQUENCE[0]) > 0.01, "the first object stays"
        assert (like(cell, SEQUENCE[1]) > 0.01) == (k % 2 == 1), "the second one comes with the second stage"
        assert like(cell, ACTIVE) > 0.01
    assert min(like(cells[k], FROZEN) for k in (1, 3)) > 0.01, "what holds the first object is grey by then"
    label = sheet.crop((0, 320, 320, sheet.height))
    assert covered(label).any() and not covered(label)[:, :4].any(), "labels are there and not cut off"


def test_one_stage_only(plan: ff.Plan):
    assert plan_picture(plan, stage=0, size=SIZE).width == SIZE
    wide = grasp_picture(plan, width=200, height=100)
    assert (
        wide.size == (200, 100) and not covered(wide)[:, [0, -1]].any() and not covered(wide)[[0, -1]].any()
    )


def test_object_pictures_have_their_colour():
    cube = ff.load_object("cube")
    picture = object_picture(cube.vertices, cube.faces, (0.0, 0.45, 0.70), size=SIZE)
    assert picture.size == (SIZE, SIZE) and like(picture, (0.0, 0.45, 0.70)) > 0.3


@pytest.fixture(scope="module")
def frames(plan: ff.Plan) -> list[Image.Image]:
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(animation, "TURNING", TURNING)
        made = plan_animation(plan, size=SIZE, progress=said.append)
    assert said[0] == f"picture 1 of {len(made)}" and said[-1] == f"picture {len(made)} of {len(made)}"
    return made


def test_motion_is_in_order(plan: ff.Plan, frames: list[Image.Image]):
    still = animation.CLOSING + animation.SQUEEZING + animation.RESTING
    assert len(frames) == 2 * still + animation.OPENING + TURNING
    assert {frame.size for frame in frames} == {frames[0].size} and frames[0].width == SIZE
    second = still + animation.OPENING
    shown = [like(frame.crop((0, 0, SIZE, SIZE)), SEQUENCE[1]) > 0.005 for frame in frames]
    assert not any(shown[:second]), "an object that was not reached yet is not shown"
    assert all(shown[second : second + still]), "it is, from its own stage on"
    pixels = [np.asarray(frame).astype(int) for frame in frames]
    change = [np.abs(b - a).mean() for a, b in pairwise(pixels)]
    for start in (0, second):
        assert min(change[start : start + animation.CLOSING - 1]) > 0, "the hand closes"
        rest = start + animation.CLOSING + animation.SQUEEZING
        assert max(change[rest : rest + animation.RESTING - 1]) == 0, "and rests"
    around = pixels[-TURNING:]
    assert min(change[-TURNING + 1 :]) > 0, "the camera turns"
    assert np.array_equal(around[0][:SIZE], pixels[-TURNING - 1][:SIZE]), "from where it was"
    half = np.abs(around[len(around) // 2] - around[0]).mean()
    assert half > np.abs(around[-1] - around[0]).mean(), "and comes back"
    for frame in frames:
        drawn = covered(frame)
        assert not drawn[:, [0, -1]].any() and not drawn[0].any(), "nothing is cut off"
        assert drawn[SIZE:].any(), "every frame has its caption"
    texts = [np.asarray(frame)[SIZE:].tobytes() for frame in frames]
    assert len(set(texts)) == len(plan.stages)


def test_motion_starts_at_the_pre_grasp(plan: ff.Plan):
    figures = figures_of(plan)
    path = animation._motion(figures, 0)
    assert np.array_equal(path[0], figures[0].moment.q[0])
    assert np.allclose(path[animation.CLOSING - 1], figures[0].moment.q[1])
    assert np.allclose(path[animation.CLOSING + animation.SQUEEZING], figures[0].moment.q[2])


def test_gif(frames: list[Image.Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "new" / "a.gif"
    save_gif(frames, path)
    with Image.open(path) as gif:
        # Frames that do not differ are merged, with the time of both.
        merged, total = gif.n_frames, 0
        assert gif.info["loop"] == 0 and gif.size == frames[0].size
        for k in range(merged):
            gif.seek(k)
            total += gif.info["duration"]
            if k in (0, merged - 1):
                want = np.asarray(frames[0 if k == 0 else -1]).astype(int)
                assert np.abs(np.asarray(gif.convert("RGB")) - want).mean() < 2
    assert total == len(frames) * animation.FRAME_MS
    assert [p.name for p in path.parent.iterdir()] == ["a.gif"]
    size = path.stat().st_size
    assert size < 5_000_000
    monkeypatch.setattr(animation, "LARGEST", size // 2)
    save_gif(frames, path)
    assert path.stat().st_size < size // 2 and [p.name for p in path.parent.iterdir()] == ["a.gif"]
    with pytest.raises(ValueError, match="at least one frame"):
        save_gif([], path)


# Charts.


def made_up_tables() -> dict[str, Any]:
    rows = []
    for method, values in {"seqgrasp": (98.8, 40.0), "multigrasp": (55.0, 0.0)}.items():
        for n, value in enumerate(values, 1):
            rates = {"sr": value, "sr_chained": value / 2}
            spans = {f"{k}_interval": [max(0, v - 5), min(100, v + 5)] for k, v in rates.items()}
            rest = {"generated": 10, "valid": 5, "penetration_mm": 0.5, "diversity_rad": None}
            rows.append({"method": method, "n": n, "seconds_per_256": 1.0} | rates | spans | rest)
    protocol = {"name": "paper", "summary": "six pushes"}
    more = {"sequences": [["a", "b"]], "count": 10, "seed": 0, "opposition_spaces": [], "consumed": []}
    return {"rows": rows, "protocol": protocol} | more


@pytest.mark.parametrize("key", ["sr", "sr_chained"])
def test_bars_are_as_high_as_the_values(key: str):
    rows = made_up_tables()["rows"]
    drawn = chart.bars(rows, key)
    bars = [p for p in drawn if isinstance(p, chart.Rect) and p.title]
    unit = (chart.FLOOR - chart.TOP) / 100
    assert [b.height for b in bars] == pytest.approx([unit * row[key] for row in rows])
    assert all(b.y + b.height == pytest.approx(chart.FLOOR) for b in bars)
    assert [b.fill for b in bars] == [chart.COLOURS[row["method"]] for row in rows]
    whiskers = [p for p in drawn if isinstance(p, chart.Line) and p.x1 == p.x2]
    want = [unit * (row[f"{key}_interval"][1] - row[f"{key}_interval"][0]) for row in rows]
    assert [w.y1 - w.y2 for w in whiskers] == pytest.approx(want)
    ordered = sorted(bars, key=lambda b: b.x)
    assert all(a.x + a.width <= b.x for a, b in pairwise(ordered)), "no overlap"
    assert [b.title.split(",")[0] for b in ordered] == ["seqgrasp", "multigrasp"] * 2
    for p in drawn:
        x, y = (p.x1, p.y1) if isinstance(p, chart.Line) else (p.x, p.y)
        assert 0 <= x <= chart.WIDTH and 0 <= y <= chart.HEIGHT


def test_page_and_picture_show_the_same_bars():
    tables = made_up_tables()
    page, picture = chart.evaluation_page(tables), chart.evaluation_picture(tables)
    drawn = [p for key, _ in chart.CHARTS for p in chart.bars(tables["rows"], key)]
    for kind, tag in ((chart.Rect, "rect"), (chart.Line, "line"), (chart.Text, "text")):
        assert len(re.findall(f"<{tag} ", page)) == sum(isinstance(p, kind) for p in drawn)
    pixels = np.asarray(picture)
    for method in ("seqgrasp", "multigrasp"):
        fill = np.array([int(chart.COLOURS[method][k : k + 2], 16) for k in (1, 3, 5)])
        area = sum(
            p.width * p.height for p in drawn if isinstance(p, chart.Rect) and p.fill == chart.COLOURS[method]
        )
        found = np.sum(np.all(pixels == fill, axis=2)) / chart.SCALE**2
        # Whiskers, labels and diamonds hide a little.
        assert 0.93 * area < found < 1.03 * area
    assert not covered(picture)[:, [0, -1]].any() and not covered(picture)[[0, -1]].any()
