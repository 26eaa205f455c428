"""Table III: sums that are right, units that survive kill -9, and `fistful evaluate` as a user runs it."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh

import fistful as ff
from fistful.cli import main
from fistful.physics.protocol import PAPER
from fistful.physics.trial import Attempts
from fistful.planning import evaluation, validation
from fistful.planning.evaluation import METHODS, Study, Unit, draw_sequences, evaluate, summary
from fistful.synthesis.langevin import Langevin
from fistful.synthesis.multigrasp import MultiGrasp, MultiGrasps
from fistful.synthesis.paper import Paper
from fistful.view.chart import evaluation_page

NAMES = ("cube", "egg", "ball")
COUNT, SEQUENCES, LENGTH, SEED = 8, 2, 2, 4
SHORT = MultiGrasp(langevin=Langevin(steps=300, refine_steps=150), skin_points=300)
COMMAND = (
    *("evaluate", "--methods", "seqgrasp,multigrasp", "--objects", *NAMES, "--sequences", str(SEQUENCES)),
    *("--length", str(LENGTH), "--count", str(COUNT), "--seed", str(SEED)),
)
UNITS = [
    f"{m}_00{k}_{n}.json"
    for k in range(2)
    for m, n in (("seqgrasp", 2), ("multigrasp", 1), ("multigrasp", 2))
]
# The command line itself, but for MultiGrasp's number of steps.
LAUNCH = """
import sys
from functools import partial
from fistful.planning import evaluation, validation
from fistful.synthesis.langevin import Langevin
from fistful.synthesis.multigrasp import MultiGrasp
short = MultiGrasp(langevin=Langevin(steps=300, refine_steps=150), skin_points=300)
evaluation.multigrasp = partial(evaluation.multigrasp, settings=short)
from fistful.cli import main
main(sys.argv[1:])
"""
ROW = {
    *("method", "n", "generated", "valid", "sr", "sr_chained", "penetration_mm", "diversity_rad"),
    "seconds_per_256",
}
SECONDS = {"cpu_s", "test_cpu_s", "seconds_per_256", "test_seconds_per_256"}


def without_seconds(value: Any) -> Any:
    """JSON values without what a run cost."""
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k not in SECONDS}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def units(folder: Path) -> dict[str, Any]:
    return {p.name: json.loads(p.read_text()) for p in (folder / "units").glob("*.json")}


@dataclass
class Whole:
    """An uninterrupted run, and what was planned in it."""

    folder: Path
    tables: dict[str, Any]
    out: str
    err: str
    plans: list[ff.Plan] = field(default_factory=list)
    clusters: list[tuple[tuple[ff.Object, ...], MultiGrasps]] = field(default_factory=list)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that take thousands of steps take few."""
    monkeypatch.setattr(evaluation, "multigrasp", partial(evaluation.multigrasp, settings=SHORT))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whole]:
    folder = tmp_path_factory.mktemp("evaluate") / "whole"
    result = Whole(folder, {}, "", "")
    plan, multigrasp = evaluation.plan, evaluation.multigrasp

    def noted_plan(*arguments, **options) -> ff.Plan:
        result.plans.append(plan(*arguments, **options))
        return result.plans[-1]

    def noted_multigrasp(hand: ff.Hand, objects: list[ff.Object], **options) -> MultiGrasps:
        made = multigrasp(hand, objects, settings=SHORT, **options)
        result.clusters.append((tuple(objects), made))
        return made

    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(evaluation, "plan", noted_plan)
        patch.setattr(evaluation, "multigrasp", noted_multigrasp)
        document = folder.parent / "tables.json"
        main([*COMMAND, "--threads", "2", "--out", str(folder), "--json", str(document)])
    result.tables = json.loads(document.read_text())
    result.out, result.err = out.getvalue(), err.getvalue()
    yield result


def row_of(tables: dict[str, Any], method: str, n: int) -> dict[str, Any]:
    (row,) = [row for row in tables["rows"] if (row["method"], row["n"]) == (method, n)]
    return row


# The document.


