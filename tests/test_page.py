"""The page of a plan: one file that opens from disk in a real browser, draws, and obeys its controls."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trimesh
from PIL import Image

import fistful as ff
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import quaternion_from_rotation, rotation_from_quaternion
from fistful.physics.protocol import PAPER, STRICT
from fistful.physics.verdict import Reason, Verdicts
from fistful.planning.validation import Validation
from fistful.view import page as page_module
from fistful.view.colours import ACTIVE, PENETRATING, SEQUENCE
from fistful.view.moment import joints_between, moment_of, overlapping_points
from fistful.view.page import plan_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SMALL = ff.Settings(count=12, seed=5, skin_points=800, object_points=256)
LIMIT = 5_000_000
NASTY = '</script><b>& "pear" {{blob}} <!--'
# Two slides, the second of which follows the first, and a hinge.
GRIPPER = """<mujoco model="gripper"><compiler angle="radian"/><worldbody>
  <body name="base"><geom name="base" type="box" size=".06 .02 .01"/>
    <body name="left" pos="-.04 0 .01"><joint name="left" type="slide" axis="1 0 0" range="0 .035"/>
      <geom name="left" type="box" size=".005 .012 .03" pos="0 0 .03"/>
      <body name="tip" pos="0 0 .06"><joint name="tip" axis="0 1 0" range="0 1"/>
        <geom name="tip" type="capsule" fromto="0 0 .005 0 0 .02" size=".006"/></body></body>
    <body name="right" pos=".04 0 .01"><joint name="right" type="slide" axis="-1 0 0" range="0 .035"/>
      <geom name="right" type="box" size=".005 .012 .03" pos="0 0 .03"/></body>
  </body></worldbody>
  <equality><joint joint1="right" joint2="left"/></equality></mujoco>"""


@pytest.fixture(scope="module")
def objects() -> list[ff.Object]:
    return [ff.load_object(name) for name in ("cube", "pear", "egg")]


@pytest.fixture(scope="module")
def untried(objects: list[ff.Object]) -> ff.Plan:
    return ff.plan(ff.load_hand("allegro"), objects, settings=SMALL, validate=False)


def judged(plan: ff.Plan, reasons: Callable[[np.ndarray], np.ndarray]) -> ff.Plan:
    """The plan with made-up verdicts: the page asks what they are, not whether they are right."""
    validation = Validation(protocol=PAPER)
    for n, stage in enumerate(plan.stages):
        g, count = stage.grasps, len(stage)
        reason = reasons(np.arange(count))
        verdicts = Verdicts(
            reason=reason,
            culprit=np.where(reason == Reason.HELD, -1, n),
            direction=np.where(reason == Reason.LOST, 2, -1),
            penetration_mm=stage.measures.penetration_mm,
            shift_mm=np.full((count, n + 1), 0.5),
            drift_mm=np.full((count, n + 1), 1.5),
            turn_deg=np.full((count, n + 1), 3.0),
            q=g.q,
            targets=g.squeeze,
            p_HO=g.p_HO,
            R_HO=g.R_HO,
        )
        validation = validation.with_stage(verdicts, 1.0, 1.0)
    return replace(plan, validation=validation)


@pytest.fixture(scope="module")
def done(untried: ff.Plan) -> ff.Plan:
    return judged(untried, lambda i: np.where(i % 3 == 2, Reason.LOST, Reason.HELD))


@pytest.fixture(scope="module")
def html(done: ff.Plan) -> str:
    return plan_page(done)


def record_of(html: str) -> dict[str, Any]:
    """What the page embeds, by what an HTML parser takes for the end of the script."""
    found = re.search(r'<script type="application/json" id="plan">(.*?)</script>', html, re.DOTALL)
    assert found
    return json.loads(found[1])


# The file.


def test_one_small_file_without_a_link(html: str):
    assert len(html.encode()) < 1_000_000 and html.startswith("<!doctype html>")
    assert (
        "http://" not in html and "https://" not in html and not re.search(r"\b(src|href)=\"(?!data:)", html)
    )
    assert "default-src 'none'" in html, "and the browser is told to fetch nothing"


def test_same_plan_same_bytes(done: ff.Plan, html: str):
    assert plan_page(done) == html


def test_sequences_are_the_best_first(done: ff.Plan, html: str):
    record = record_of(html)
    rows = [record["stages"][-1]["rows"][sequence[-1]] for sequence in record["sequences"]]
    assert [row["grasp"] for row in rows] == done.ranked(-1).tolist()
    for row, sequence in zip(rows, record["sequences"], strict=True):
        path = [record["stages"][n]["rows"][i]["grasp"] for n, i in enumerate(sequence)]
        assert tuple(path) == done.lineage(-1, row["grasp"])
    assert record["friction"] == PAPER.friction and record["notes"] == []


def test_fewer_grasps(done: ff.Plan):
    record = record_of(plan_page(done, grasps=3))
    assert len(record["sequences"]) == 3 and ["Shown", "best 3 of 12 grasps of egg"] in record["facts"]
    with pytest.raises(ff.PlanError, match="one grasp or more"):
        plan_page(done, grasps=0)


def test_rows_say_what_was_measured(done: ff.Plan, html: str):
    assert done.validation
    for n, stage in enumerate(record_of(html)["stages"]):
        for row in stage["rows"]:
            i = row["grasp"]
            assert row["space"] == done.stages[n].spaces[done.stages[n].grasps.space[i]]
            assert row["quality"] == pytest.approx(done.stages[n].grasps.quality[i], abs=1e-4)
            assert row["penetration_mm"] == pytest.approx(done.stages[n].measures.penetration_mm[i], abs=1e-4)
            said = done.validation.verdicts[n].explain(i, ["cube", "pear", "egg"])
            assert row["text"].startswith(said) and row["held"] == done.held(n)[i]
            assert row["verdict"] in ("held", "failed before", "lost")


def test_a_plan_that_was_not_tried(untried: ff.Plan):
    record = record_of(plan_page(untried))
    assert {row["verdict"] for row in record["stages"][-1]["rows"]} == {"not tried"}
    assert record["friction"] == 1.0 and ["Protocol", "none: not tried in physics"] in record["facts"]


def test_a_plan_without_a_grasp_that_holds(untried: ff.Plan):
    none = replace(judged(untried, lambda i: np.full(len(i), Reason.LOST)), stopped="nothing held")
    record = record_of(plan_page(none))
    assert record["notes"] == [
        "No grasp of egg holds; these are the nearest to it.",
        "The plan stopped: nothing held.",
    ]
    assert record["stages"][-1]["rows"][0]["text"] == "egg was lost when pushed along +y of the hand"


def test_a_plan_that_ended_early(done: ff.Plan):
    part = replace(done, stages=done.stages[:1])
    record = record_of(plan_page(part))
    assert len(record["stages"]) == len(record["object_meshes"]) == 1
    assert "Not reached: pear, egg." in record["notes"]
    with pytest.raises(ff.PlanError, match="no finished stage"):
        plan_page(replace(done, stages=()))


def test_numbers_that_are_not_finite(done: ff.Plan):
    stage = done.stages[0]
    lost = replace(stage, grasps=replace(stage.grasps, quality=np.full(12, np.nan)))
    record = record_of(plan_page(replace(done, stages=(lost,))))
    assert {row["quality"] for row in record["stages"][0]["rows"]} == {None}


def with_names(plan: ff.Plan, name: str) -> ff.Plan:
    stages = [replace(s, object_name=name, spaces=(name,) * len(s.spaces)) for s in plan.stages]
    items = [replace(item, name=name) for item in plan.objects]
    return replace(plan, hand=replace(plan.hand, name=name), objects=tuple(items), stages=tuple(stages))


def test_names_are_text(done: ff.Plan):
    html = plan_page(with_names(done, NASTY))
    assert "<b>" not in html and html.count("</script>") == 3
    assert record_of(html)["objects"][0]["name"] == NASTY


def heavy(item: ff.Object, key: str) -> ff.Object:
    """The object with some 200,000 rough triangles, which compress badly and do not simplify for free."""
    mesh = trimesh.Trimesh(item.vertices, item.faces, process=False)
    while len(mesh.faces) < 150_000:
        mesh = mesh.subdivide()
    rough = mesh.vertices + np.random.default_rng(1).normal(0, 5e-5, mesh.vertices.shape)
    return replace(item, key=key, vertices=rough, faces=mesh.faces.astype(np.int32))


def test_heavy_meshes_are_simplified(done: ff.Plan, figure):
    items = tuple(heavy(item, str(n)) for n, item in enumerate(done.objects))
    assert sum(len(item.faces) for item in items) > 500_000
    html = plan_page(replace(done, objects=items))
    assert len(html.encode()) < page_module.BUDGET_BYTES < LIMIT
    (note,) = record_of(html)["notes"]
    assert re.search(r"simplified within 0\.\d+ mm: .*egg from 1\d\d,\d{3} to \d+,\d{3} triangles", note)
    one = replace(done, objects=(*done.objects[:2], items[2]))
    assert len(plan_page(one, grasps=2, budget_bytes=400_000).encode()) <= 400_000
    figure("page of three objects with 200,000 triangles each", len(html.encode()), "bytes")


def test_a_budget_that_nothing_fits(done: ff.Plan):
    few = len(record_of(plan_page(done, budget_bytes=250_000))["sequences"])
    assert few <= 12
    with pytest.raises(ff.PlanError, match=r"needs [\d,]+ bytes; 20,000 are allowed"):
        plan_page(done, budget_bytes=20_000)


@pytest.mark.parametrize("broken", [False, True], ids=["closed", "with a hole"])
def test_simplified_surfaces_stay_near(objects: list[ff.Object], broken: bool):
    item = heavy(objects[2], "egg")
    faces = item.faces[1000:] if broken else item.faces
    shown = page_module._simplified(page_module._Surface(item.vertices, faces), 5e-4)
    assert 100 < len(shown.faces) < 0.5 * len(faces)
    exact = MeshDistance(objects[2].vertices, objects[2].faces).query(shown.vertices).values
    assert np.max(np.abs(exact)) < 1e-3


# In a browser.


@dataclass
class Opened:
    """A page in the browser, and what it should not have done."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def pixels(self) -> np.ndarray:
        """The canvas, (H, W, 3) in 0..1, once drawn."""
        self.page.evaluate(
            "() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
        )
        picture = Image.open(BytesIO(self.page.locator("#canvas").screenshot())).convert("RGB")
        return np.asarray(picture) / 255

    def text(self, id: str) -> str:
        return self.page.locator(f"#{id}").inner_text()

    def state(self, name: str) -> Any:
        return self.page.evaluate(f"window.fistful.{name}")

    def until(self, condition: str) -> None:
        """Wait; the page's own policy does not let playwright's `wait_for_function` in."""
        for _ in range(600):
            if self.page.evaluate(condition):
                return
            self.page.wait_for_timeout(100)
        pytest.fail(f"{condition} did not come true within a minute: {self.complaints}")

    def move(self, slider: str, value: float) -> None:
        self.page.locator(f"#{slider}").fill(str(value))


