"""`fistful jaws` as a user runs it, and what it leaves behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import trimesh
from PIL import Image

from fistful.cli import main
from fistful.cli.console import save_picture
from fistful.cli.jaws import _folder, _grasp_row, _unfinished
from fistful.cli.jaws_options import GripperOptions, frame_about
from fistful.errors import JawsError
from fistful.jaws.grasp import JawGrasp
from fistful.jaws.jaw_run import FILES, check_folder, is_jaw_run, load_jaw_run
from fistful.jaws.robustness import Robustness
from fistful.jaws.verdict import Verdict
from fistful.view.heat_map import heat_map
from fistful.view.strain import SHADES, node_levels, patches, ramp

pytest.importorskip("ipctk")
GRASP = JawGrasp(p_WG=np.zeros(3), R_WG=np.eye(3))


def run(*arguments: str) -> int:
    try:
        main(["jaws", *arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cube of 30 mm, simulated and saved with its pictures."""
    folder = tmp_path_factory.mktemp("jaws") / "run"
    mesh = folder.parent / "block.stl"
    trimesh.creation.box([0.03, 0.03, 0.03]).export(mesh)
    code = run(
        "simulate",
        str(mesh),
        "--units",
        "m",
        "--centre-mm",
        "0",
        "0",
        "18",
        "--mass-g",
        "20",
        "--out",
        str(folder),
    )
    assert code == 0
    return folder


def test_a_simulated_grasp_is_kept_and_can_be_seen(simulated: Path):
    record = json.loads((simulated / "jaws.json").read_text())
    outcome = record["outcome"]
    assert outcome["success"] and outcome["reason"] == "held"
    assert outcome["intersections"] == outcome["inverted_tets"] == 0
    assert record["object"] == "block" and record["mass"] == pytest.approx(0.02)
    seen = load_jaw_run(simulated)
    first, last = seen.recording.frames[0], seen.recording.frames[-1]
    assert last.p_WO[2] - first.p_WO[2] > 0.019, "it was lifted by 2 cm"
    assert seen.force_N[-1] == pytest.approx(20.0, rel=0.1)
    assert {p.name for p in simulated.iterdir()} == {
        "jaws.json",
        "recording.npz",
        "picture.png",
        "animation.gif",
    }
    picture = np.asarray(Image.open(simulated / "picture.png").convert("RGB"), float)
    assert np.mean(picture.min(axis=2) < 200) > 0.1
    with Image.open(simulated / "animation.gif") as film:
        assert film.n_frames > 5  # pyright: ignore[reportAttributeAccessIssue]


def test_pads_are_darkest_where_they_are_strained_most(simulated: Path):
    seen = load_jaw_run(simulated)
    frame = seen.recording.frames[-1]
    shades = [p.shade for p in patches(seen, frame, 0, float(frame.energies.max()))]
    assert shades == sorted(set(shades)) and shades[0] >= 0 and shades[-1] < SHADES
    faces = sum(len(p.faces) for p in patches(seen, frame, 0, 1.0))
    assert faces == len(seen.recording.faces[0]), "every face has one shade"
    # One tetrahedron with all of the energy: its nodes are dark, a node of the other only is light.
    level = node_levels(np.array([[0, 1, 2, 3], [4, 1, 2, 3]]), np.array([8.0, 0.0]), 5, 8.0)
    np.testing.assert_allclose(level, [1.0, np.sqrt(0.5), np.sqrt(0.5), np.sqrt(0.5), 0.0])
    light = [np.mean(ramp(x)) for x in np.linspace(0, 1, 9)]
    assert light[-1] < 0.5 * light[0]