def test_the_document_has_the_promised_keys(whole: Whole):
    tables = whole.tables
    assert {"protocol", "rows", "opposition_spaces"} <= tables.keys()
    assert tables["protocol"] == json.loads(json.dumps(PAPER.to_dict()))
    assert [(r["method"], r["n"]) for r in tables["rows"]] == [
        *(("seqgrasp", 1), ("seqgrasp", 2), ("multigrasp", 1), ("multigrasp", 2))
    ]
    for row in tables["rows"]:
        assert row.keys() >= ROW
        assert 0 <= row["valid"] <= row["generated"] <= SEQUENCES * COUNT
        for name in ("sr", "sr_chained"):
            low, high = row[f"{name}_interval"]
            assert 0 <= low <= row[name] <= high <= 100
        assert row["penetration_mm"] >= 0 and row["seconds_per_256"] > 0 and row["test_seconds_per_256"] > 0
    assert all(
        r.keys() == {"method", "opposition_space", "valid", "generated", "sr"}
        for r in tables["opposition_spaces"]
    )
    assert tables == json.loads((whole.folder / "tables.json").read_text()), "--json OUT is what is kept"
    assert tables["sequences"] == [
        [NAMES[i] for i in s] for s in draw_sequences(len(NAMES), SEQUENCES, LENGTH, SEED)
    ]
    assert sorted(units(whole.folder)) == sorted(UNITS)


def test_sequences_are_of_different_objects_and_by_seed():
    drawn = draw_sequences(7, 50, 4, 3)
    assert len(drawn) == 50 and all(len(set(s)) == 4 and set(s) <= set(range(7)) for s in drawn)
    assert drawn[:5] == draw_sequences(7, 5, 4, 3), "more sequences begin with the same"
    assert drawn != draw_sequences(7, 50, 4, 4) and len(set(drawn)) > 40


# Sums, recomputed from what was planned.


def held_by_hand(plan: ff.Plan) -> list[np.ndarray]:
    """Which grasps of each stage hold, following each back to the first stage."""
    assert plan.validation is not None
    ok = [v.reason == 0 for v in plan.validation.verdicts]
    return [
        np.array([all(ok[m][i] for m, i in enumerate(plan.lineage(n, k))) for k in range(len(stage))])
        for n, stage in enumerate(plan.stages)
    ]


def test_sums_of_seqgrasp_are_right(whole: Whole):
    assert len(whole.plans) == SEQUENCES
    for k, plan in enumerate(whole.plans):
        assert [s.object_name for s in plan.stages] == whole.tables["sequences"][k][: len(plan.stages)]
        assert plan.validation is not None and plan.settings.count == COUNT
    assert whole.plans[0].settings.seed != whole.plans[1].settings.seed, "each sequence has its own grasps"
    held = [held_by_hand(plan) for plan in whole.plans]
    chained = np.ones(SEQUENCES)
    for n in range(LENGTH):
        row = row_of(whole.tables, "seqgrasp", n + 1)
        reached = [k for k in range(SEQUENCES) if n < len(held[k])]
        assert reached, "a study of which nothing is left tests nothing"
        generated = sum(len(held[k][n]) for k in reached)
        valid = sum(int(held[k][n].sum()) for k in reached)
        assert (row["generated"], row["valid"], row["sequences"]) == (generated, valid, len(reached))
        assert row["sr"] == pytest.approx(100 * valid / generated)
        chained *= [held[k][n].mean() if k in reached else 0.0 for k in range(SEQUENCES)]
        assert row["sr_chained"] == pytest.approx(100 * chained.mean())
        q = np.concatenate([whole.plans[k].stages[n].grasps.q[held[k][n]] for k in reached])
        assert row["diversity_rad"] == pytest.approx(np.std(q, axis=0).mean(), rel=1e-9)
        depth = np.concatenate([whole.plans[k].stages[n].measures.penetration_mm for k in reached])
        assert row["penetration_mm"] == pytest.approx(depth.mean())
        cpu = sum(whole.plans[k].stages[n].cpu_s for k in reached)
        assert row["seconds_per_256"] == pytest.approx(256 * cpu / generated)