@pytest.fixture
def opened(browser: "Browser", tmp_path: Path) -> "Iterator[Callable[..., Opened]]":
    """Opens a document from disk; nothing may be fetched, and nothing said on the console."""
    pages: list[Opened] = []

    def open_page(html: str, width: int = 1280, height: int = 800, before: str = "", **context) -> Opened:
        path = tmp_path / f"page{len(pages)}.html"
        path.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": height}, **context)
        made = Opened(page)
        pages.append(made)
        page.on("console", lambda message: made.complaints.append(message.text))
        page.on("pageerror", lambda error: made.complaints.append(str(error)))
        page.on("request", lambda request: made.requests.append(request.url))
        if before:
            page.add_init_script(before)
        page.goto(path.as_uri())
        made.until("window.fistful?.ready")
        return made

    yield open_page
    for made in pages:
        made.page.close()
        # GPU drivers in software may speak of their speed.
        assert not [c for c in made.complaints if "GPU stall" not in c and "GL Driver" not in c]
        assert len(made.requests) == 1 and made.requests[0].startswith("file:")


def share_of(pixels: np.ndarray, colour: tuple[float, float, float]) -> float:
    """The share of pixels that have a colour, however it is lit."""
    length = np.linalg.norm(pixels, axis=-1)
    cosine = pixels @ np.array(colour) / np.linalg.norm(colour) / np.maximum(length, 1e-9)
    return float(np.mean((cosine > 0.995) & (length > 0.2)))


