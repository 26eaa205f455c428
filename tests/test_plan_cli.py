"""`fistful plan` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh
from PIL import Image

import fistful as ff
from fistful.cli import main
from fistful.physics.protocol import PAPER, PROTOCOLS
from fistful.planning import run_folder
from fistful.synthesis.stage import Stage
from fistful.synthesis.weights import TERMS

SPREADS = ("penetration_mm", "contact_distance_mm", "self_penetration_mm", "object_penetration_mm")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> int:
    """The exit code of a command, run in this process: importing anew would take most of the time."""
    try:
        main(["plan", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


MEASURED = {*SPREADS, "best_quality", "energy"}
ROW = {"object", "count", "good", "opposition_spaces", *MEASURED, "validation", "cpu_s", "wall_s"}
RATES = {"generated", "tried", "valid", "sr", "sr_chained"}
TRIED = {"object", *RATES, "penetration_mm", "drift_mm", "turn_deg", "reasons", "cpu_s", "wall_s"}
ORDER = {"order", "order_explanation"}
PHYSICS = {"protocol", "shapes"}
DOCUMENT = {"out", "hand", "seed", *ORDER, "stopped", *PHYSICS, "stages", "best", "picture", "page"}


def planned_json(capsys: pytest.CaptureFixture[str], *options: str) -> dict:
    """The document of a small plan, with what is true of any plan checked."""
    arguments = ("cube", "egg", "--count", "8", "--seed", "3", "--json", "--out", "mine", "--no-picture")
    assert run(*arguments, *options) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document.keys() == DOCUMENT
    assert (document["out"], document["hand"], document["seed"]) == ("mine", "allegro", 3)
    assert document["order"] == ["cube", "egg"] and document["order_explanation"] is None
    assert document["stopped"] is None and document["picture"] is None and document["page"] is None
    for row, name in zip(document["stages"], ("cube", "egg"), strict=True):
        assert row.keys() == ROW
        assert row["object"] == name and row["count"] == 8 and 0 <= row["good"] <= 8
        assert sum(row["opposition_spaces"].values()) == 8
        assert all(row[spread].keys() == {"median", "max"} for spread in SPREADS)
        assert tuple(row["energy"]) == TERMS
    loaded = ff.load_plan("mine")
    assert document["stages"] == loaded.summary()["stages"], "what is printed is what is saved"
    best = document["best"]
    assert best["grasp"] == loaded.best() and best["stage"] == 2
    assert [held["object"] for held in best["holds"]] == ["cube", "egg"]
    assert [held["grasp"] for held in best["holds"]] == list(loaded.lineage(-1, loaded.best()))
    assert "stage 1 of 2, cube: " in err and "stage 2 of 2, egg: " in err
    return document


def test_json_has_the_promised_keys_with_physics(capsys: pytest.CaptureFixture[str]):
    document, loaded = planned_json(capsys), ff.load_plan("mine")
    assert document["protocol"] == json.loads(json.dumps(PAPER.to_dict()))
    assert [(s["object"], s["parts"], s["kind"]) for s in document["shapes"]] == [
        ("cube", 1, "parts"),
        ("egg", 1, "parts"),
    ]
    assert all(s["outside_mm"]["max"] < 0.5 for s in document["shapes"]), "both are convex"
    assert loaded.validation is not None
    chained, before = 1.0, np.ones(1, dtype=bool)
    for n, row in enumerate(document["stages"]):
        v, verdicts, stage = row["validation"], loaded.validation.verdicts[n], loaded.stages[n]
        assert v.keys() == TRIED and v["object"] == row["object"]
        assert n == 0 or np.all(before[stage.grasps.parent]), "only what held is continued"
        before = verdicts.success
        assert (v["generated"], v["tried"], v["valid"]) == (8, 8, int(verdicts.success.sum()))
        chained *= v["valid"] / 8
        assert v["sr"] == pytest.approx(100 * v["valid"] / 8, abs=1e-3)
        assert v["sr_chained"] == pytest.approx(100 * chained, abs=1e-3)
        overlap = np.maximum(stage.measures.penetration_mm, stage.measures.object_penetration_mm)
        assert v["penetration_mm"] == pytest.approx(overlap.mean(), abs=1e-4)
        assert v["drift_mm"] == pytest.approx(np.median(verdicts.drift_mm[verdicts.success]), abs=1e-4)
        assert sum(v["reasons"].values()) == 8 and v["reasons"]["held"] == v["valid"]
        assert v["cpu_s"] > 0 and v["wall_s"] > 0 and row["cpu_s"] > 0
    best = document["best"]
    assert best["held"] is True
    assert all(loaded.held(n)[h["grasp"]] for n, h in enumerate(best["holds"])), "it and all it continues"


def test_json_has_the_promised_keys_without_physics(capsys: pytest.CaptureFixture[str]):
    document, loaded = planned_json(capsys, "--no-validate"), ff.load_plan("mine")
    assert document["protocol"] is None and document["shapes"] == [] and loaded.validation is None
    assert all(row["validation"] is None for row in document["stages"])
    assert document["best"]["held"] is False and document["best"]["good"] is True
    assert not list(Path("mine").glob("verdicts*"))
    # The first stage is the same: it begins with an empty hand.
    before = loaded.stages[0].grasps.q
    assert run("cube", "egg", "--count", "8", "--seed", "3", "--json", "--out", "tried", "--no-picture") == 0
    assert np.array_equal(ff.load_plan("tried").stages[0].grasps.q, before)


def test_another_protocol_is_asked_for_and_kept(capsys: pytest.CaptureFixture[str]):
    command = ("cube", "--count", "4", "--out", "mine", "--no-picture")
    assert run(*command, "--protocol", "strict", "--parts", "hull", "--json") in (0, 2)
    document = json.loads(capsys.readouterr().out)
    assert document["protocol"]["name"] == "strict" and document["protocol"]["friction"] == 0.6
    validation = ff.load_plan("mine").validation
    assert validation is not None and (validation.protocol.name, validation.parts) == ("strict", "hull")
    assert run(*command) == 2
    assert "validation.p" in capsys.readouterr().err


def test_table_of_physics(capsys: pytest.CaptureFixture[str]):
    assert run("cube", "egg", "--count", "6", "--no-picture") == 0
    out, err = capsys.readouterr()
    head, *rows = out.splitlines()
    for column in (
        "generated",
        "valid",
        "SR %",
        "chained %",
        "penetration mm",
        "drift mm",
        "plan s",
        "physics s",
    ):
        assert column in head
    made = ff.load_plan("runs/plan-1")
    assert made.validation is not None
    for n, (line, name) in enumerate(zip(rows, ("cube", "egg"), strict=False)):
        v = made.summary()["stages"][n]["validation"]
        cells = line.split()
        assert cells[:2] == [str(n + 1), name]
        assert [int(c) for c in cells[2:5:2]] == [v["generated"], v["valid"]] == [6, int(made.held(n).sum())]
        assert [float(c) for c in cells[5:7]] == [round(v["sr"], 1), round(v["sr_chained"], 1)]
        lengths = [v["penetration_mm"], v["drift_mm"]]
        assert [float(c) for c in cells[7:9]] == pytest.approx(lengths, abs=0.006)
    assert "protocol paper: SeqGrasp" in out and "chained: of all from the first stage on" in out
    assert f"best grasp that holds in physics: {made.best()} of stage 2; it holds cube by " in out
    assert made.held()[made.best()]
    assert f"; {made.held(0).sum()} hold, " in err and "in physics" in err


def test_table_folder_and_picture(capsys: pytest.CaptureFixture[str]):
    """Without --out every run has a folder of its own, and an earlier one is never written to."""
    for number in (1, 2):
        arguments = ("cube", "egg", "--count", "6", "--rescale", "--no-validate")
        assert run(*arguments, *(["--no-picture"] if number == 2 else [])) == 0
        out, err = capsys.readouterr()
        rows = [line.split()[:2] for line in out.splitlines()]
        assert ["1", "cube"] in rows and ["2", "egg"] in rows
        assert "best grasp by geometry" in out and "it holds cube by " in out
        assert f"result: runs/plan-{number}" in err
        assert "note: cube: rescaled" in err, "what was changed is said"
        assert (Path("runs") / f"plan-{number}" / "plan.json").exists()
    pixels = np.asarray(Image.open("runs/plan-1/picture.png").convert("RGB")).reshape(-1, 3).astype(int)
    coloured = np.ptp(pixels, axis=1) > 60
    assert 0.01 < coloured.mean() < 0.5, "objects are seen beside the grey hand"
    assert not Path("runs/plan-2/picture.png").exists()


def test_the_same_command_goes_on_and_another_one_is_refused(capsys: pytest.CaptureFixture[str]):
    command = ("egg", "cube", "--count", "4", "--out", "mine", "--no-picture", "--no-validate")
    assert run(*command) == 0
    before = {f: f.read_bytes() for f in Path("mine").glob("stage_*")}
    assert run(*command, "--threads", "1") == 0
    assert "2 of the stages were in mine already" in capsys.readouterr().err
    assert run(*command, "--seed", "1") == 2
    err = capsys.readouterr().err
    assert "seed is 0 there and 1 now" in err and "--force" in err
    assert before == {f: f.read_bytes() for f in Path("mine").glob("stage_*")}
    assert run(*command, "--seed", "1", "--force") == 0
    assert ff.load_plan("mine").settings.seed == 1


def test_a_plan_that_ends_early_says_why(capsys: pytest.CaptureFixture[str]):
    trimesh.creation.box((300, 310, 320)).export("crate.stl")
    assert run("cube", "crate.stl", "--count", "4", "--no-picture", "--no-validate") == 0
    err = capsys.readouterr().err
    assert "stopped: crate is too big for allegro" in err and "300 mm" in err
    assert run("crate.stl", "--count", "4", "--out", "none") == 2
    err = capsys.readouterr().err
    assert "crate is too big" in err and "300 mm" in err and "--rescale" in err
    assert not Path("none").exists()


def test_no_good_grasp_at_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Stage, "good", property(lambda stage: np.zeros(len(stage), bool)))
    assert run("cube", "egg", "--count", "3", "--no-picture", "--no-validate") == 2
    out, err = capsys.readouterr()
    assert "0 / 3" in out and "not good" in out
    assert "stopped: none of the 3 grasps of cube is good" in err


def test_nothing_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Good by geometry, but not in physics: the plan ends, says why, and shows what it has."""
    ice = replace(PAPER, name="ice", friction=1e-4, torsion=1e-5)
    monkeypatch.setitem(PROTOCOLS, "ice", ice)
    assert run("cube", "egg", "--count", "4", "--no-picture", "--protocol", "ice") == 2
    out, err = capsys.readouterr()
    assert "stopped: none of the 4 grasps of cube holds under protocol ice: " in err
    assert "best grasp by geometry and friction: " in out and "protocol ice: " in out
    assert len(ff.load_plan("runs/plan-1").stages) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("at least one object", "fistful objects")),
        (("mugg",), ("Did you mean 'mug'?",)),
        (("mug", "--hand", "alegro"), ("Did you mean 'allegro'?",)),
        (("cube", "--count", "0"), ("count = 0",)),
        (("cube", "--device", "cuda:99"), ("cuda:99", "cpu")),
        (("cube", "--pairs", "9"), ("fewer pairs",)),
        (
            ("cube", "--protocol", "papers"),
            ("no protocol called 'papers'", "paper, paper-ghosts, strict, shake"),
        ),
    ],
)
def test_user_errors_are_one_line_and_leave_nothing(
    arguments: tuple[str, ...], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    assert run(*arguments) == 2
    err = capsys.readouterr().err
    assert all(word in err for word in words) and len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


def test_an_interrupt_before_verdicts_are_saved_counts_whole_stages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The second stage is on disk, but what it did in physics is not: the first is what is kept."""
    write = run_folder._write_verdicts

    def interrupted(path: Path, validation, stage: int):
        if stage == 1:
            raise KeyboardInterrupt
        return write(path, validation, stage)

    monkeypatch.setattr(run_folder, "_write_verdicts", interrupted)
    assert run("cube", "egg", "--count", "4", "--out", "mine", "--no-picture") == 130
    assert Path("mine/stage_2.npz").exists() and len(ff.load_plan("mine").stages) == 1
    assert "interrupted; stage 1 is kept in mine; " in capsys.readouterr().err


def test_help_has_units_and_choices():
    done = subprocess.run(
        [sys.executable, "-m", "fistful.cli", "plan", "--help"], capture_output=True, text=True, check=True
    )
    for word in (
        "OBJECT ...",
        "{fast,paper}",
        "{given,auto}",
        "(default: 256)",
        "0.06-0.10 m",
        "runs/plan-1",
        "--no-validate",
        "--protocol",
        "{parts,hull}",
    ):
        assert word in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_keeps_finished_stages(tmp_path: Path):
    command = [sys.executable, "-m", "fistful.cli", "plan", "cube", "egg", "--count", "100", "--no-picture"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    head = tmp_path / "runs" / "plan-1" / "plan.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not head.exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert (
        "interrupted; stage 1 is kept in runs/plan-1" in err
        and "--out runs/plan-1, without --force, goes on" in err
    )
    assert "Traceback" not in err and not list(tmp_path.rglob("*.tmp"))
    kept = ff.load_plan(head.parent)
    assert [len(stage) for stage in kept.stages] == [100] and "interrupted" in str(kept.stopped)
    assert kept.validation is not None and len(kept.validation.verdicts) == 1