def test_consumed_hands_and_spaces_are_right(whole: Whole):
    hand = ff.load_hand("allegro")
    masks = np.array([space.joint_mask for space in hand.opposition_spaces])
    spaces: dict[str, np.ndarray] = {}
    for n in range(LENGTH):
        full = valid = 0
        for plan in whole.plans:
            if n < len(plan.stages):
                stage, held = plan.stages[n], held_by_hand(plan)[n]
                left = np.any(masks[None] & stage.grasps.free[:, None], axis=(1, 2))
                full += int(np.sum(held & ~left))
                valid += int(held.sum())
                for t, ok in zip(stage.grasps.space, held, strict=True):
                    name = stage.spaces[t]
                    spaces[name] = spaces.get(name, np.zeros(2, int)) + np.array([ok, 1])
        (row,) = [r for r in whole.tables["consumed"] if (r["method"], r["n"]) == ("seqgrasp", n + 1)]
        assert (row["consumed"], row["valid"]) == (full, valid)
        assert row["consumed_rate"] == pytest.approx(100 * full / valid)
    rows = {r["opposition_space"]: r for r in whole.tables["opposition_spaces"]}
    assert rows.keys() == spaces.keys()
    for name, (ok, tried) in spaces.items():
        assert (rows[name]["valid"], rows[name]["generated"]) == (ok, tried)
        assert rows[name]["sr"] == pytest.approx(100 * ok / tried)


def test_sums_of_multigrasp_are_right(whole: Whole):
    """Grasps of a whole cluster are tried anew here. Nothing is chained: all objects are taken at once."""
    assert [len(objects) for objects, _ in whole.clusters] == [1, 2, 1, 2]
    tester = validation.Tester(ff.load_hand("allegro"), PAPER, threads=1)
    for n in range(1, LENGTH + 1):
        held, q, depth = [], [], []
        for objects, g in whole.clusters:
            if len(objects) == n:
                overlap = np.maximum(g.penetration_mm, g.object_penetration_mm)
                columns = {name: getattr(g, name) for name in ("q", "pre_grasp", "squeeze", "p_HO", "R_HO")}
                attempts = Attempts(**columns, moving=g.joint_mask, penetration_mm=overlap)
                success = tester.test(objects, attempts).reason == 0
                held.append(success)
                q.append(g.q[success])
                depth.append(g.penetration_mm)
        row, valid = row_of(whole.tables, "multigrasp", n), int(np.sum(held))
        assert (row["generated"], row["valid"]) == (SEQUENCES * COUNT, valid)
        assert row["sr"] == pytest.approx(100 * np.mean(held))
        assert row["sr_chained"] == pytest.approx(100 * np.mean([h.mean() for h in held]))
        assert row["penetration_mm"] == pytest.approx(np.mean(depth))
        spread = np.std(np.concatenate(q), axis=0).mean() if valid > 1 else None
        assert row["diversity_rad"] == (None if spread is None else pytest.approx(spread, rel=1e-6))
    assert not [r for r in whole.tables["opposition_spaces"] if r["method"] == "multigrasp"]


def made_up(valid: int, generated: int = 10, q: float = 0.0, **more) -> dict[str, Any]:
    sums = {"q_sum": [valid * q] * 2, "q_square_sum": [valid * q**2] * 2, "penetration_mm": [10.0, 10]}
    return {"generated": generated, "valid": valid, **sums, "cpu_s": 1.0, "test_cpu_s": 2.0} | more


def made_up_study(methods: tuple = ("seqgrasp",), sequences: int = 3) -> Study:
    objects = tuple((name, name) for name in "abc")
    orders = ((0, 1, 2), (2, 1, 0), (1, 0, 2))[:sequences]
    return Study(
        hand="h", objects=objects, methods=methods, sequences=orders, count=10, seed=0, protocol=PAPER
    )