def test_hand_and_objects_are_drawn(opened: Callable[..., Opened], html: str, done: ff.Plan):
    seen = opened(html)
    pixels = seen.pixels()
    assert seen.state("triangles") > 5000 and seen.state("grasp") == done.best()
    assert (seen.state("stage"), seen.state("phase")) == (2, 1)
    for colour in (ACTIVE, *SEQUENCE[:3]):
        assert share_of(pixels, colour) > 0.003, colour
    drawn = np.linalg.norm(pixels - pixels[0, -1], axis=-1) > 0.05
    assert 0.1 < drawn.mean() < 0.8
    edges = [drawn[:4], drawn[-4:], drawn[:, :4], drawn[:, -4:]]
    assert not any(edge.any() for edge in edges), "nothing is cut off"


def test_sliders_change_text_and_picture(opened: Callable[..., Opened], html: str):
    seen = opened(html)
    last = seen.pixels()
    assert seen.text("stage-text") == "3 of 3: egg" and seen.text("phase-text") == "grasp"
    seen.move("stage", 0)
    first = seen.pixels()
    assert seen.text("stage-text") == "1 of 3: cube" and seen.state("stage") == 0
    assert seen.text("chosen-name").startswith("#1, cube: ")
    assert np.mean(np.abs(first - last).max(axis=-1) > 0.1) > 0.02
    assert share_of(first, SEQUENCE[0]) > 0.005 > 0.001 > share_of(first, SEQUENCE[2])
    seen.move("phase", 0)
    assert seen.text("phase-text") == "pre-grasp"
    opening = seen.pixels()
    assert np.mean(np.abs(opening - first).max(axis=-1) > 0.1) > 0.001
    seen.move("phase", 1.5)
    assert seen.text("phase-text") == "grasp to squeeze" and seen.state("phase") == 1.5


