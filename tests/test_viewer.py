"""The live viewer: what it lists and shows, and the page itself in a real headless browser."""

import io
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import fistful as ff
from fistful.cli import main
from fistful.hands.kinematics import forward_kinematics
from fistful.physics.trial import film
from fistful.planning import validation
from fistful.planning.validation import attempts_of
from fistful.view.moment import body_colours, hand_meshes, joints_between, moment_of, overlapping_points
from fistful.view.object_viewer import slice_picture
from fistful.view.selection import Filter, Gallery
from fistful.view.serving import close_server, open_server, url_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SMALL = ff.Settings(count=8, seed=3, skin_points=800, object_points=256)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of two objects, saved."""
    folder = tmp_path_factory.mktemp("view") / "run"
    objects = [ff.load_object(name, rescale=True) for name in ("cube", "egg")]
    ff.plan(ff.load_hand("allegro"), objects, settings=SMALL, out=folder, threads=1)
    return folder


@pytest.fixture(scope="module")
def plan(run: Path) -> ff.Plan:
    return ff.load_plan(run)


def command(*arguments: str) -> int:
    try:
        main(["view", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


# The moment


def test_a_moment_is_the_grasp_that_was_planned(plan: ff.Plan):
    g = plan.stages[1].grasps
    for i in range(len(g)):
        moment = moment_of(plan, 1, i)
        np.testing.assert_array_equal(moment.q[1], g.q[i])
        still = ~g.joint_mask[i]
        np.testing.assert_array_equal(moment.q[:, still], np.tile(g.q[i, still], (3, 1)))
        np.testing.assert_array_equal(moment.q[0, ~still], g.pre_grasp[i, ~still])
        np.testing.assert_array_equal(moment.q[2, ~still], g.squeeze[i, ~still])
        for phase, at in ((0.0, 0), (1.0, 1), (2.0, 2)):
            np.testing.assert_allclose(joints_between(moment, phase), moment.q[at], atol=1e-12)
        middle = (moment.q[1] + moment.q[2]) / 2
        np.testing.assert_allclose(joints_between(moment, 1.5), middle, atol=1e-12)
        assert not np.any(moment.active & moment.frozen)
        np.testing.assert_array_equal(moment.frozen, plan.stages[0].grasps.joint_mask[g.parent[i]])


def test_contacts_lie_on_their_objects_and_normals_point_into_them(plan: ff.Plan):
    for stage in (0, 1):
        for i in np.flatnonzero(plan.held(stage)):
            moment = moment_of(plan, stage, int(i))
            c = moment.contacts
            assert list(np.unique(c.number)) == list(range(stage + 1))
            for n, p, v in zip(*c, strict=True):
                item = plan.objects[n]
                p_O = (p - moment.p_HO[n]) @ moment.R_HO[n]
                v_O = v @ moment.R_HO[n]
                outside, inside = item.sdf.query(np.stack([p_O - 0.006 * v_O, p_O + 0.006 * v_O]))[0]
                # Objects settled before the next was grasped: their contacts have rolled by some millimetres.
                assert abs(item.sdf.query(p_O[None])[0][0]) < (2.1e-3 if n == stage else 6e-3)
                assert inside < outside


def test_overlapping_points_are_those_inside(plan: ff.Plan):
    moment = moment_of(plan, 0, plan.best(0))
    shown = overlapping_points(plan.hand, plan.objects, moment, moment.q[1])
    item = plan.objects[0]
    # Around the grasp there is a place where the object is in the hand.
    counts = []
    for step in 0.02 * np.concatenate([np.eye(3), -np.eye(3)]):
        moved = replace(moment, p_HO=moment.p_HO + step)
        points = overlapping_points(plan.hand, plan.objects, moved, moment.q[1])
        counts.append(len(points))
        depth = item.sdf.query((points - moved.p_HO[0]) @ moment.R_HO[0])[0]
        assert np.all(depth < 1e-3)
    assert max(counts) > len(shown) + 20


@pytest.mark.parametrize("name", ff.hand_names())
def test_meshes_of_hands_lie_on_their_shapes(name: str):
    hand = ff.load_hand(name)
    shapes = hand.model.shapes
    for mesh in hand_meshes(hand):
        own = np.flatnonzero(hand.model.geom_body == mesh.body)
        local = np.einsum("vgi,gij->vgj", mesh.vertices_B[:, None] - shapes.p_BG[own], shapes.R_BG[own])
        padded = np.zeros((len(local), len(hand.model.geoms), 3))
        padded[:, own] = local
        d = np.abs(shapes.signed_distance(padded)[:, own]).min(axis=1)
        assert d.max() < 1e-6, "every vertex is on a shape"


def test_links_that_hold_are_grey_and_those_that_move_are_not(plan: ff.Plan):
    from fistful.view.colours import ACTIVE, FREE, FROZEN

    moment = moment_of(plan, 1, plan.best(1))
    colours = body_colours(plan.hand, moment)
    assert colours[0] == FREE and {ACTIVE, FROZEN} <= set(colours)
    tree = plan.hand.model.tree
    for joint, body in enumerate(tree.joint_body):
        drives = np.flatnonzero(plan.hand.model.coupling[joint])
        if moment.frozen[drives].any():
            assert colours[body] == FROZEN


# The list


def test_the_list_sorts_and_filters(plan: ff.Plan):
    gallery = Gallery(plan)
    everything = gallery.listed(1, Filter())
    np.testing.assert_array_equal(everything, plan.ranked(1))
    quality = [gallery.row(1, int(g)).quality for g in gallery.listed(1, Filter(order="quality"))]
    assert quality == sorted(quality, reverse=True)
    depth = [gallery.row(1, int(g)).penetration_mm for g in gallery.listed(1, Filter(order="penetration"))]
    assert depth == sorted(depth)
    held = gallery.listed(1, Filter(verdict="holds"))
    np.testing.assert_array_equal(np.sort(held), np.flatnonzero(plan.held(1)))
    assert len(held) + len(gallery.listed(1, Filter(verdict="fails"))) == len(plan.stages[1])
    space = gallery.row(1, int(everything[0])).space
    assert {gallery.row(1, int(g)).space for g in gallery.listed(1, Filter(space=space))} == {space}
    limit = float(np.median(depth))
    assert len(gallery.listed(1, Filter(max_penetration_mm=limit))) == sum(d <= limit for d in depth)
    spaces = [gallery.row(1, int(g)).space for g in gallery.listed(1, Filter(order="space"))]
    assert spaces == sorted(spaces)


def test_a_path_leads_through_a_grasp(plan: ff.Plan):
    gallery = Gallery(plan)
    parents = plan.stages[1].grasps.parent
    for first in range(len(plan.stages[0])):
        path = gallery.path(0, first)
        assert path[0] == first and len(path) == (2 if first in parents else 1)
        assert all(parents[g] == first for g in path[1:])
    assert gallery.path(1, 5) == list(plan.lineage(1, 5))


def test_nothing_planned_is_nothing_to_see(plan: ff.Plan):
    with pytest.raises(ff.FistfulError, match="nothing to see"):
        Gallery(replace(plan, stages=(), validation=None))


# The replay


def test_a_film_ends_where_the_trial_did(plan: ff.Plan):
    """The same bits as the verdict: where objects settled, and how far they moved in every push."""
    tried = plan.validation
    assert tried is not None
    tester, verdicts = validation.Tester(plan.hand, tried.protocol, threads=1), tried.verdicts[1]
    for i in (int(np.flatnonzero(plan.held(1))[0]), int(np.argmax(verdicts.reason))):
        shown = tester.film(plan.objects, attempts_of(plan.stages[1]).take(np.array([i])))
        assert shown.names == ("close", "+x", "-x", "+y", "-y", "+z", "-z")
        assert {len(j) for j in shown.joints[1:]} <= {tried.protocol.steps}
        np.testing.assert_array_equal(shown.p_HO[0][-1], verdicts.p_HO[i])
        np.testing.assert_array_equal(shown.R_HO[0][-1], verdicts.R_HO[i])
        if verdicts.success[i]:
            drift = max(1e3 * np.linalg.norm(p - verdicts.p_HO[i], axis=-1).max() for p in shown.p_HO[1:])
            assert verdicts.drift_mm[i].max() - 1e-9 <= drift < verdicts.drift_mm[i].max() + 1.0
        poses = forward_kinematics(plan.hand.model.tree, shown.joints[0][-1])
        settled = plan.hand.poses(verdicts.q[i])
        np.testing.assert_allclose(poses.p_HB, settled.p_HB, atol=2e-3)


def test_a_film_shows_one_grasp(plan: ff.Plan):
    tried = plan.validation
    assert tried is not None
    tester = validation.Tester(plan.hand, tried.protocol, threads=1)
    with pytest.raises(ValueError, match="one grasp, not 8"):
        film(tester.scene(plan.objects), tried.protocol, attempts_of(plan.stages[1]))


def test_the_curve_falls_and_ends_at_what_was_found(plan: ff.Plan):
    for stage in plan.stages:
        curve = stage.grasps.curve
        assert curve.shape[0] == len(stage) and curve.shape[1] > 60
        for row, good in zip(curve, stage.good, strict=True):
            steps = np.flatnonzero(np.isfinite(row))
            assert len(steps) and np.array_equal(steps, np.arange(len(steps))), "no gap, then nothing"
            if good:
                assert row[steps[-1]] < 0.05 * row[0]


# The distance field


def test_a_slice_is_dark_where_the_surface_is():
    item = ff.load_object("cube", rescale=True)
    picture, centre, (width, height), R = slice_picture(item, "z", 0.5)
    assert picture.dtype == np.uint8 and picture.shape[2] == 3
    np.testing.assert_allclose(np.linalg.det(R), 1.0)
    rows, columns = np.nonzero((picture < 40).all(axis=2))
    across = (columns + 0.5) / picture.shape[1] * width - width / 2
    assert abs(np.ptp(across) - item.report.extents_m[0]) < 3e-3
    assert abs(centre[2] - item.vertices[:, 2].mean()) < 2e-3
    assert (picture[picture.shape[0] // 2, picture.shape[1] // 2] != picture[0, 0]).any()
    assert height > item.report.extents_m[1] and len(rows)


# Serving


def test_a_port_in_use_is_said_and_a_free_one_is_found(run: Path, capsys: pytest.CaptureFixture[str]):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert command(str(run), "--port", str(taken)) == 2
    told = capsys.readouterr().err
    assert f"port {taken} of 127.0.0.1" in told and "Leave --port out" in told
    assert command(str(run), "--port", "70000") == 2
    assert "1 to 65535" in capsys.readouterr().err
    server = open_server("127.0.0.1", None, "test")
    try:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url_of(server))
    finally:
        close_server(server)
    assert capsys.readouterr().out == "", "standard output is for data"


def test_bad_input_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    old = tmp_path / "old"
    old.mkdir()
    record = json.loads((run / "plan.json").read_text()) | {"schema": 2}
    (old / "plan.json").write_text(json.dumps(record))
    (tmp_path / "else").mkdir()
    for arguments, words in (
        ((), "nothing to look at"),
        ((str(run), "--hand", "allegro"), "RUN and --hand at once"),
        ((str(tmp_path / "nowhere"),), "no such folder"),
        ((str(tmp_path / "else"),), "it has no plan.json"),
        ((str(old),), "in format 2; this one reads format 3: plan anew"),
        ((str(run), "--grasp", "8"), "has grasps 0 to 7; not 8"),
        ((str(run), "--protocol", "shake"), "no verdicts by protocol 'shake'"),
        ((str(run), "--png", "a.jpg"), ".png"),
        ((str(run), "--html", "a.txt"), "a .html file"),
        ((str(run), "--gif", "a.png"), "a .gif file"),
        (("--hand", "alegro"), "allegro"),
        (("--object", "no such thing"), "no such thing"),
        (("--object", "cube", "--png", "a.png"), "are for a RUN"),
        ((str(run), "--host", "no.such.host.invalid"), "no.such.host.invalid"),
    ):
        assert command(*arguments) == 2, arguments
        told = capsys.readouterr().err.strip()
        assert words in told and told.count("\n") == 0, told


def test_a_run_without_valid_grasps_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Under a protocol that nothing stands."""
    from fistful.physics.protocol import PAPER

    cruel = replace(PAPER, acceleration=1e5)
    folder = tmp_path / "run"
    ff.plan(
        ff.load_hand("allegro"), [ff.load_object("cube")], settings=SMALL, count=2, protocol=cruel, out=folder
    )
    assert command(str(folder)) == 2
    told = capsys.readouterr().err
    assert "holds under paper" in told and "--grasp 0 shows one all the same" in told
    assert command(str(folder), "--png", str(tmp_path / "a.png"), "--grasp", "0") == 0
    assert (tmp_path / "a.png").exists()


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """The address of a viewer, started as a user starts it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fistful", "view", *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background may have switched Ctrl-C off, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert process.stderr is not None
        told = ""
        while "open http" not in told:
            line = process.stderr.readline()
            assert line, f"the viewer ended: {told}"
            told += line
        yield re.search(r"http://\S+", told).group(), process  # pyright: ignore[reportOptionalMemberAccess]
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def small_page(browser: "Browser") -> "Page":
    """A page that software can draw in time, also on a busy machine."""
    page = browser.new_page(viewport={"width": 900, "height": 560})
    page.set_default_timeout(120_000)
    return page


def pixels(page: "Page") -> np.ndarray:
    """What the page shows left of its panel, (H, W, 3) float, below viser's notice about software."""
    shot = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), dtype=float)
    return shot[160:, :480]


