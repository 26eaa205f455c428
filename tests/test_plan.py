"""Plans: stages that continue each other bit for bit, saved, resumed and read again without a bit lost.

Without physics, but for what a folder keeps of it; test_validate.py has plans that go on from what held.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import trimesh

import fistful as ff
from fistful.physics.protocol import PAPER
from fistful.physics.verdict import Verdicts
from fistful.planning import run_folder
from fistful.planning.plan import Origin
from fistful.planning.prediction import chance_to_hold
from fistful.synthesis import sequence
from fistful.synthesis.fast import Fast
from fistful.synthesis.measure import Measures
from fistful.synthesis.paper import Paper
from fistful.synthesis.stage import Grasps, inverse_pose

SMALL = ff.Settings(count=16, seed=5, skin_points=800, object_points=256)
TRIES = Fast().tries
ONE_FINGER = """<mujoco model="one"><compiler angle="radian"/><worldbody>
  <body name="palm"><geom name="palm" type="box" size=".05 .05 .01" pos="0 0 -.01"/>
    <body name="lower" pos="-.045 0 .01"><joint name="knuckle" axis="0 1 0" range="0 1.6"/>
      <geom name="lower" type="capsule" fromto="0 0 .005 0 0 .035" size=".008"/>
      <body name="upper" pos="0 0 .04"><joint name="middle" axis="0 1 0" range="0 1.6"/>
        <geom name="upper" type="capsule" fromto="0 0 .005 0 0 .035" size=".008"/>
      </body></body></body></worldbody></mujoco>"""


def plan(hand: ff.Hand, objects: Sequence[ff.Object], *, validate: bool = False, **options) -> ff.Plan:
    """A plan by geometry alone, if nothing else is asked for."""
    return ff.plan(hand, objects, validate=validate, **options)


@pytest.fixture(scope="module")
def hand() -> ff.Hand:
    return ff.load_hand("allegro")


@pytest.fixture(scope="module")
def objects() -> list[ff.Object]:
    return [ff.load_object(name) for name in ("cube", "pear", "egg")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs") / "plan-1"


@pytest.fixture(scope="module")
def done(hand: ff.Hand, objects: list[ff.Object], folder: Path) -> ff.Plan:
    origin = Origin(hand="allegro", objects=("cube", "pear", "egg"))
    return plan(hand, objects, settings=SMALL, threads=2, out=folder, origin=origin)


def arrays(stage: ff.Stage) -> dict[str, np.ndarray]:
    columns = {f.name: getattr(stage.grasps, f.name) for f in fields(Grasps)}
    return columns | {f.name: getattr(stage.measures, f.name) for f in fields(Measures)}


def same(first: Sequence[ff.Stage], second: Sequence[ff.Stage]) -> bool:
    """Whether two plans have the same stages, bit for bit; what they cost aside."""
    return len(first) == len(second) and all(
        (a.object_key, a.spaces) == (b.object_key, b.spaces)
        and all(
            x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes()
            for x, y in zip(arrays(a).values(), arrays(b).values(), strict=True)
        )
        for a, b in zip(first, second, strict=True)
    )


# What a plan is.


def test_a_plan_reaches_the_last_object(done: ff.Plan):
    assert done.stopped is None and done.order == (0, 1, 2)
    assert [stage.object_name for stage in done.stages] == ["cube", "pear", "egg"]
    assert all(len(stage) == 16 and stage.good.any() for stage in done.stages)
    assert "cube, pear, egg; good: " in repr(done)


def test_what_holds_does_not_move_bit_for_bit(done: ff.Plan):
    for before, stage in zip(done.stages, done.stages[1:], strict=False):
        g, parent = stage.grasps, before.grasps.take(stage.grasps.parent)
        still = ~g.joint_mask
        assert not np.any(g.joint_mask & ~parent.free), "only what was free has moved"
        assert np.array_equal(g.free, parent.free & still)
        assert np.array_equal(g.q[still], parent.q[still])
        for target in (g.pre_grasp, g.squeeze):
            assert np.array_equal(target[still], parent.squeeze[still]), "and goes on pressing"
        n = parent.p_HO.shape[1]
        assert np.array_equal(g.p_HO[:, :n], parent.p_HO) and np.array_equal(g.R_HO[:, :n], parent.R_HO)


def test_the_joints_of_each_stage_are_those_of_the_last_grasp(done: ff.Plan):
    for i in range(len(done.stages[-1])):
        path = done.lineage(-1, i)
        assert len(path) == 3 and path[-1] == i and done.lineage(1, path[1]) == path[:2]
        last = done.stages[-1].grasps
        for stage, k in zip(done.stages, path, strict=True):
            own = stage.grasps.joint_mask[k]
            assert np.array_equal(last.q[i, own], stage.grasps.q[k, own])


def test_the_new_object_is_where_the_hand_took_it(done: ff.Plan):
    for stage in done.stages:
        p_HO, R_HO = inverse_pose(stage.grasps.p_OH, stage.grasps.R_OH)
        assert np.array_equal(stage.grasps.p_HO[:, -1], p_HO)
        assert np.array_equal(stage.grasps.R_HO[:, -1], R_HO)


def test_the_next_stage_continues_good_grasps(done: ff.Plan):
    for before, stage in zip(done.stages, done.stages[1:], strict=False):
        assert np.all(before.good[stage.grasps.parent])
    assert np.all(done.stages[0].grasps.parent == -1)


def test_best_is_good_and_most_likely_to_hold(done: ff.Plan):
    stage = done.stages[-1]
    assert stage.good[done.best()]
    chance = chance_to_hold(done.hand, done.objects, stage)
    assert chance[done.best()] == chance[stage.good].max()
    assert done.best(0) == done.best(-3)


def test_summary_counts_and_measures(done: ff.Plan):
    for row, stage in zip(done.summary()["stages"], done.stages, strict=True):
        assert row["good"] == stage.good.sum() and row["count"] == 16
        assert sum(row["opposition_spaces"].values()) == 16
        worst = stage.measures.contact_distance_mm.max()
        assert row["contact_distance_mm"]["max"] == pytest.approx(worst, abs=1e-5)
        assert row["penetration_mm"]["median"] == pytest.approx(
            np.median(stage.measures.penetration_mm), abs=1e-5
        )
    json.dumps(done.summary(), allow_nan=False)


def test_a_measure_that_is_not_finite_is_null(done: ff.Plan):
    stage = done.stages[0]
    lost = replace(stage.measures, penetration_mm=np.full(16, np.nan))
    row = replace(done, stages=(replace(stage, measures=lost),)).summary()["stages"][0]
    assert row["penetration_mm"] == {"median": None, "max": None} and row["good"] == 0


# Determinism.


def test_threads_do_not_matter_and_seeds_do(done: ff.Plan, hand: ff.Hand, objects: list[ff.Object]):
    alone = plan(hand, objects[:2], settings=SMALL, threads=1)
    both = plan(hand, objects[:2], settings=SMALL, threads=2)
    other = plan(hand, objects[:1], settings=SMALL, seed=6)
    assert same(alone.stages, both.stages)
    assert not np.any(np.all(other.stages[0].grasps.p_OH == alone.stages[0].grasps.p_OH, axis=1))


def test_keywords_replace_settings(hand: ff.Hand, objects: list[ff.Object]):
    made = plan(hand, objects[:1], settings=SMALL, count=2, seed=9)
    assert (made.settings.count, made.settings.seed, made.settings.skin_points) == (2, 9, 800)
    assert len(made.stages[0]) == 2


def test_many_grasps_are_planned_chunk_by_chunk(
    hand: ff.Hand, objects: list[ff.Object], monkeypatch: pytest.MonkeyPatch
):
    """A hundred thousand would be 13 chunks of 8192; here three of 8, the first of which stands alone too."""
    few = plan(hand, objects[:1], settings=SMALL, count=8)
    monkeypatch.setattr(sequence, "CHUNK", 8)
    lines: list[str] = []
    many = plan(hand, objects[:1], settings=SMALL, count=20, progress=lines.append)
    assert len(many.stages[0]) == 20
    assert np.array_equal(many.stages[0].grasps.q[:8], few.stages[0].grasps.q)
    assert any("grasps 17 to 20" in line for line in lines)


# The folder.


def test_saved_and_loaded_bit_for_bit(done: ff.Plan, folder: Path):
    again = ff.load_plan(folder)
    assert same(done.stages, again.stages)
    assert [s.cpu_s for s in done.stages] == [s.cpu_s for s in again.stages]
    assert again.hand.key == done.hand.key and again.settings == done.settings
    for name in ("order", "ordering", "order_explanation", "device", "threads", "stopped", "origin"):
        assert getattr(again, name) == getattr(done, name)
    assert again.summary() == done.summary()


def test_the_folder_stands_alone(
    hand: ff.Hand, objects: list[ff.Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """On another machine, with an empty cache, hand and objects are the same bit for bit."""
    plan(hand, objects[2:], settings=SMALL, count=2, out=tmp_path / "plan")
    monkeypatch.setenv("FISTFUL_CACHE", str(tmp_path / "cache"))
    before = objects[2]
    for _ in range(2):  # Made anew, then from the cache.
        (item,) = ff.load_plan(tmp_path / "plan").objects
        assert (item.name, item.key, item.report) == (before.name, before.key, before.report)
        for name in ("vertices", "faces", "surface_points", "hull_vertices"):
            a, b = getattr(item, name), getattr(before, name)
            assert a.dtype == b.dtype and np.array_equal(a, b)
        assert np.array_equal(item.sdf.values, before.sdf.values)
    assert ff.load_hand(tmp_path / "plan" / "hand.toml").joints == hand.joints
    assert trimesh.load_mesh(tmp_path / "plan" / "objects" / "1_egg.ply").is_watertight


def test_the_folder_names_every_setting_and_holds_no_pickle(done: ff.Plan, folder: Path):
    record = json.loads((folder / "plan.json").read_text())
    assert record["schema"] == 3 and record["fistful"] == ff.__version__
    assert record["settings"].keys() == {f.name for f in fields(ff.Settings)}
    assert record["settings"]["fast"].keys() == {f.name for f in fields(Fast)}
    assert record["settings"]["paper"].keys() == {f.name for f in fields(Paper)}
    assert record["hand"]["name"] == "allegro" and record["origin"]["objects"] == ["cube", "pear", "egg"]
    for n in (1, 2, 3):
        with np.load(folder / f"stage_{n}.npz", allow_pickle=False) as file:
            assert {file[name].dtype.kind for name in file.files} <= set("fib")
    assert not list(folder.rglob("*.tmp"))


def test_resumed_is_as_uninterrupted(done: ff.Plan, hand: ff.Hand, objects: list[ff.Object], tmp_path: Path):
    def stop(_: ff.Plan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(hand, objects, settings=SMALL, out=tmp_path, on_stage=stop)
    part = ff.load_plan(tmp_path)
    assert len(part.stages) == 1 and "interrupted after stage 1 of 3" in str(part.stopped)
    made: list[int] = []
    again = plan(
        hand, objects, settings=SMALL, threads=1, out=tmp_path, on_stage=lambda p: made.append(len(p.stages))
    )
    assert made == [2, 3] and same(again.stages, done.stages)
    assert same(ff.load_plan(tmp_path).stages, done.stages)


def test_interrupted_while_saving(
    hand: ff.Hand, objects: list[ff.Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    save = np.savez_compressed

    def half(file, **columns):
        if columns["p_HO"].shape[1] == 2:
            file.write(b"half of it")
            raise KeyboardInterrupt
        save(file, **columns)

    monkeypatch.setattr(run_folder.np, "savez_compressed", half)
    with pytest.raises(KeyboardInterrupt):
        plan(hand, objects, settings=SMALL, count=4, out=tmp_path)
    assert len(ff.load_plan(tmp_path).stages) == 1 and not list(tmp_path.rglob("*.tmp"))


def test_a_finished_plan_is_not_planned_again(
    done: ff.Plan, hand: ff.Hand, objects: list[ff.Object], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ff.Planner, "stage", lambda *_, **__: pytest.fail("planned again"))
    again = plan(hand, objects, settings=SMALL, out=folder)
    assert same(again.stages, done.stages) and again.origin == done.origin


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 6}, "seed is 5 there and 6 now"),
        ({"settings": replace(SMALL, fast=Fast(tries=3))}, f"fast.tries is {TRIES} there and 3 now"),
        ({"order": "auto"}, "ordering is given there and auto now"),
        ({"objects": ["pear", "cube", "egg"]}, "objects are cube, pear, egg there and pear, cube, egg now"),
        ({"objects": ["cube", "pear"]}, "objects are cube, pear, egg there and cube, pear now"),
        ({"hand": "allegro_left"}, "hand is allegro there and allegro_left now"),
        ({"rescale": True}, "cube is another mesh now, or was scaled differently"),
    ],
)
def test_another_plan_is_not_mixed_in(
    done: ff.Plan, hand: ff.Hand, objects: list[ff.Object], folder: Path, change: dict, words: str
):
    change = dict(change)
    hand = ff.load_hand(change.pop("hand", "allegro"))
    names = change.pop("objects", ["cube", "pear", "egg"])
    rescale = change.pop("rescale", False)
    objects = [ff.load_object(name, rescale=rescale and name == "cube") for name in names]
    before = (folder / "plan.json").read_bytes()
    with pytest.raises(ff.PlanError, match=r"--out.*--force") as error:
        plan(hand, objects, **({"settings": SMALL} | change), out=folder)
    assert words in str(error.value)
    assert (folder / "plan.json").read_bytes() == before


def test_force_replaces(hand: ff.Hand, objects: list[ff.Object], tmp_path: Path):
    plan(hand, objects[:2], settings=SMALL, count=2, out=tmp_path)
    plan(hand, objects[2:], settings=SMALL, count=3, out=tmp_path, force=True)
    again = ff.load_plan(tmp_path)
    assert [stage.object_name for stage in again.stages] == ["egg"] and len(again.stages[0]) == 3
    assert sorted(f.name for f in tmp_path.rglob("*.[np][pl][zy]")) == ["1_egg.ply", "stage_1.npz"]


def test_someone_elses_folder_is_left_alone(hand: ff.Hand, objects: list[ff.Object], tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(ff.PlanError, match=r"something else \(thesis.tex\)"):
        plan(hand, objects[:1], settings=SMALL, out=tmp_path, force=True)
    with pytest.raises(ff.PlanError, match="is a file"):
        plan(hand, objects[:1], settings=SMALL, out=tmp_path / "thesis.tex")


def copied(folder: Path, to: Path) -> Path:
    for file in folder.rglob("*.*"):
        place = to / file.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    return to


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "stage_2.npz").write_bytes(b"PK"), "stage_2.npz is damaged"),
        (lambda f: (f / "stage_3.npz").unlink(), "stage_3.npz is missing"),
        (lambda f: (f / "objects" / "1_cube.ply").write_bytes(b"ply\n"), "1_cube.ply is damaged"),
        (lambda f: (f / "hand.xml").write_text("<mujoco/>"), "hand.xml is damaged"),
        (lambda f: _edit(f / "hand.toml", "cone_deg = ", "cone_deg = 1"), "not the hand of the plan"),
        (lambda f: (f / "plan.json").write_text("{"), "plan.json is damaged"),
        (lambda f: (f / "plan.json").write_text("[]"), "plan.json is damaged"),
        (lambda f: (f / "plan.json").write_text('{"format": "x"}'), "is not of a plan"),
        (lambda f: (f / "plan.json").unlink(), "it has no plan.json"),
        (lambda f: _edit(f / "plan.json", '"schema": 3', '"schema": 4'), "upgrade fistful"),
        (
            lambda f: _edit(f / "plan.json", '"schema": 3', '"schema": 2'),
            "in format 2; this one reads format 3",
        ),
        (lambda f: _edit(f / "plan.json", f'"tries": {TRIES},', ""), "misses 'tries'"),
        (lambda f: _edit(f / "plan.json", '"tries": ', '"luck": 1, "tries": '), "unknown setting 'luck'"),
    ],
)
def test_a_damaged_folder_is_said(done: ff.Plan, folder: Path, tmp_path: Path, damage, words: str):
    damage(copied(folder, tmp_path / "plan"))
    with pytest.raises(ff.PlanError) as error:
        ff.load_plan(tmp_path / "plan")
    assert words in str(error.value) and "\n" not in str(error.value)


def test_an_older_folder_can_only_be_replaced(
    done: ff.Plan, hand: ff.Hand, objects: list[ff.Object], folder: Path, tmp_path: Path
):
    """Format 1, as it was: without verdicts. It is refused in one line, and --force plans anew."""
    old = json.loads((copied(folder, tmp_path / "plan") / "plan.json").read_text())
    del old["validation"]
    (tmp_path / "plan" / "plan.json").write_text(json.dumps(old | {"schema": 1}))
    for read in (
        lambda: ff.load_plan(tmp_path / "plan"),
        lambda: plan(hand, objects, settings=SMALL, out=tmp_path / "plan"),
    ):
        with pytest.raises(ff.PlanError, match=r"written by fistful .* in format 1; .* format 3: .*--force"):
            read()
    plan(hand, objects[2:], settings=SMALL, count=2, out=tmp_path / "plan", force=True)
    assert ff.load_plan(tmp_path / "plan").objects[0].name == "egg"


def test_no_folder_is_said(tmp_path: Path):
    with pytest.raises(ff.PlanError, match="no such folder"):
        ff.load_plan(tmp_path / "nowhere")


# What a folder keeps of physics.


@pytest.fixture(scope="module")
def tried_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tried") / "plan-1"


@pytest.fixture(scope="module")
def tried(hand: ff.Hand, objects: list[ff.Object], tried_folder: Path) -> ff.Plan:
    return plan(hand, objects[1:], settings=SMALL, count=4, validate=True, out=tried_folder)


def verdict_arrays(made: ff.Plan) -> list[dict[str, np.ndarray]]:
    assert made.validation is not None
    return [{f.name: getattr(v, f.name) for f in fields(Verdicts)} for v in made.validation.verdicts]


def test_verdicts_are_saved_and_loaded_bit_for_bit(tried: ff.Plan, tried_folder: Path):
    again = ff.load_plan(tried_folder)
    assert same(tried.stages, again.stages)
    assert again.validation is not None and tried.validation is not None
    assert again.validation.protocol == tried.validation.protocol == PAPER
    assert (again.validation.cpu_s, again.validation.parts) == (tried.validation.cpu_s, "parts")
    for a, b in zip(verdict_arrays(tried), verdict_arrays(again), strict=True):
        assert all(a[name].dtype == b[name].dtype and a[name].tobytes() == b[name].tobytes() for name in a)
    assert again.summary() == tried.summary() and again.best() == tried.best()
    record = json.loads((tried_folder / "plan.json").read_text())
    assert record["validation"]["protocol"] == json.loads(json.dumps(PAPER.to_dict()))
    assert [e["file"] for e in record["validation"]["stages"]] == ["verdicts_1.npz", "verdicts_2.npz"]
    assert [e["valid"] for e in record["validation"]["stages"]] == [tried.held(n).sum() for n in (0, 1)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"validate": False}, "grasps were tried in physics there and would not be now (--no-validate)"),
        ({"protocol": "strict"}, "validation.protocol."),
        ({"protocol": replace(PAPER, friction=1.5)}, "validation.protocol.friction is 2.0 there and 1.5 now"),
        ({"parts": "hull"}, "validation.parts is parts there and hull now"),
    ],
)
def test_another_validation_is_another_plan(
    tried: ff.Plan, hand: ff.Hand, objects: list[ff.Object], tried_folder: Path, change: dict, words: str
):
    """What is continued depends on what held: a plan can not go on under other rules."""
    before = (tried_folder / "plan.json").read_bytes()
    options = {"settings": SMALL, "count": 4, "validate": True, "out": tried_folder} | change
    with pytest.raises(ff.PlanError, match=r"--out.*--force") as error:
        plan(hand, objects[1:], **options)
    assert words in str(error.value) and len(str(error.value)) < 1000
    assert (tried_folder / "plan.json").read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "verdicts_1.npz").write_bytes(b"PK"), "verdicts_1.npz is damaged"),
        (lambda f: (f / "verdicts_2.npz").unlink(), "verdicts_2.npz is missing"),
        (lambda f: _edit(f / "plan.json", '"friction": 2.0,', ""), "misses|friction"),
        (lambda f: _edit(f / "plan.json", '"friction": 2.0,', '"friction": 2.0, "luck": 1,'), "luck"),
    ],
)
def test_damaged_verdicts_are_said(tried: ff.Plan, tried_folder: Path, tmp_path: Path, damage, words: str):
    damage(copied(tried_folder, tmp_path / "plan"))
    with pytest.raises(ff.PlanError, match=words) as error:
        ff.load_plan(tmp_path / "plan")
    assert "\n" not in str(error.value)


def test_interrupted_while_saving_verdicts(
    tried: ff.Plan, hand: ff.Hand, objects: list[ff.Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A stage counts once its verdicts are saved, too; then it is as if nothing had happened."""
    save = np.savez_compressed

    def half(file, **columns):
        if "reason" in columns and columns["p_HO"].shape[1] == 2:
            file.write(b"half of it")
            raise KeyboardInterrupt
        save(file, **columns)

    options = {"settings": SMALL, "count": 4, "validate": True, "out": tmp_path}
    monkeypatch.setattr(run_folder.np, "savez_compressed", half)
    with pytest.raises(KeyboardInterrupt):
        plan(hand, objects[1:], **options)
    part = ff.load_plan(tmp_path)
    assert len(part.stages) == len(verdict_arrays(part)) == 1 and not list(tmp_path.rglob("*.tmp"))
    monkeypatch.setattr(run_folder.np, "savez_compressed", save)
    again = plan(hand, objects[1:], **options)
    assert same(again.stages, tried.stages)
    assert verdict_arrays(again)[1]["p_HO"].tobytes() == verdict_arrays(tried)[1]["p_HO"].tobytes()