def test_grasps_are_chosen_sorted_and_filtered(opened: Callable[..., Opened], html: str, done: ff.Plan):
    seen, ranked = opened(html), done.ranked(-1)
    before = seen.pixels()
    rows = seen.page.locator("#rows tr")
    assert rows.count() == 12 and seen.text("count") == "12 of 12"
    rows.nth(4).click()
    assert seen.state("grasp") == ranked[4] and rows.nth(4).get_attribute("class") == "chosen"
    assert np.mean(np.abs(seen.pixels() - before).max(axis=-1) > 0.1) > 0.02

    seen.page.get_by_role("button", name="Quality").click()
    quality = [float(text) for text in seen.page.locator("#rows td:nth-child(4)").all_inner_texts()]
    assert quality == sorted(quality)
    seen.page.get_by_role("button", name="Quality").click()
    quality = [float(text) for text in seen.page.locator("#rows td:nth-child(4)").all_inner_texts()]
    assert quality == sorted(quality, reverse=True)

    seen.page.locator("#filter-verdict").select_option("lost")
    assert done.validation
    lost = int(np.sum(done.validation.verdicts[-1].reason == Reason.LOST))
    assert rows.count() == lost and seen.text("count") == f"{lost} of 12"
    rows.first.click()
    assert "egg was lost when pushed along +y of the hand" in seen.text("chosen-text")
    seen.page.locator("#filter-verdict").select_option("")
    space = seen.page.locator("#rows td:nth-child(3)").first.inner_text()
    seen.page.locator("#filter-space").select_option(space)
    assert set(seen.page.locator("#rows td:nth-child(3)").all_inner_texts()) == {space}


