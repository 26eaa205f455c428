"""The command line, run as a user runs it: in a process of its own, in a folder of its own."""

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

from fistful import object_names


def fistful(*arguments: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fistful.cli", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=240,
    )


def test_help_names_every_command_and_unit(tmp_path: Path):
    top = fistful("--help", cwd=tmp_path)
    assert top.returncode == 0
    assert all(word in top.stdout for word in ("hands", "objects", "plan", "validate", "evaluate", "doctor"))
    assert "{auto,m,cm,mm,in}" in fistful("objects", "--help", cwd=tmp_path).stdout


def test_version(tmp_path: Path):
    assert fistful("--version", cwd=tmp_path).stdout.strip() == "0.1.0"


def test_hands_lists_all(tmp_path: Path):
    done = fistful("hands", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == ""
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == [
        "allegro",
        "allegro_left",
        "human",
        "leap",
        "shadow",
    ]


def test_one_hand_shows_joints_spaces_and_a_picture(tmp_path: Path):
    done = fistful("hands", "allegro", cwd=tmp_path)
    assert done.returncode == 0
    for word in ("index_0", "-0.470", "thumb-index", "ring-palm", "index_side_middle"):
        assert word in done.stdout
    picture = Image.open(tmp_path / "runs" / "hands" / "allegro.png")
    pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert 0.05 < np.mean(np.any(pixels < 250, axis=1)) < 0.9, "the hand covers part of the picture"
    assert len(np.unique(pixels // 32, axis=0)) > 30, "it is shaded and coloured"


def test_hand_json_is_one_document(tmp_path: Path):
    done = fistful("hands", "shadow", "--no-picture", "--json", cwd=tmp_path)
    record = json.loads(done.stdout)
    assert len(record["joints"]) == 22 and record["picture"] is None
    assert not (tmp_path / "runs").exists()


def test_written_hand_loads_again(tmp_path: Path):
    first = fistful("hands", "leap", "--no-picture", "--write", "mine", "--json", cwd=tmp_path)
    again = fistful("hands", "mine/leap.toml", "--no-picture", "--json", cwd=tmp_path)
    a, b = json.loads(first.stdout), json.loads(again.stdout)
    assert a.pop("written") == "mine/leap.toml" and b.pop("written") is None
    assert a == b


def test_writing_again_does_not_lose_an_edit(tmp_path: Path):
    write = ("hands", "allegro", "--no-picture", "--write", "mine")
    assert fistful(*write, cwd=tmp_path).returncode == 0
    description = tmp_path / "mine" / "allegro.toml"
    description.write_text(description.read_text().replace("four fingers", "my edit"))
    again = fistful(*write, cwd=tmp_path)
    assert again.returncode == 2 and "allegro" in again.stderr and "--force" in again.stderr
    assert "my edit" in description.read_text()
    assert fistful(*write, "--force", cwd=tmp_path).returncode == 0
    assert "my edit" not in description.read_text()


def test_check_measures_an_edited_space_anew(tmp_path: Path):
    fistful("hands", "allegro", "--no-picture", "--write", "mine", cwd=tmp_path)
    description = tmp_path / "mine" / "allegro.toml"
    # The back of the ring finger against the palm: hardly a place to hold anything.
    text = description.read_text()
    start = text.index('name = "ring_pad"')
    end = text.index("[[surface]]", start)
    description.write_text(text[:start] + text[start:end].replace("[1, 0, 0]", "[-1, 0, 0]") + text[end:])
    done = fistful("hands", "mine/allegro.toml", "--no-picture", "--check", "--json", cwd=tmp_path)
    spans = {s["name"]: s["span_mm"] for s in json.loads(done.stdout)["opposition_spaces"]}
    assert spans["ring-palm"] is None or spans["ring-palm"][1] < 40 <= spans["index-palm"][1]
    assert any("ring-palm" in note for note in json.loads(done.stdout)["notes"])


def test_objects_report_findings_and_go_on_after_a_bad_one(tmp_path: Path):
    box = trimesh.creation.box((40, 50, 60))
    box.invert()
    box.export(tmp_path / "box.stl")
    (tmp_path / "broken.obj").write_text("v 0 0 nan\n")
    done = fistful("objects", "box.stl", "broken.obj", "cube", "--no-picture", "--json", cwd=tmp_path)
    assert done.returncode == 2
    box_record, broken, cube = json.loads(done.stdout)["objects"]
    assert box_record["report"]["extents_m"] == pytest.approx([0.04, 0.05, 0.06])
    assert any("millimetres" in line for line in box_record["report"]["found"])
    assert box_record["report"]["mended"], "the winding was turned"
    assert box_record["volume_m3"] == pytest.approx(1.2e-4)
    assert "error" in broken and "broken" in broken["error"]
    assert cube["sdf_error_mm"]["mean"] < 0.3
    assert len(done.stderr.strip().splitlines()) == 1


def test_objects_lists_all_without_preparing_them(tmp_path: Path):
    done = fistful("objects", "--no-picture", cwd=tmp_path, FISTFUL_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(object_names())
    assert not (tmp_path / "cache").exists()


def test_object_table_and_picture(tmp_path: Path):
    done = fistful("objects", "torus", "mug", "--picture", "out/two.png", cwd=tmp_path)
    assert done.returncode == 0
    assert "92 x 92 x 22" in done.stdout
    assert Image.open(tmp_path / "out" / "two.png").width >= 600


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("hands", "alegro"), ("alegro", "Did you mean 'allegro'?")),
        (("objects", "mugg"), ("mugg", "Did you mean 'mug'?")),
        (("hands", "."), ("is a folder",)),
        (("hands", "allegro", "--picture", "x.jpg"), ("x.jpg", ".png")),
        (("hands", "--write", "x"), ("--write", "HAND")),
    ],
)
def test_user_errors_are_one_line(tmp_path: Path, arguments: tuple[str, ...], words: tuple[str, ...]):
    done = fistful(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert all(word in done.stderr for word in words)


def test_unwritable_place_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    done = fistful("hands", "allegro", "--no-picture", "--write", "file", cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_doctor_passes(tmp_path: Path):
    done = fistful("doctor", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert all(check["ok"] for check in json.loads(done.stdout))


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupt_leaves_no_traceback_and_no_temporary_file(tmp_path: Path):
    cache = tmp_path / "cache"
    process = subprocess.Popen(
        [sys.executable, "-m", "fistful.cli", "objects", *object_names(), "--no-picture"],
        cwd=tmp_path,
        env=os.environ | {"FISTFUL_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(cache.rglob("*.npz"))) < 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in stderr and "Traceback" not in stderr
    assert len(list(cache.rglob("*.npz"))) >= 2 and not list(cache.rglob("*.tmp"))
