"""The studies of soft jaws: leave-one-out arithmetic, measures of overlap, ledgers, a compare by hand."""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fistful.errors import JawsError
from fistful.jaws import robustness
from fistful.jaws.comparison import compare
from fistful.jaws.ledger import Ledger
from fistful.jaws.outcome import Frame, Recording
from fistful.jaws.pad_mesh import mesh_pad
from fistful.jaws.penalty import PenaltySettings, overlap_mm, simulate
from fistful.jaws.processes import as_done, in_processes
from fistful.jaws.trials import GRIPPER, read_trials
from fistful.objects import load_object

FILE = Path(__file__).parents[1] / "benchmarks" / "jaws_models.py"
CUBE = """v .015 .015 -.015\nv .015 -.015 .015\nv .015 .015 .015\nv -.015 .015 .015
v -.015 -.015 -.015\nv .015 -.015 -.015\nv -.015 -.015 .015\nv -.015 .015 -.015
f 3 4 2\nf 7 2 4\nf 3 2 1\nf 6 1 2\nf 3 1 4\nf 8 4 1\nf 5 8 6\nf 1 6 8\nf 5 6 7\nf 2 7 6\nf 5 7 8\nf 4 8 7
"""
HALF = 0.015


@pytest.fixture(scope="module")
def studies():
    spec = importlib.util.spec_from_file_location("jaws_models", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["jaws_models"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["jaws_models"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two grasps from above: one through the middle of the cube, held 5 of 5, one that misses it, 1 of 5."""
    data = tmp_path / "data"
    for name in ("object_meshes", "phys_grasps_json"):
        (data / name).mkdir(parents=True)
    (data / "object_meshes" / "cube_3cm.obj").write_text(CUBE)
    pose = np.eye(4)
    pose[2, 3] = HALF
    records = []
    for attempt, (y, wins) in enumerate(((0.0, 5), (0.05, 1))):
        grasp = np.diag([1.0, -1.0, -1.0, 1.0])
        grasp[:3, 3] = [0.0, y, HALF + 0.160098]
        records += [
            {
                "obj": "cube_3cm",
                "pose": pose.tolist(),
                "grasp": grasp.tolist(),
                "attempt": attempt,
                "result": k < wins,
            }
            for k in range(5)
        ]
    (data / "phys_grasps_json" / "cube_3cm.json").write_text(json.dumps(records))
    return data


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    path = tmp_path_factory.mktemp("mesh") / "cube.obj"
    path.write_text(CUBE)
    return load_object(path, units="m")


# Leave one out


def test_leave_one_out_by_hand(studies):
    """Three grasps, three settings.

        errors     1    2    3   sum   without 1, 2, 3
        default   .2   .2   .2   .6    .4  .4  .4
        B         .9   .0   .0   .9    .0  .9  .9
        C         .0   .1   .4   .5    .5  .4  .1

    Without grasp 1, B is best, which is bad on it: 0.9. Without 2, the default and C tie: the default, 0.2.
    Without 3, C: 0.4. Mean 1.5 / 3. In hindsight C is best: 0.5 / 3.
    """
    found = studies.leave_one_out(np.array([[0.2, 0.2, 0.2], [0.9, 0.0, 0.0], [0.0, 0.1, 0.4]]))
    assert found.chosen == (1, 0, 2)
    assert found.mae == pytest.approx(0.5)
    assert (found.hindsight, found.hindsight_mae) == (2, pytest.approx(0.5 / 3))


def test_ties_by_rounding_go_to_the_default(studies):
    """0.1 + 0.2 is more than 0.3 in floating point; the two settings are equally good all the same."""
    found = studies.leave_one_out(np.array([[0.0, 0.1, 0.2], [0.0, 0.0, 0.3]]))
    assert found.chosen[0] == 0 and found.hindsight == 0


def test_leave_one_out_never_beats_hindsight_and_one_setting_is_itself(studies):
    rng = np.random.default_rng(0)
    for errors in rng.uniform(size=(50, 4, 9)):
        found = studies.leave_one_out(errors)
        assert found.mae >= found.hindsight_mae - 1e-12
        assert found.hindsight_mae == pytest.approx(errors.mean(axis=1).min())
    alone = rng.uniform(size=(1, 9))
    assert studies.leave_one_out(alone).mae == pytest.approx(alone.mean())


def test_families_are_compared_with_the_default(studies):
    make = lambda family, name: studies.Variant(family, name, GRIPPER)  # noqa: E731
    tried = [
        make("default", "default"),
        make("speed", "fast"),
        make("force", "weak"),
        make("force", "strong"),
    ]
    error = {"default": [0.2, 0.2], "fast": [0.1, 0.1], "weak": [0.3, 0.3], "strong": [0.0, 0.5]}
    rows = {row["family"]: row for row in studies.choices_by_family(tried, error)}
    assert list(rows) == ["speed", "force", "all"]
    assert rows["speed"]["chosen"] == {"fast": 2} and rows["speed"]["leave_one_out_mae"] == pytest.approx(0.1)
    # Without the second grasp "strong" is perfect, and wrong on it by a half.
    assert rows["force"]["chosen"] == {"default": 1, "strong": 1}
    assert rows["force"]["leave_one_out_mae"] == pytest.approx((0.2 + 0.5) / 2)
    assert rows["force"]["hindsight"] == "default"
    assert rows["all"]["variants"] == 4


def test_every_variant_changes_one_setting(studies):
    default, *others = studies.variants()
    assert default.gripper is studies.BASE and len({v.name for v in others}) == len(others)
    for variant in others:
        fields = [f for f in vars(GRIPPER) if getattr(variant.gripper, f) != getattr(studies.BASE, f)]
        # Jaws that bend need a length besides.
        assert len(fields) == 1 or fields == ["stiffness", "jaw_length"], variant.name


# Overlap


def pads(depth: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes (2, N, 3), faces and tets of two undeformed pads around the cube, `depth` m into it."""
    mesh = mesh_pad(GRIPPER.pad.outline, GRIPPER.pad.thickness, 4e-3, 1)
    both = (mesh, mesh.mirrored())
    nodes = [m.nodes + np.array([side * (HALF - depth), 0, 0]) for m, side in zip(both, (-1, 1), strict=True)]
    return np.stack(nodes), np.stack([m.faces for m in both]), np.stack([m.tets for m in both])


@pytest.mark.parametrize(("depth", "expected_mm"), [(-1e-3, 0.0), (7e-4, 0.7), (2e-3, 2.0)])
def test_overlap_of_pads_pushed_into_a_cube(cube, depth, expected_mm):
    nodes, faces, _ = pads(depth)
    assert overlap_mm(cube, faces, nodes, np.zeros(3), np.eye(3)) == pytest.approx(expected_mm, abs=1e-3)
    # Wherever object and pads are together.
    R = np.array([[0.0, -1, 0], [0, 0, -1], [1, 0, 0]])
    p = np.array([0.4, -0.1, 0.2])
    moved = overlap_mm(cube, faces, nodes @ R.T + p, p, R)
    assert moved == pytest.approx(expected_mm, abs=1e-3)


def test_overlap_of_a_corner_in_a_pad(cube):
    """No node of the pad is in the cube, but an edge of the turned cube is 0.5 mm in the pad."""
    nodes, faces, _ = pads(0.0)
    turn = np.array([[1.0, -1, 0], [1, 1, 0], [0, 0, np.sqrt(2)]]) / np.sqrt(2)
    nodes[0, :, 0] += HALF - np.sqrt(2) * HALF + 5e-4
    nodes[0, :, 1] += 2e-3  # so that the edge meets no node
    nodes[1, :, 0] += 1.0
    deep = overlap_mm(cube, faces, nodes, np.zeros(3), turn)
    assert 0.3 < deep <= 0.501


def test_surfaces_that_cut_are_found_and_others_are_not(cube, studies):
    for depth, cuts in ((1e-3, True), (-1e-4, False)):
        nodes, faces, tets = pads(depth)
        frame = Frame(
            time=0.0, nodes_W=nodes, energies=np.zeros(tets.shape[:2]), p_WO=np.zeros(3), R_WO=np.eye(3)
        )
        recording = Recording(tets=tets, faces=faces, frames=(frame,))
        assert studies.intersects(cube, recording, frame) is cuts
        assert (studies.depths_mm(cube, recording)[0] > 0) is cuts


def test_mujoco_keeps_what_it_measured(folder, studies):
    """The deepest frame is as deep as the outcome says; the last one is where the grasp was judged."""
    first = read_trials(folder)[0]
    settings = PenaltySettings(size=5e-3, layers=1)
    plain = simulate(first.resting, first.grasp, GRIPPER, settings)
    kept = simulate(first.resting, first.grasp, GRIPPER, settings, record=True)
    assert plain.recording is None and kept.recording is not None
    assert (kept.held, kept.penetration_mm) == (plain.held, plain.penetration_mm) and kept.held
    frames = kept.recording.frames
    assert frames[-1].time == pytest.approx(kept.simulated_s)
    assert max(studies.depths_mm(first.resting.item, kept.recording)) == pytest.approx(
        kept.penetration_mm, abs=1e-3
    )
    # Lifted by 2 cm with the jaws, whose nodes moved as far.
    assert frames[-1].p_WO[2] - first.resting.p_WO[2] == pytest.approx(0.02, abs=2e-3)
    rise = frames[-1].nodes_W[:, :, 2].mean() - frames[0].nodes_W[:, :, 2].mean()
    assert rise == pytest.approx(0.02, abs=1e-3)
    assert frames[0].energies.shape == kept.recording.tets.shape[:2]


def test_a_row_of_the_table_leaves_out_what_did_not_start(studies):
    ran = {"held": True, "cpu_s": 1.0, "cut": 2, "cut_at_end": True}
    records = [{**ran, "worst_mm": w} for w in (0.05, 0.2, 3.0)]
    records.append({"held": False, "cpu_s": 0.0, "cut": None, "cut_at_end": None, "worst_mm": None})
    row = studies.overlap_row(records)
    assert (row["grasps"], row["not_started"], row["visible"]) == (3, 1, 2)
    assert (row["median_mm"], row["max_mm"], row["held"]) == (0.2, 3.0, 3)


# Ledgers


def test_a_ledger_goes_on_after_a_cut_line(tmp_path):
    path = tmp_path / "deep" / "units.jsonl"
    with Ledger(path, {"work": (1, 2)}) as ledger:
        for key in "abc":
            ledger.add(key, {"held": key == "a"})
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1]) + 1):
        path.write_bytes(whole[:-cut])
        with Ledger(path, {"work": (1, 2)}) as again:
            assert list(again.records) == ["a", "b"] and again["a"] == {"held": True}
            again.add("c", {"held": False})
        # The broken end is gone, not glued to the new line.
        assert path.read_bytes() == whole
    path.write_bytes(whole[:5])
    with Ledger(path, {"work": (1, 2)}) as again:
        assert not again.records
    assert path.read_bytes() == whole.splitlines(keepends=True)[0]