def test_damaged_or_other_folders_are_said(
    simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    folder = shutil.copytree(simulated, tmp_path / "copy")
    whole = (folder / "recording.npz").read_bytes()
    for broken in (b"PK", whole[: len(whole) // 2], whole[:3000] + b"?" + whole[3001:]):
        (folder / "recording.npz").write_bytes(broken)
        with pytest.raises(JawsError, match="damaged"):
            load_jaw_run(folder)
    record = json.loads((folder / "jaws.json").read_text()) | {"schema": 7}
    (folder / "jaws.json").write_text(json.dumps(record))
    with pytest.raises(JawsError, match="fistful jaws 7; this one reads fistful jaws 1"):
        load_jaw_run(folder)
    assert not is_jaw_run(tmp_path)
    (simulated / "lifts.jsonl").write_text("unfinished\n")
    with pytest.raises(SystemExit):
        main(["view", str(simulated), "--html", "a.html"])
    assert "are for plans" in capsys.readouterr().err
    main(["view", str(simulated), "--png", "a.png"])
    assert Path("a.png").exists(), "whatever else is being made in the folder"
    (simulated / "lifts.jsonl").unlink()


KILLED = """
import os, signal, sys
from pathlib import Path
from PIL import Image
from fistful.cli.console import save_picture
from fistful.jaws.jaw_run import load_jaw_run
from fistful.view.animation import save_gif

folder, image = Path(sys.argv[1]), Image.new("RGB", (8, 8))
run = load_jaw_run(folder)
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
for write in (
    lambda: run.save(folder),
    lambda: save_picture(image, folder / "picture.png"),
    lambda: save_gif([image], folder / "animation.gif"),
):
    child = os.fork()
    if not child:
        write()
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_what_a_killed_writer_leaves_is_in_nobodys_way(simulated: Path, tmp_path: Path):
    folder = Path(shutil.copytree(simulated, tmp_path / "copy"))
    subprocess.run([sys.executable, "-c", KILLED, str(folder)], check=True)
    assert sum(path.name not in FILES for path in folder.iterdir()) == 3
    check_folder(folder)
    load_jaw_run(simulated).save(folder)
    assert {path.name for path in folder.iterdir()} == {"jaws.json", "recording.npz"}
    for strange in ("thesis.tex.12.tmp", "jaws.json.tmp", "jaws.json.12.tmp.bak"):
        (folder / strange).touch()
        with pytest.raises(JawsError, match="holds something else"):
            check_folder(folder)
        (folder / strange).unlink()


def test_a_picture_that_can_not_be_written_leaves_nothing(tmp_path: Path):
    class Broken(Image.Image):
        def save(self, fp, *_, **__):
            (fp if isinstance(fp, Path) else Path(fp.name)).write_bytes(b"half of it")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        save_picture(Broken(), tmp_path / "new" / "a.png")
    assert not list((tmp_path / "new").iterdir())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simulate", "cube"), "no grasp of cube found"),
        (("simulate", "egg", "--rest", "999"), "not 999"),
        (("simulate", "egg", "--opening-mm", "60", "--candidate", "-1"), "there is no -1"),
        (("simulate", "egg", "--mass-g", "0"), "--mass-g is 0"),
        (
            ("simulate", "egg", "--centre-mm", "0", "0", "30", "--axis", "0", "0", "0"),
            "has to be a direction",
        ),
        (("simulate", "egg", "--centre-mm", "0", "0", "30", "--axis", "0", "0", "1"), "can not lift"),
        (
            ("simulate", "egg", "--centre-mm", "0", "0", "30", "--opening-mm", "20"),
            "the gripper opens to 20.0 mm",
        ),
        (("simulate", "egg", "--opening-mm", "60", "--youngs-modulus", "-1"), "Young's modulus -1 Pa"),
        (("simulate", "egg", "--pad-size-mm", "16", "0", "2"), "are positive"),
        (("robustness", "egg", "--model", "no-such"), "no-such"),
        (("grasp", "egg", "--trials", "0"), "--trials is 0"),
        (("grasp", "egg", "--seed", "-1", "--opening-mm", "60"), "seed is -1"),
        (("grasp", "egg", "--force", "0"), "closing force"),
        (("grasp", "egg", "--force", "inf"), "closing force"),
        (("grasp", "egg", "--mass-g", "inf"), "--mass-g is inf"),
        (("grasp", "egg", "--opening-mm", "-5"), "opening"),
        (("simulate", "egg", "--candidate", "99999"), "--candidate is 99999"),
        (("simulate", "egg", "--axis", "0", "1", "0"), "give --centre-mm too"),
        (("simulate", "egg", "--pad-size-mm", "0.1", "0.1", "0.01"), "0.1 mm, lies outside"),
        (("simulate", "egg", "--centre-mm", "0", "0", "30", "--roll-deg", "180"), "from under the plane"),
        (("compare", "--data", "nowhere"), "nowhere"),
        (("compare", "--data", "nowhere", "--models", "rech"), "rech"),
        (("grid", "--data", "nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]):
    assert run(*arguments) == 2
    told = [line for line in capsys.readouterr().err.strip().splitlines() if line.startswith("fistful: ")]
    assert len(told) == 1 and words in told[0], told
    assert not (Path("runs") / "jaws-1").exists(), "nothing is left behind"


def test_grasps_are_ranked_and_printed_as_json(capsys: pytest.CaptureFixture[str]):
    how = ("--opening-mm", "60", "--count", "2", "--trials", "2", "--workers", "1")
    assert run("grasp", "egg", *how, "--json", "--no-picture", "--out", "mine") == 0
    document = json.loads(capsys.readouterr().out)
    values = [row["robustness"] for row in document["grasps"]]
    assert values == sorted(values, reverse=True) and set(values) <= {0.0, 0.5, 1.0}
    assert document["out"] == "mine" and is_jaw_run(Path("mine"))
    assert json.loads(Path("mine/grasps.json").read_text()) == document["grasps"]
    assert {p.name for p in Path("mine").iterdir()} == {"jaws.json", "recording.npz", "grasps.json"}
    (Path("mine") / "thesis.tex").write_text("years of work")
    assert run("grasp", "egg", *how, "--out", "mine") == 2
    assert "holds something else (thesis.tex)" in capsys.readouterr().err
    assert all(len(row["reasons"]) == 2 for row in document["grasps"])


COMMAND = ("grasp", "block.stl", "--units", "m", "--mass-g", "20", "--count", "2", "--trials", "2", "--json",
           "--no-picture")  # fmt: skip


def kept_after(signal_: int, wanted: int, *more: str, group: bool = False) -> tuple[int, str]:
    """Start `grasp` as a process, signal it when a ledger has as many lifts; those kept, and what it said.

    `group` signals its workers too, as a terminal does.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "fistful.cli", "jaws", *COMMAND, *more],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    ledger, deadline = Path("runs/jaws-1/lifts.jsonl"), time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if ledger.exists() and ledger.read_bytes().count(b"\n") > wanted:
            break
        time.sleep(0.01)
    (os.killpg if group else os.kill)(process.pid, signal_)
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if signal_ == signal.SIGINT else -signal_), err
    return ledger.read_bytes().count(b"\n") - 1, err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interrupted_grasps_go_on(capsys: pytest.CaptureFixture[str]):
    """Ctrl-C, then kill -9, then to the end: as if nothing had happened, but for seconds."""
    trimesh.creation.box([0.03, 0.03, 0.03]).export("block.stl")
    kept, told = kept_after(signal.SIGINT, 1, "--workers", "1")
    assert 1 <= kept < 4 and "Traceback" not in told
    assert (
        f"interrupted; {kept} of 4 lifts are kept in runs/jaws-1; the same command with --out runs/jaws-1 "
        in told
    )
    ledger = Path("runs/jaws-1/lifts.jsonl")
    before = ledger.read_bytes()
    assert run(*COMMAND, "--friction", "0.5", "--out", "runs/jaws-1") == 2
    assert "holds other work: gripper.friction is 0.4 there and 0.5 now" in capsys.readouterr().err
    assert run("simulate", "block.stl", "--units", "m", "--out", "runs/jaws-1") == 2
    assert "holds something else (lifts.jsonl)" in capsys.readouterr().err
    assert ledger.read_bytes() == before
    kept, told = kept_after(signal.SIGKILL, kept + 1, "--workers", "2", "--out", "runs/jaws-1")
    assert ledger.read_bytes().startswith(before), "no lift is done twice"
    assert run(*COMMAND, "--workers", "1", "--out", "runs/jaws-1") == 0
    shown = capsys.readouterr()
    assert f"{kept} of 4 lifts were in runs/jaws-1 already" in shown.err
    assert {p.name for p in Path("runs/jaws-1").iterdir()} == {"jaws.json", "recording.npz", "grasps.json"}
    assert run(*COMMAND, "--workers", "1", "--out", "whole") == 0
    ends = [json.loads(text) for text in (shown.out, capsys.readouterr().out)]
    for end in ends:
        for row in (*end["grasps"], end["best"]):
            assert row.pop("cpu_s") > 0
    assert ends[0] == ends[1] | {"out": "runs/jaws-1"}


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_with_workers_keeps_finished_lifts():
    trimesh.creation.box([0.03, 0.03, 0.03]).export("block.stl")
    kept, told = kept_after(signal.SIGINT, 1, "--workers", "2", group=True)
    assert 1 <= kept < 4 and "Traceback" not in told
    assert f"interrupted; {kept} of 4 lifts are kept in runs/jaws-1" in told


def test_an_error_says_what_is_kept(capsys: pytest.CaptureFixture[str]):
    path = Path("mine/lifts.jsonl")
    for count in (0, 1):
        with pytest.raises(JawsError, match="lost"), _unfinished(path, {}, 4) as ledger:
            for k in range(count):
                ledger.add(f"grasp 0 {k}", {})
            raise JawsError("a worker is lost")
        told = (
            "1 of 4 lifts are kept in mine; the same command with --out mine goes on"
            in capsys.readouterr().err
        )
        assert path.exists() == told == bool(count)
    with _unfinished(path, {}, 4):
        pass
    assert not path.exists(), "finished"


@pytest.mark.skipif(os.name == "nt", reason="no locks")
def test_a_folder_in_use_is_left_alone(assets: Path, capsys: pytest.CaptureFixture[str]):
    from fistful.jaws.ledger import Ledger

    arguments = ("compare", "--data", str(assets / "ipc_graspsim"), "--models", "soft-point", "--out", "mine")
    with Ledger(Path("mine/units.jsonl"), {}):
        assert run(*arguments) == 2
    assert "mine/units.jsonl is in use by another process" in capsys.readouterr().err


def test_an_error_leaves_no_folder_behind(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Said by the simulator, when the ledger has begun already."""

    def fails(*_, ledger, **__):
        assert ledger.path.exists()
        raise JawsError("can not be simulated")

    monkeypatch.setattr("fistful.cli.jaws.planned", lambda *_: [GRASP])
    monkeypatch.setattr("fistful.jaws.robustness.robustness_of_each", fails)
    assert run("grasp", "cube") == run("grasp", "cube", "--out", "mine") == 2
    assert capsys.readouterr().err.count("can not be simulated") == 2
    assert not Path("runs").exists() and not Path("mine").exists()


def test_only_folders_that_were_made_are_gone_again():
    for theirs in ("runs", "a"):
        Path(theirs).mkdir()
    with _folder(None) as folder:
        assert folder.is_dir()
    for wanted in (Path("a"), Path("a/b/c"), Path("d/e")):
        with _folder(wanted) as folder:
            folder.mkdir(parents=True, exist_ok=True)
    assert sorted(path.name for path in Path().rglob("*")) == ["a", "runs"]
    with _folder(Path("d/e")) as folder:
        folder.mkdir(parents=True)
        (folder / "jaws.json").touch()
    assert Path("d/e/jaws.json").exists()


def test_options_that_a_model_does_not_use_are_said(capsys: pytest.CaptureFixture[str]):
    common = ("--opening-mm", "60", "--workers", "1", "--trials", "1")
    stiff = ("--jaw-stiffness", "1e4", "--force", "10")
    assert run("robustness", "egg", "--model", "soft-point", *common, *stiff, "--pads", "rectangular") == 0
    assert (
        "note: soft-point does not use --pads, --jaw-stiffness; which grasps are planned depends on --pads "
        "all the same\n"
    ) in capsys.readouterr().err
    GripperOptions(pad_size_mm=(10.0, 20.0, 2.0)).tell_unused("soft-point")
    assert "planned depends on --pad-size-mm" in capsys.readouterr().err
    GripperOptions(jaw_stiffness=1e4).tell_unused("soft-point")
    assert "planned" not in capsys.readouterr().err
    assert run("robustness", "egg", "--model", "reach", *common, "--pads", "rectangular") == 0
    assert "does not use" not in capsys.readouterr().err
    assert GripperOptions(stop="energy", force=10.0).unused("ipc") == ["--force"]
    assert GripperOptions(stop="energy", force=10.0).unused("mujoco") == ["--stop"]
    assert GripperOptions(force=10.0, jaw_stiffness=1e4).unused("ipc") == []


def test_blocked_poses_have_not_moved_by_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    held, blocked = Verdict(True, 1.0, "held", 0, 3.0), Verdict(False, 0.0, "blocked", 0, 0.0)
    row = _grasp_row(0, GRASP, Robustness(verdicts=(held, blocked)))
    assert row["displacement_mm"] == 3.0 and row["robustness"] == 0.5
    none = Robustness(verdicts=(blocked, blocked))
    monkeypatch.setattr("fistful.jaws.robustness.robustness_of_each", lambda *_, **__: [none])
    monkeypatch.setattr("fistful.cli.jaws.planned", lambda *_: [GRASP])
    monkeypatch.setattr("fistful.cli.jaws._recorded", lambda *_, **__: {"reason": "blocked"})
    arguments = ("grasp", "cube", "--count", "1", "--trials", "2")
    assert run(*arguments) == 0
    assert "0.00         -   0.00  2 x blocked" in capsys.readouterr().out
    assert run(*arguments, "--json") == 0
    assert json.loads(capsys.readouterr().out)["grasps"][0]["displacement_mm"] is None


def test_robustness_by_any_model(capsys: pytest.CaptureFixture[str]):
    assert run("robustness", "egg", "--opening-mm", "60", "--model", "reach", "--workers", "1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["model"] == "reach" and 0 <= document["robustness"] <= 1 and len(document["reasons"]) == 5


def test_compare_on_the_physical_trials(assets: Path, capsys: pytest.CaptureFixture[str]):
    """Analytic models only; the simulators take minutes. The second run finds everything done."""
    data = str(assets / "ipc_graspsim")
    arguments = ("compare", "--data", data, "--models", "soft-point,reach", "--trials", "2", "--workers", "1",
                 "--out", "mine")  # fmt: skip
    assert run(*arguments, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [row["model"] for row in document["models"]] == ["soft-point", "reach"]
    for row in document["models"]:
        assert {"ap", "ar", "f1", "mae", "balanced_accuracy", "cpu_s_per_grasp"} <= row.keys()
    assert len(document["physical"]) == 25 and document["always_success"]["mae"] == pytest.approx(0.192)
    lines = Path("mine/units.jsonl").read_text()
    assert lines.count("\n") == 1 + 2 * 25 * 2
    assert run(*arguments) == 0
    assert Path("mine/units.jsonl").read_text() == lines, "nothing was done again"
    told = capsys.readouterr().out
    assert "always success" in told and "0.71" in told, "the paper's figures stand beside ours"
    assert run(*arguments[:-1], "mine", "--seed", "1") == 2
    assert "holds other work: seed is 0 there and 1 now" in capsys.readouterr().err


def test_a_heat_map_is_darker_where_the_value_is_larger():
    cells = [
        {"pad": "rounded", "youngs_modulus": E, "friction": mu, "mae": value, "f1": 0.9}
        for E, mu, value in ((1e5, 0.3, 0.0), (1e5, 0.4, 0.1), (1e6, 0.3, 0.2), (1e6, 0.4, 0.3))
    ]
    picture = np.asarray(heat_map({"cells": cells}).convert("L"), float)
    corners = [picture[88 + 52 * row + 4, 120 + 96 * column + 4] for row in (0, 1) for column in (0, 1)]
    assert corners == sorted(corners, reverse=True) and corners[0] > corners[3] + 60


def test_a_frame_comes_from_above():
    for axis in ((1.0, 0, 0), (0.3, -2.0, 0.5)):
        R = frame_about(axis, 0.0)
        np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(R) == pytest.approx(1.0)
        np.testing.assert_allclose(R[:, 0], np.array(axis) / np.linalg.norm(axis))
        turned = frame_about(axis, 20.0)
        assert R[2, 2] < turned[2, 2], "no roll is steeper than none"
        assert np.arccos(np.clip(R[:, 2] @ turned[:, 2], -1, 1)) == pytest.approx(np.deg2rad(20.0))


def test_the_page_of_jaws(simulated: Path, browser):
    from test_viewer import served, settled_pixels, small_page

    with served(str(simulated)) as (url, _):
        page = small_page(browser)
        page.goto(url)
        page.get_by_text("contact areas").wait_for()
        assert "held" in page.inner_text("body")
        lifted = settled_pixels(page)
        frame = page.locator("input[type=text]").first
        frame.fill("0")
        frame.press("Enter")
        page.wait_for_timeout(1500)
        assert np.mean(np.abs(settled_pixels(page) - lifted).max(axis=2) > 20) > 0.02
        page.close()


@pytest.mark.parametrize(
    ("options", "words"), [(("--moduli", "-1"), "-1 Pa"), (("--moduli",), "at least one")]
)
def test_a_senseless_grid_is_refused(
    assets: Path, options: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
):
    data = str(assets / "ipc_graspsim")
    assert run("grid", "--data", data, "--out", "g", *options) == 2
    assert words in capsys.readouterr().err and not Path("g").exists()


def test_a_small_grid(assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Two of the grasps, one E and one mu, both pads; with a heat map."""
    data = Path(shutil.copytree(assets / "ipc_graspsim", tmp_path / "data"))
    file = data / "phys_grasps_json" / "cube_3cm.json"
    file.write_text(json.dumps([r for r in json.loads(file.read_text()) if r["attempt"] in (2, 3)]))
    arguments = (
        "grid",
        "--data",
        str(data),
        "--moduli",
        "1e6",
        "--frictions",
        "0.4",
        "--workers",
        "1",
        "--out",
        "g",
    )
    assert run(*arguments, "--json") == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [c["pad"] for c in cells] == ["rectangular", "rounded"]
    # The robot held one of them always, the other in one of five trials.
    assert all(c["mae"] in (pytest.approx(0.1), pytest.approx(0.4), pytest.approx(0.9)) for c in cells)
    assert Image.open("g/grid.png").size[0] > 300
    assert run(*arguments) == 0
    told = capsys.readouterr().out
    assert "0.86" in told and "0.91" in told, "the paper's F1 for 1e8 in its scaled units"