def test_keys_and_play(opened: Callable[..., Opened], html: str):
    seen = opened(html)
    for key, stage, sequence in (
        ("ArrowLeft", 1, 0),
        ("ArrowDown", 1, 1),
        ("ArrowUp", 1, 0),
        ("ArrowRight", 2, 0),
    ):
        seen.page.keyboard.press(key)
        assert (seen.state("stage"), seen.state("sequence")) == (stage, sequence)
    seen.page.get_by_role("button", name="Play").click()
    seen.until("fistful.stage === 0 && fistful.phase > 0.2 && fistful.phase < 2")
    seen.until("fistful.stage === 1")
    seen.page.get_by_role("button", name="Stop").click()
    stopped = seen.state("phase")
    seen.pixels()
    assert seen.state("phase") == stopped and seen.text("play") == "Play"


def test_turning_zooming_and_back(opened: Callable[..., Opened], html: str):
    seen = opened(html)
    first, box = seen.pixels(), seen.page.locator("#canvas").bounding_box()
    assert box
    mouse, x, y = seen.page.mouse, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    for button in ("left", "right"):
        before = seen.pixels()
        mouse.move(x, y)
        mouse.down(button=button)
        mouse.move(x + 80, y + 20, steps=4)
        mouse.up(button=button)
        assert np.mean(np.abs(seen.pixels() - before).max(axis=-1) > 0.1) > 0.05, button
    before = seen.pixels()
    mouse.wheel(0, 400)
    assert share_of(seen.pixels(), SEQUENCE[0]) < share_of(before, SEQUENCE[0]), "farther is smaller"
    seen.page.get_by_role("button", name="Reset view").click()
    assert np.mean(np.abs(seen.pixels() - first).max(axis=-1) > 0.02) < 0.001


def test_contacts_and_overlap_are_shown(opened: Callable[..., Opened], done: ff.Plan):
    deep = int(np.argmax(done.stages[-1].measures.penetration_mm))
    seen = opened(plan_page(done))
    place = done.ranked(-1).tolist().index(deep)
    seen.page.locator("#rows tr").nth(place).click()
    moment = moment_of(done, 2, deep)
    assert len(overlapping_points(done.hand, done.objects, moment, moment.q[1])) > 0
    assert share_of(seen.pixels(), PENETRATING) == 0
    seen.page.locator("#show-overlap").check()
    assert share_of(seen.pixels(), PENETRATING) > 1e-5
    before = seen.pixels()
    seen.page.locator("#show-contacts").check()
    assert np.mean(np.abs(seen.pixels() - before).max(axis=-1) > 0.1) > 0.001
    assert seen.page.get_by_text("friction cone, coefficient 2").is_visible()
    assert seen.page.locator("#labels span:visible").count() == 3
    seen.page.locator("#show-labels").uncheck()
    seen.pixels()
    assert seen.page.locator("#labels span").count() == 0


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (844, 390)])
def test_nothing_overlaps(opened: Callable[..., Opened], html: str, width: int, height: int):
    seen = opened(html, width, height)
    boxes = [seen.page.locator(s).bounding_box() for s in ("#canvas-box", "#legend", "#panel")]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            assert a and b and (a["x"] + a["width"] <= b["x"] + 1 or a["y"] + a["height"] <= b["y"] + 1), (
                a,
                b,
            )
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    wide = "#table-box, #panel, #chosen, #about"
    inside = "(all) => all.every((e) => e.scrollWidth <= e.clientWidth + 1)"
    assert seen.page.locator(wide).evaluate_all(inside), "no text is cut off sideways"