def test_sequences_that_end_early_count_where_they_should():
    """Conditional rates are of what could be tried; chained rates are of all sequences."""
    nothing = made_up(0, why="too big", penetration_mm=[0.0, 0], cpu_s=0.0, test_cpu_s=0.0)
    rows = [
        [made_up(8, q=1.0), made_up(4, q=1.0), made_up(5, q=1.0)],
        [made_up(2, q=3.0), made_up(0)],  # Nothing held: no third stage.
        [made_up(5, q=2.0), nothing],  # The hand can not span it: all of these fail.
    ]
    records = [
        {"method": "seqgrasp", "sequence": k, "length": 3, "rows": each} for k, each in enumerate(rows)
    ]
    one, two, three = summary(made_up_study(), records, 3)["rows"]
    assert (one["generated"], one["valid"], one["sr"]) == (30, 15, 50.0) and one["sr_chained"] == 50.0
    assert (two["generated"], two["valid"]) == (30, 4) and two["sr"] == pytest.approx(400 / 30)
    assert two["sr_chained"] == pytest.approx(100 * (0.8 * 0.4) / 3)
    assert (three["generated"], three["valid"], three["sr"]) == (10, 5, 50.0)
    assert three["sr_chained"] == pytest.approx(100 * (0.8 * 0.4 * 0.5) / 3) and three["sequences"] == 1
    assert two["seconds_per_256"] == pytest.approx(256 * 2 / 20), "what was not made did not cost"
    assert two["penetration_mm"] == 1.0
    joints = np.repeat([1.0, 3.0, 2.0], [8, 2, 5])
    assert one["diversity_rad"] == pytest.approx(joints.std())
    assert three["diversity_rad"] == pytest.approx(0.0, abs=1e-6)


def test_nothing_at_all():
    why = {"why": "too big", "penetration_mm": [0.0, 0]}
    records = [
        {"method": "seqgrasp", "sequence": k, "length": 3, "rows": [made_up(0, **why)]} for k in range(3)
    ]
    tables = summary(made_up_study(), records, 3)
    for row in tables["rows"]:
        assert row["valid"] == 0 and row["sr"] == row["sr_chained"] == 0.0
        assert row["diversity_rad"] is row["penetration_mm"] is row["seconds_per_256"] is None
    json.dumps(tables, allow_nan=False)
    assert "too few" not in evaluation_page(tables)


def test_intervals_are_over_sequences():
    """A hundred sequences that are all alike leave nothing open; two that differ leave everything open."""

    def interval(*valid: int) -> list[float]:
        records = [
            {"method": "seqgrasp", "sequence": k, "length": 1, "rows": [made_up(v)]}
            for k, v in enumerate(valid)
        ]
        (row,) = summary(made_up_study(sequences=len(valid)), records, 1)["rows"]
        return row["sr_interval"]

    assert interval(5, 5, 5) == [50.0, 50.0] and interval(7) == [70.0, 70.0]
    assert interval(0, 10) == [0.0, 100.0]
    low, high = interval(4, 5, 6)
    assert 40 <= low < 50 < high <= 60


def test_multigrasp_is_summed_by_its_own_number_of_objects():
    records = [
        {"method": "multigrasp", "sequence": k, "length": n, "rows": [made_up(10 - 3 * n - k)]}
        for k in range(2)
        for n in (1, 2, 3)
    ]
    tables = summary(made_up_study(("multigrasp",), sequences=2), records, 3)
    assert [row["valid"] for row in tables["rows"]] == [7 + 6, 4 + 3, 1 + 0]
    assert [row["sr_chained"] for row in tables["rows"]] == pytest.approx([65.0, 35.0, 5.0])
    assert tables["opposition_spaces"] == tables["consumed"] == []


# What does not matter.


def test_threads_and_methods_beside_do_not_matter(whole: Whole, short: None, tmp_path: Path):
    hand, objects = ff.load_hand("allegro"), [ff.load_object(name, rescale=True) for name in NAMES]
    options: dict[str, Any] = {"sequences": SEQUENCES, "length": LENGTH, "count": COUNT, "seed": SEED}
    alone = evaluate(hand, objects, methods=["seqgrasp"], threads=1, out=tmp_path / "one", **options)
    mine = [row for row in whole.tables["rows"] if row["method"] == "seqgrasp"]
    assert without_seconds(alone["rows"]) == without_seconds(mine)
    few = evaluate(hand, objects, methods=["multigrasp"], threads=1, out=tmp_path / "few", **options)
    mine = [row for row in whole.tables["rows"] if row["method"] == "multigrasp"]
    assert without_seconds(few["rows"]) == without_seconds(mine)