def test_a_ledger_of_other_work_is_refused(tmp_path):
    path = tmp_path / "units.jsonl"
    work = {"seed": 0, "trials": 5, "gripper": {"friction": 0.4, "outline": [0.1] * 40}}
    with Ledger(path, work) as ledger:
        ledger.add("a", {})
    before = path.read_bytes()
    for other, told in (
        (work | {"seed": 1}, "seed is 0 there and 1 now"),
        ({"seed": 0}, "trials is 5 there and None now"),
        (work | {"more": 1}, "more is None there and 1 now"),
        (
            work | {"gripper": work["gripper"] | {"friction": 0.5}},
            "gripper.friction is 0.4 there and 0.5 now",
        ),
        (work | {"gripper": work["gripper"] | {"outline": []}}, "gripper.outline is another one now"),
    ):
        with pytest.raises(JawsError, match=f"other work: {told}; name another --out"):
            Ledger(path, other)
    for broken in (b"not json\n", b"[1]\n", before + b'{"no key": 1}\n'):
        path.write_bytes(broken)
        with pytest.raises(JawsError, match="damaged"):
            Ledger(path, work)
    path.write_bytes(before)
    with Ledger(path, work) as ledger:
        assert "a" in ledger


@pytest.mark.skipif(os.name == "nt", reason="no locks")
def test_a_ledger_has_one_owner_at_a_time(tmp_path):
    """Until it is closed, or its process is killed."""
    path = tmp_path / "units.jsonl"
    code = (
        "import sys, time; from pathlib import Path; from fistful.jaws.ledger import Ledger\n"
        "ledger = Ledger(Path(sys.argv[1]), {}); ledger.add('a', {})\n"
        "print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None and owner.stdout.readline() == "open\n"
        kept = path.read_bytes()
        with pytest.raises(JawsError, match="is in use by another process"):
            Ledger(path, {})
        assert path.read_bytes() == kept
        owner.kill()
    with Ledger(path, {}) as ledger:
        assert "a" in ledger
        with pytest.raises(JawsError, match="in use"):
            Ledger(path, {})
        ledger.remove()
    assert not path.exists()


@pytest.mark.skipif(os.name == "nt", reason="no locks")
def test_a_removed_ledger_is_nobodys(tmp_path, monkeypatch):
    """Locked until it is gone; who had it open already does not write into the deleted file."""
    import fcntl

    path = tmp_path / "units.jsonl"
    unlink, flock = Path.unlink, fcntl.flock

    def watched(self: Path, missing_ok: bool = False) -> None:
        with pytest.raises(JawsError, match="in use"):
            Ledger(path, {})
        unlink(self, missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", watched)
        Ledger(path, {}).remove()
    assert not path.exists()
    for again in (False, True):
        gone = []

        def late(file, how, gone=gone, again=again):
            if not gone:
                gone.append(path.unlink())
                if again:
                    path.touch()
            flock(file, how)

        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "flock", late)
            with Ledger(path, {}) as ledger:
                ledger.add("a", {})
        with Ledger(path, {}) as ledger:
            assert gone and "a" in ledger
            ledger.remove()


def test_what_could_not_be_written_does_not_count(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    def interrupted(_):
        raise KeyboardInterrupt

    with Ledger(tmp_path / "units.jsonl", {}) as ledger:
        with pytest.raises(ValueError, match="not JSON compliant"):
            ledger.add("a", {"cpu_s": float("nan")})
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                ledger.add("b", {})
            patch.setattr(os, "fsync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ledger.add("c", {})
        assert list(ledger.records) == ["c"]


# Processes


def _first_waits(item: tuple[int, Path]) -> int:
    """The number; 0 waits for a file that 5 writes."""
    k, file = item
    if k == 5:
        file.touch()
    while k == 0 and not file.exists():
        time.sleep(0.01)
    return k


def test_work_is_handed_over_as_it_ends_or_in_order(tmp_path):
    """The first item is slow: whoever keeps results gets the others before it, whoever wants order waits."""
    items = [(k, tmp_path / "as_done") for k in range(6)]
    done = [index for index, out in as_done(_first_waits, items, 2) if index == out]
    assert done[:4] == [1, 2, 3, 4] and sorted(done[4:]) == [0, 5]
    items = [(k, tmp_path / "in_processes") for k in range(6)]
    assert list(in_processes(_first_waits, items, 2)) == list(range(6))


# Compare


def test_compare_by_hand(folder, tmp_path):
    """Both models hold the first grasp always and the second never; the robot held 5 of 5 and 1 of 5.

    MAE (0 + 0.2) / 2. At threshold 1 all 5 predicted successes are true, 5 of 6 are found; below, 6 of 10.
    """
    out = compare(folder, models=("soft-point", "reach"), trials=3, out=tmp_path / "out")
    assert out["physical"] == [1.0, 0.2] and out["grasps"] == ["cube_3cm/0", "cube_3cm/1"]
    for row in out["models"]:
        assert row["robustness"] == [1.0, 0.0]
        assert row["mae"] == pytest.approx(0.1)
        assert row["ap"] == pytest.approx(5 / 6 * 1 + 1 / 6 * 0.6)
        # Threshold 0 finds all six, each of the ten others five of them.
        assert row["ar"] == pytest.approx((1 + 10 * 5 / 6) / 11)
        assert row["balanced_accuracy"] == 1.0
    assert out["always_success"]["mae"] == pytest.approx(0.4)


def test_compare_goes_on_without_redoing_units(folder, tmp_path, monkeypatch):
    done = []
    real = robustness.judge
    monkeypatch.setattr(robustness, "judge", lambda unit: done.append(unit.key) or real(unit))
    first = compare(folder, models=("reach",), trials=2, out=tmp_path / "out")
    assert len(done) == len(set(done)) == 4
    ledger = tmp_path / "out" / "units.jsonl"
    ledger.write_bytes(ledger.read_bytes()[:-5])
    # One unit was lost in mid-line, and a second model is new.
    again = compare(folder, models=("reach", "soft-point"), trials=2, out=tmp_path / "out")
    assert done[4:] == [done[3], *(f"soft-point cube_3cm/{g} {k}" for g in (0, 1) for k in (0, 1))]
    assert again["models"][0]["robustness"] == first["models"][0]["robustness"]
    compare(folder, models=("reach", "soft-point"), trials=2, out=tmp_path / "out")
    assert len(done) == 9
    with pytest.raises(JawsError, match="other work"):
        compare(folder, models=("reach",), trials=3, out=tmp_path / "out")