def test_force_removes_verdicts_as_well(
    tried: ff.Plan, hand: ff.Hand, objects: list[ff.Object], tried_folder: Path, tmp_path: Path
):
    copied(tried_folder, tmp_path / "plan")
    run_folder.save_validation(tmp_path / "plan", tried)
    plan(hand, objects[2:], settings=SMALL, count=2, out=tmp_path / "plan", force=True)
    assert not list((tmp_path / "plan").glob("v*")), "verdicts and validation_*"
    again = ff.load_plan(tmp_path / "plan")
    assert again.validation is None and again.summary()["stages"][0]["validation"] is None
    with pytest.raises(ff.PlanError, match="no validation to save"):
        run_folder.save_validation(tmp_path / "plan", again)


# The order.


@dataclass
class _Search:
    calls: int = 0

    def search_order(self, planner: ff.Planner, objects: Sequence[ff.Object], *, protocol: str, progress):
        self.calls += 1
        assert protocol == "paper"
        progress("looking")
        only = np.zeros(len(planner.sets))
        only[3] = 1.0
        return SimpleNamespace(order=(1, 0), preference=(only,), explanation="pear first: it is round")


def test_a_searched_order_is_kept(
    hand: ff.Hand, objects: list[ff.Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    search = _Search()
    monkeypatch.setitem(sys.modules, "fistful.planning.order", search)

    def stop(_: ff.Plan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan(hand, objects[:2], settings=SMALL, order="auto", out=tmp_path, on_stage=stop)
    made = plan(hand, objects[:2], settings=SMALL, order="auto", out=tmp_path)
    assert search.calls == 1, "a resumed plan goes on in the order that was found"
    assert made.order == (1, 0) and [item.name for item in made.objects] == ["pear", "cube"]
    assert [stage.object_name for stage in made.stages] == ["pear", "cube"]
    assert np.all(made.stages[0].grasps.space == 3), "the advice is followed"
    summary = ff.load_plan(tmp_path).summary()
    assert summary["order"] == ["pear", "cube"]
    assert summary["order_explanation"] == "pear first: it is round"


def test_the_real_search_is_called_as_it_wants(hand: ff.Hand, objects: list[ff.Object]):
    made = plan(hand, objects[1:], settings=SMALL, count=8, order="auto")
    assert sorted(made.order) == [0, 1] and made.order_explanation
    assert len(made.stages) == 2 and len(made.preference) == 2


# Where a plan ends.


def test_no_space_left(hand: ff.Hand, objects: list[ff.Object]):
    made = plan(hand, [objects[2]] * 6, settings=SMALL, count=8)
    assert 2 <= len(made.stages) <= 5
    assert made.stopped is not None
    reached = made.stages[-1].good.any()
    assert ("no opposition space of allegro is left" in made.stopped) == reached


def test_one_finger_holds_one_object(objects: list[ff.Object], tmp_path: Path):
    (tmp_path / "one.xml").write_text(ONE_FINGER)
    hand = ff.load_hand(tmp_path / "one.xml")
    made = plan(hand, [ff.load_object("die"), objects[2]], settings=SMALL, count=8, out=tmp_path / "plan")
    assert len(made.stages) == 1 and made.stages[0].good.any()
    assert "no opposition space of one is left for object 2, egg" in str(made.stopped)
    assert ff.load_plan(tmp_path / "plan").stopped == made.stopped
    with pytest.raises(ff.PlanError, match="use fewer pairs"):
        plan(hand, objects[:1], pairs=2)


def test_a_hand_without_any_space(hand: ff.Hand, objects: list[ff.Object]):
    with pytest.raises(ff.PlanError, match="no opposition space"):
        plan(replace(hand, opposition_spaces=()), objects[:1])


def test_too_big_an_object(hand: ff.Hand, objects: list[ff.Object], tmp_path: Path):
    trimesh.creation.box((0.3, 0.31, 0.32)).export(tmp_path / "crate.stl")
    crate = ff.load_object(tmp_path / "crate.stl")
    with pytest.raises(ff.PlanError, match=r"crate is too big for allegro: .* 300 mm.* open to \d+ mm"):
        plan(hand, [crate, objects[0]], settings=SMALL, out=tmp_path / "first")
    assert not (tmp_path / "first").exists(), "nothing was planned, so nothing is left behind"
    made = plan(hand, [objects[0], crate], settings=SMALL, count=4, out=tmp_path / "second")
    assert len(made.stages) == 1 and "crate is too big" in str(made.stopped)


def test_a_stage_without_good_grasps_ends_the_plan(hand: ff.Hand, objects: list[ff.Object], tmp_path: Path):
    hopeless = replace(SMALL, method="paper", count=4, paper=Paper(steps=2))
    made = plan(hand, objects, settings=hopeless, out=tmp_path)
    assert len(made.stages) == 1 and not made.stages[0].good.any()
    assert all(word in str(made.stopped) for word in ("none of the 4 grasps of cube", "mm off", "Try"))
    again = plan(hand, objects, settings=hopeless, out=tmp_path)
    assert again.stopped == made.stopped == ff.load_plan(tmp_path).stopped
    everything = plan(hand, objects[:2], settings=replace(hopeless, parents="all"))
    assert len(everything.stages) == 2 and "grasps of pear" in str(everything.stopped)


def test_one_grasp(hand: ff.Hand, objects: list[ff.Object]):
    made = plan(hand, objects[:2], settings=SMALL, count=1)
    assert len(made.stages[0]) == 1
    assert len(made.stages) == 2 or made.stopped


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"objects": []}, "no object"),
        ({"count": 0}, "count = 0"),
        ({"seed": -1}, "seed = -1"),
        ({"threads": 0}, "threads = 0"),
        ({"method": "slow"}, "one of fast, paper"),
        ({"order": "random"}, "one of given, auto"),
        ({"device": "cuda:77"}, "this machine has"),
    ],
)
def test_what_can_not_be_asked_for(hand: ff.Hand, objects: list[ff.Object], change: dict, words: str):
    with pytest.raises(ff.PlanError, match=words):
        plan(hand, **({"objects": objects[:1]} | change))


def test_no_stage_has_no_best(done: ff.Plan):
    with pytest.raises(ff.PlanError, match="no finished stage"):
        replace(done, stages=()).best()