def test_the_papers_optimiser_is_compared_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings, plan = [], evaluation.plan

    def hasty(*arguments, settings: ff.Settings, **options) -> ff.Plan:
        asked.append(settings)
        quick = ff.Settings(
            count=settings.count, seed=settings.seed, method=settings.method, paper=Paper(steps=20)
        )
        return plan(*arguments, settings=quick, **options)

    asked: list[ff.Settings] = settings
    monkeypatch.setattr(evaluation, "plan", hasty)
    cube = ff.load_object("cube", rescale=True)
    tables = evaluate(
        ff.load_hand("allegro"),
        [cube],
        methods=["seqgrasp-paper"],
        sequences=1,
        length=1,
        count=4,
        out=tmp_path / "x",
    )
    assert [(s.method, s.uniform, s.count) for s in asked] == [("paper", True, 4)]
    assert [(r["method"], r["n"], r["generated"]) for r in tables["rows"]] == [("seqgrasp-paper", 1, 4)]


# Interruptions.


def start(out: Path, threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LAUNCH, *COMMAND, "--out", str(out), "--threads", str(threads)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(condition, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and process.poll() is None and not condition():
        time.sleep(0.01)


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_killed_interrupted_and_resumed_is_as_uninterrupted(whole: Whole, short: None, tmp_path: Path):
    """kill -9 at a random moment, then Ctrl-C, then to the end: the same bits, but for the seconds."""
    out = tmp_path / "part"
    rng = np.random.default_rng()
    wanted, delay = int(rng.integers(0, 4)), float(rng.uniform(0, 0.5))
    print(f"killed {delay:.3f} s after {wanted} units")
    process = start(out, threads=2)
    wait_for(lambda: (out / "study.json").exists() and len(list(out.glob("units/*.json"))) >= wanted, process)
    time.sleep(delay)
    process.kill()
    _, err = process.communicate(timeout=60)
    announced = [int(n) for n in re.findall(r"^(\d+) of 6, ", err, re.MULTILINE)]
    kept = {p.name: p.read_bytes() for p in (out / "units").glob("*.json")}
    assert set(kept) == set(UNITS[: len(kept)]), "in order, and each complete"
    assert len(kept) >= max(announced, default=1) - 1 and len(kept) >= wanted, "the unit in progress is lost"
    for name, record in units(out).items():
        assert without_seconds(record) == without_seconds(units(whole.folder)[name])

    if len(kept) < len(UNITS):
        process = start(out, threads=1)
        wait_for(lambda: len(list(out.glob("units/*.json"))) > len(kept), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        if process.returncode != 0:  # It may have been at its last unit.
            done = len(list(out.glob("units/*.json")))
            assert process.returncode == 130
            told = re.search(
                r"interrupted; (\d) of 6 units are done; the same command with --out (\S+) ", err
            )
            assert told and told[2] == str(out) and done - 1 <= int(told[1]) <= done, err
            assert not (out / "tables.json").exists()

    silent = io.StringIO()
    with redirect_stdout(silent), redirect_stderr(silent):
        main([*COMMAND, "--out", str(out), "--threads", "2"])
    assert {name: (out / "units" / name).read_bytes() for name in kept} == kept, "no unit is made twice"
    assert without_seconds(units(out)) == without_seconds(units(whole.folder))
    tables = json.loads((out / "tables.json").read_text())
    assert without_seconds(tables) == without_seconds(whole.tables)


def test_a_folder_that_was_just_begun_is_gone_on_with(short: None, tmp_path: Path):
    """Killed before a word was written: an empty folder of units and a staged file are no study of others."""
    (tmp_path / "x" / "units").mkdir(parents=True)
    (tmp_path / "x" / "study.json.123.tmp").write_text("{")
    cube = ff.load_object("cube", rescale=True)
    options: dict[str, Any] = {"methods": ["multigrasp"], "sequences": 1, "length": 1, "count": 2}
    evaluate(ff.load_hand("allegro"), [cube], out=tmp_path / "x", **options)
    assert list(units(tmp_path / "x")) == ["multigrasp_000_1.json"]


def test_a_finished_study_is_not_made_again(whole: Whole, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setattr(evaluation, "plan", lambda *_, **__: pytest.fail("planned again"))
    monkeypatch.setattr(evaluation, "multigrasp", lambda *_, **__: pytest.fail("planned again"))
    main([*COMMAND, "--out", str(whole.folder), "--json", "-"])
    assert json.loads(capsys.readouterr().out) == whole.tables, "seconds and all"


def test_a_damaged_unit_is_said(whole: Whole, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for file in whole.folder.rglob("*.json"):
        place = tmp_path / "x" / file.relative_to(whole.folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.read_bytes())
    (tmp_path / "x" / "units" / UNITS[0]).write_text('{"rows": [')
    with pytest.raises(SystemExit, match="2"):
        main([*COMMAND, "--out", str(tmp_path / "x")])
    err = capsys.readouterr().err.strip()
    assert f"{UNITS[0]} is damaged" in err and "remove it" in err and len(err.splitlines()) == 1


# The command.


def test_what_is_printed(whole: Whole):
    lines = whole.out.splitlines()
    for column in ("method", "objects", "valid", "SR %", "chained %", "penetration mm", "diversity rad"):
        assert column in lines[0]
    for row, line in zip(whole.tables["rows"], lines[1:5], strict=True):
        cells = line.split()
        assert cells[:4] == [row["method"], str(row["n"]), str(row["generated"]), str(row["valid"])]
        assert float(cells[4]) == pytest.approx(row["sr"], abs=0.051)
        assert float(cells[6]) == pytest.approx(row["sr_chained"], abs=0.051)
    # The paper's rows stand beside ours, with a warning.
    assert "50.0 / 40.8" in lines[1] and "66.8 / 65.4" in lines[3]
    assert "protocol paper: " in whole.out and "Isaac Gym" in whole.out
    assert "opposition space" in whole.out and "consumed rate %" in whole.out
    assert "1 of 6, seqgrasp: " in whole.err and "6 of 6, multigrasp: " in whole.err, "progress is shown"
    assert f"chart: {whole.folder / 'tables.html'}" in whole.err
    picture = whole.folder / "tables.png"
    assert f"picture: {picture}" in whole.err and picture.read_bytes().startswith(b"\x89PNG")


class Page(HTMLParser):
    """Cells of tables, texts of charts, and tags that were not closed or closed twice."""

    VOID = frozenset({"meta", "br", "line", "rect", "!doctype"})

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.bad: list[str] = []
        self.cells: list[str] = []
        self.labels: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.bad.append(tag)

    def handle_data(self, data: str) -> None:
        inside = self.open[-1] if self.open else ""
        {"td": self.cells, "text": self.labels}.get(inside, []).append(data)


def test_the_page_has_the_numbers(whole: Whole):
    text = (whole.folder / "tables.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.bad and not page.open and page.tags.count("svg") == 2
    for row in whole.tables["rows"]:
        want = [row["method"], str(row["n"]), str(row["generated"]), str(row["valid"])]
        want += [f"{row['sr']:.2f}", f"{row['sr_chained']:.2f}", f"{row['penetration_mm']:.2f}"]
        places = [i for i in range(len(page.cells)) if page.cells[i : i + len(want)] == want]
        assert places, f"no line {want}"
        assert page.labels.count(f"{row['sr']:.1f}") >= 1
    for row in whole.tables["opposition_spaces"]:
        assert row["opposition_space"] in page.cells
    assert "2 objects" in page.labels and "script" not in page.tags
    assert "http" not in text.replace("http://www.w3.org", ""), "nothing is fetched"


def test_names_on_the_page_are_text():
    study = made_up_study(sequences=1)
    odd = Study(**{**vars(study), "objects": (("<b>&", "k"), *study.objects[1:])})
    records = [{"method": "seqgrasp", "sequence": 0, "length": 1, "rows": [made_up(3)]}]
    text = evaluation_page(summary(odd, records, 1))
    assert "<b>&" not in text and "&lt;b&gt;&amp;" in text


def command(*arguments: str) -> int:
    try:
        main(["evaluate", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "seqgrasp,graspit"), "no method called 'graspit'; there are seqgrasp, seqgrasp-paper"),
        (("--methods", ","), "name at least one method"),
        (("--length", "4"), "3 objects are too few for sequences of 4"),
        (("--sequences", "0"), "sequences = 0"),
        (("--count", "0"), "count = 0"),
        (("--protocol", "papers"), "no protocol called 'papers'"),
        (("--hand", "alegro"), "Did you mean 'allegro'?"),
        (("--objects", "EMPTY"), "has no mesh"),
        (("--objects", "mugg"), "Did you mean 'mug'?"),
        (("--out", "FILE"), "is a file; --out names a folder"),
        (("--out", "THESIS"), "holds something else"),
    ],
)
def test_user_errors_are_one_line(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    Path("EMPTY").mkdir()
    Path("THESIS").mkdir()
    Path("THESIS/thesis.tex").write_text("dear")
    Path("FILE").write_text("")
    given = ["--objects", *NAMES, "--length", "2"]
    assert command(*given, *arguments) == 2
    err = capsys.readouterr().err.strip()
    assert words in err and len(err.splitlines()) == 1
    assert not Path("runs").exists() and not list(Path("THESIS").glob("u*"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("--seed", "5"), "'seed' is not the same"),
        (("--count", "9"), "'count' is not the same"),
        (("--methods", "seqgrasp"), "'methods' is not the same"),
        (("--protocol", "strict"), "'protocol' is not the same"),
        (("--objects", "cube", "egg", "pear"), "'objects' is not the same"),
        (("--no-rescale",), "'objects' is not the same"),
        (("--length", "1"), "'sequences' is not the same"),
    ],
)
def test_another_study_is_refused(
    whole: Whole, change: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
):
    before = {p: p.read_bytes() for p in whole.folder.rglob("*.*")}
    assert command(*COMMAND[1:], "--out", str(whole.folder), *change) == 2
    err = capsys.readouterr().err.strip()
    assert "holds another study" in err and words in err and "--out" in err and len(err.splitlines()) == 1
    assert {p: p.read_bytes() for p in whole.folder.rglob("*.*")} == before


def test_a_folder_of_meshes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, short: None):
    """All meshes of a folder; what can not be read is left out, and said."""
    (tmp_path / "meshes").mkdir()
    trimesh.creation.box((0.04, 0.03, 0.05)).export(tmp_path / "meshes" / "box.stl")
    trimesh.creation.icosphere(3, 0.03).export(tmp_path / "meshes" / "globe.obj")
    (tmp_path / "meshes" / "broken.obj").write_text("v 0 0 nan\n")
    (tmp_path / "meshes" / "notes.txt").write_text("no mesh")
    monkeypatch.chdir(tmp_path)
    options = ("--methods", "multigrasp", "--sequences", "1", "--length", "2", "--count", "2")
    assert command("--objects", "meshes", *options, "--json", "-") == 0
    out, err = capsys.readouterr()
    assert sorted(json.loads(out)["sequences"][0]) == ["box", "globe"]
    assert "left out: " in err and "broken" in err
    assert (tmp_path / "runs" / "evaluate" / "tables.html").exists()


def test_too_big_for_the_hand_is_a_result(tmp_path: Path):
    trimesh.creation.box((0.3, 0.31, 0.32)).export(tmp_path / "crate.stl")
    crate = ff.load_object(tmp_path / "crate.stl")
    hand = ff.load_hand("allegro")
    options: dict[str, Any] = {"methods": ["seqgrasp"], "sequences": 1, "length": 1, "count": 4}
    (row,) = evaluate(hand, [crate], out=tmp_path / "x", **options)["rows"]
    assert (row["generated"], row["valid"], row["sr"]) == (4, 0, 0.0)
    record = units(tmp_path / "x")["seqgrasp_000_1.json"]
    assert "crate is too big for allegro" in record["rows"][0]["why"]


def test_units_have_names_of_their_own():
    files = {Unit(m, k, n).file for m in METHODS for k in range(3) for n in range(1, 5)}
    assert len(files) == 3 * 3 * 4


def test_help_names_defaults(capsys: pytest.CaptureFixture[str]):
    assert command("--help") == 0
    told = capsys.readouterr().out
    assert all(word in told for word in ("seqgrasp-paper", "(default: 256)", "runs/evaluate", "0.06-0.10 m"))