def test_touch(opened: Callable[..., Opened], html: str):
    seen = opened(html, 390, 844, has_touch=True, is_mobile=True)
    seen.page.locator("#rows tr").nth(2).tap()
    assert seen.state("sequence") == 2


def test_nasty_names_in_the_browser(opened: Callable[..., Opened], done: ff.Plan):
    seen = opened(plan_page(with_names(done, NASTY)))
    assert seen.text("stage-text") == f"3 of 3: {NASTY}" and seen.page.locator("b").count() == 0
    assert seen.page.title() == f"{NASTY}: {NASTY}, {NASTY}, {NASTY}"
    assert share_of(seen.pixels(), SEQUENCE[0]) > 0.003


def test_without_webgl_it_says_so(opened: Callable[..., Opened], html: str):
    seen = opened(html, before="HTMLCanvasElement.prototype.getContext = () => null;")
    assert "WebGL 2 is missing" in seen.text("message") and seen.state("triangles") == 0
    seen.move("stage", 1)
    assert seen.text("stage-text") == "2 of 3: pear", "the rest still works"


def test_a_single_stage_that_was_not_tried(opened: Callable[..., Opened], untried: ff.Plan):
    seen = opened(plan_page(replace(untried, stages=untried.stages[:1])))
    assert seen.text("stage-text") == "1 of 1: cube" and seen.page.locator("#stage").is_disabled()
    assert "not tried in physics" in seen.text("chosen-text") and "Not reached: pear, egg." in seen.text(
        "notes"
    )
    assert share_of(seen.pixels(), SEQUENCE[0]) > 0.003


# The browser's kinematics are those of the hand.


def assert_same_poses(seen: Opened, hand: ff.Hand, joints: list[float], q: np.ndarray) -> None:
    found = seen.page.evaluate("(joints) => fistful.poses(joints)", joints)
    exact = hand.poses(q)
    assert np.allclose([pose["p"] for pose in found], exact.p_HB, atol=1e-4)
    assert np.allclose([np.reshape(pose["R"], (3, 3)) for pose in found], exact.R_HB, atol=1e-4)


@pytest.mark.parametrize("name", [*ff.hand_names(), "gripper.xml"])
def test_kinematics_in_the_browser(opened: Callable[..., Opened], tmp_path: Path, name: str):
    (tmp_path / "gripper.xml").write_text(GRIPPER)
    hand = ff.load_hand(tmp_path / name if name.endswith(".xml") else name)
    plan = ff.plan(hand, [ff.load_object("egg")], settings=SMALL, count=2, validate=False)
    seen = opened(plan_page(plan))
    rng = np.random.default_rng(3)
    for q in rng.uniform(hand.model.lower, hand.model.upper, (3, len(hand.joints))):
        assert_same_poses(seen, hand, hand.model.expand(q).tolist(), q)
    for sequence, grasp in enumerate(plan.ranked(-1)):
        seen.page.locator("#rows tr").nth(sequence).click()
        for phase in (0, 0.5, 2):
            seen.move("phase", phase)
            q = joints_between(moment_of(plan, 0, int(grasp)), phase)
            assert_same_poses(seen, hand, seen.state("joints"), q)
    assert share_of(seen.pixels(), ACTIVE) > 0.002


def test_quaternions_are_those_of_the_browser():
    """The page turns w, x, y, z into rows of a matrix by the formula of geometry.pose."""
    R = rotation_from_quaternion(np.random.default_rng(2).normal(size=(20, 4)))
    assert np.allclose(rotation_from_quaternion(quaternion_from_rotation(R)), R)


def test_the_friction_is_that_of_the_protocol(done: ff.Plan):
    assert done.validation
    strict = replace(done, validation=replace(done.validation, protocol=STRICT))
    assert record_of(plan_page(strict))["friction"] == STRICT.friction