def settled_pixels(page: "Page") -> np.ndarray:
    """The same as soon as nothing moves any more: things fade in, and software rendering is slow."""
    last, quiet = pixels(page), 0
    for _ in range(60):
        page.wait_for_timeout(700)
        now = pixels(page)
        covered = np.mean(now.min(axis=2) < 235)
        quiet = quiet + 1 if np.abs(now - last).max() < 8 and covered > 0.02 else 0
        last = now
        if quiet >= 2:
            break
    return last


def covered(shot: np.ndarray, colour: tuple[float, float, float]) -> float:
    """Share of the pixels that are lit or see-through versions of a colour: its hue, clearly coloured."""
    centred = shot - shot.mean(axis=2, keepdims=True)
    wanted = np.array(colour) - np.mean(colour)
    length = np.linalg.norm(centred, axis=2)
    alike = centred @ wanted / np.maximum(length * np.linalg.norm(wanted), 1e-9)
    return float(np.mean((alike > 0.93) & (length > 12)))


def test_the_page_of_a_plan(run: Path, plan: ff.Plan, browser: "Browser"):
    from fistful.view.colours import ACTIVE, of_object

    gallery = Gallery(plan)
    with served(str(run)) as (url, process):
        page = small_page(browser)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        foreign: list[str] = []
        page.on(
            "request",
            lambda r: foreign.append(r.url) if not r.url.startswith((url, "ws", "data:", "blob:")) else None,
        )
        page.goto(url)
        page.get_by_text(f"Grasp {plan.best()}", exact=True).wait_for()
        body = page.inner_text("body")
        assert "Stage 2 of 2, egg" in body and "cube → egg" in body and "paper" in body
        assert gallery.explanation(1, plan.best()) in body
        both = settled_pixels(page)
        assert np.mean(both.min(axis=2) < 235) > 0.05, "the scene is there"
        assert covered(both, of_object(0)) > 0.003 and covered(both, of_object(1)) > 0.003
        assert covered(both, ACTIVE) > 0.001

        stage = page.locator("input[type=text]").first
        stage.fill("1")
        stage.press("Enter")
        page.get_by_text("Stage 1 of 2").wait_for()
        one = settled_pixels(page)
        assert np.mean(np.abs(one - both).max(axis=2) > 20) > 0.01, "another stage looks different"
        # The egg is gone: what is left of its hue is the orange of contacts and cones.
        assert covered(one, of_object(1)) < covered(both, of_object(1))

        other = int(gallery.listed(0, Filter())[1])
        page.get_by_role("button", name=str(gallery.row(0, other))).click()
        page.get_by_text(f"Grasp {other}", exact=True).wait_for()
        assert np.mean(np.abs(settled_pixels(page) - one).max(axis=2) > 20) > 0.01, "so does another grasp"

        best = int(gallery.listed(0, Filter(order="quality"))[0])
        page.locator("input[value=rank]").first.click()
        page.get_by_role("option", name="quality").click()
        page.wait_for_timeout(1500)
        rows = [b.inner_text() for b in page.get_by_role("button").all() if " · quality " in b.inner_text()]
        assert rows[0] == str(gallery.row(0, best)) and len(rows) == 8

        page.get_by_text("Replay of the verdict", exact=True).click()
        page.get_by_role("button", name="play", exact=True).click()
        page.get_by_text(re.compile(r"s: moved by cube")).wait_for()
        page.get_by_text("Energy", exact=True).click()
        page.get_by_text("Energy terms at the end").wait_for()
        assert page.locator(".uplot canvas").count() == 1
        assert not errors and not foreign, (errors, foreign)
        page.close()
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=30)
        assert process.returncode == 0 and "closed" in told and "Traceback" not in told


