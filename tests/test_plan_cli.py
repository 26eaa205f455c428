"""`fistful plan` as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import trimesh
from PIL import Image

import fistful as ff
from fistful.cli import main
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


def test_json_is_one_document_with_the_promised_keys(capsys: pytest.CaptureFixture[str]):
    arguments = ("die", "egg", "--count", "8", "--seed", "3", "--json", "--out", "mine", "--no-picture")
    assert run(*arguments) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert {"out", "hand", "seed", "stages"} < document.keys()
    assert (document["out"], document["hand"], document["seed"]) == ("mine", "allegro", 3)
    assert document["order"] == ["die", "egg"] and document["order_explanation"] is None
    assert document["stopped"] is None and document["picture"] is None
    for row, name in zip(document["stages"], ("die", "egg"), strict=True):
        assert row.keys() == {
            "object", "count", "good", "opposition_spaces", *SPREADS, "energy", "cpu_s", "wall_s"
        }  # fmt: skip
        assert row["object"] == name and row["count"] == 8 and 0 <= row["good"] <= 8
        assert sum(row["opposition_spaces"].values()) == 8
        assert all(row[spread].keys() == {"median", "max"} for spread in SPREADS)
        assert tuple(row["energy"]) == TERMS
    loaded = ff.load_plan("mine")
    assert document["stages"] == loaded.summary()["stages"], "what is printed is what is saved"
    assert document["best"]["grasp"] == loaded.best()
    assert [held["object"] for held in document["best"]["holds"]] == ["die", "egg"]
    assert "stage 1 of 2, die: " in err and "stage 2 of 2, egg: " in err


def test_table_folder_and_picture(capsys: pytest.CaptureFixture[str]):
    """Without --out every run has a folder of its own, and an earlier one is never written to."""
    for number in (1, 2):
        arguments = ("die", "egg", "--count", "6", "--rescale", *(["--no-picture"] if number == 2 else []))
        assert run(*arguments) == 0
        out, err = capsys.readouterr()
        rows = [line.split()[:2] for line in out.splitlines()]
        assert ["1", "die"] in rows and ["2", "egg"] in rows
        assert "best grasp by geometry" in out and "it holds die by " in out
        assert f"result: runs/plan-{number}" in err
        assert "note: die: rescaled" in err, "what was changed is said"
        assert (Path("runs") / f"plan-{number}" / "plan.json").exists()
    pixels = np.asarray(Image.open("runs/plan-1/picture.png").convert("RGB")).reshape(-1, 3).astype(int)
    coloured = np.ptp(pixels, axis=1) > 60
    assert 0.01 < coloured.mean() < 0.5, "objects are seen beside the grey hand"
    assert not Path("runs/plan-2/picture.png").exists()


def test_the_same_command_goes_on_and_another_one_is_refused(capsys: pytest.CaptureFixture[str]):
    command = ("egg", "die", "--count", "4", "--out", "mine", "--no-picture")
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
    assert run("die", "crate.stl", "--count", "4", "--no-picture") == 0
    err = capsys.readouterr().err
    assert "stopped: crate is too big for allegro" in err and "300 mm" in err
    assert run("crate.stl", "--count", "4", "--out", "none") == 2
    err = capsys.readouterr().err
    assert "crate is too big" in err and "300 mm" in err and "--rescale" in err
    assert not Path("none").exists()


def test_no_good_grasp_at_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Stage, "good", property(lambda stage: np.zeros(len(stage), bool)))
    assert run("die", "egg", "--count", "3", "--no-picture") == 2
    out, err = capsys.readouterr()
    assert "0 / 3" in out and "not good" in out
    assert "stopped: none of the 3 grasps of die is good" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("at least one object", "fistful objects")),
        (("mugg",), ("Did you mean 'mug'?",)),
        (("mug", "--hand", "alegro"), ("Did you mean 'allegro'?",)),
        (("die", "--count", "0"), ("count = 0",)),
        (("die", "--device", "cuda:99"), ("cuda:99", "cpu")),
        (("die", "--pairs", "9"), ("fewer pairs",)),
    ],
)
def test_user_errors_are_one_line_and_leave_nothing(
    arguments: tuple[str, ...], words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
):
    assert run(*arguments) == 2
    err = capsys.readouterr().err
    assert all(word in err for word in words) and len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


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
    ):
        assert word in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_keeps_finished_stages(tmp_path: Path):
    command = [sys.executable, "-m", "fistful.cli", "plan", "die", "egg", "--count", "600", "--no-picture"]
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
    assert [len(stage) for stage in kept.stages] == [600] and "interrupted" in str(kept.stopped)