def test_the_page_of_a_hand(browser: "Browser"):
    hand = ff.load_hand("leap")
    with served("--hand", "leap") as (url, _):
        page = small_page(browser)
        page.goto(url)
        page.get_by_text(f"{len(hand.joints)} joints").first.wait_for()
        body = page.inner_text("body")
        assert all(joint in body for joint in hand.joints)
        opened = settled_pixels(page)
        assert np.mean(opened.min(axis=2) < 235) > 0.05
        space = hand.opposition_spaces[0]
        page.locator("input[value='all surfaces']").first.click()
        page.get_by_role("option", name=space.name, exact=True).click()
        page.get_by_text("holds a ball of").wait_for()
        assert np.mean(np.abs(settled_pixels(page) - opened).max(axis=2) > 20) > 0.02
        page.close()


def test_the_page_of_an_object(browser: "Browser"):
    with served("--object", "mug") as (url, _):
        page = small_page(browser)
        page.goto(url)
        page.get_by_text("11,110 faces").wait_for()
        whole = settled_pixels(page)
        assert np.mean(whole.min(axis=2) < 235) > 0.1
        page.get_by_role("checkbox", name="as physics sees it").check(force=True)
        page.get_by_role("checkbox", name="mesh").uncheck(force=True)
        page.get_by_text(re.compile(r"\d+ convex part\(s\)")).wait_for()
        parts = settled_pixels(page)
        assert np.mean(np.abs(parts - whole).max(axis=2) > 20) > 0.05
        page.get_by_role("checkbox", name="as physics sees it").uncheck(force=True)
        page.locator("input[value=none]").first.click()
        page.get_by_role("option", name="z", exact=True).click()
        page.wait_for_timeout(1500)
        assert np.mean(np.abs(settled_pixels(page) - parts).max(axis=2) > 20) > 0.05
        page.close()


def test_help_says_what_there_is(capsys: pytest.CaptureFixture[str]):
    assert command("--help") == 0
    told = capsys.readouterr().out
    for word in ("--hand", "--object", "--html", "--png", "--gif", "--host", "--port", "RUN"):
        assert word in told
