"""The physical trials and the metrics: frames, groups, what is never read, and hand-computed scores."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from fistful.errors import JawsError
from fistful.jaws.metrics import (
    always_success,
    average_precision,
    average_recall,
    balanced_accuracy,
    scores,
)
from fistful.jaws.patch import outline_points, press, surface
from fistful.jaws.trials import GRIPPER, MASSES, read_trials

CUBE = """v .015 .015 -.015\nv .015 -.015 .015\nv .015 .015 .015\nv -.015 .015 .015
v -.015 -.015 -.015\nv .015 -.015 -.015\nv -.015 -.015 .015\nv -.015 .015 -.015
f 3 4 2\nf 7 2 4\nf 3 2 1\nf 6 1 2\nf 3 1 4\nf 8 4 1\nf 5 8 6\nf 1 6 8\nf 5 6 7\nf 2 7 6\nf 5 7 8\nf 4 8 7
"""
# One grasp of the data set, as it is written there: number 5, which always held.
POSE = [[-0.999699, -0.01, 0.024541, 0.38765], [0.024541, 0.0, 0.999699, -0.003], [-0.01, 1.0, 0.0, 0.0185]]


def record(attempt=0, trial=0, result=True, **more) -> dict:
    """A trial straight from above: the base is 0.160098 m over the pads, which are at the cube's middle."""
    grasp = [[1.0, 0, 0, 0.38765], [0, -1.0, 0, -0.003], [0, 0, -1.0, 0.0185 + 0.160098], [0, 0, 0, 1]]
    pose = [[1.0, 0, 0, 0.38765], [0, 1.0, 0, -0.003], [0, 0, 1.0, 0.0185], [0, 0, 0, 1]]
    base = {
        "obj": "cube_3cm",
        "qs_cons": result,
        "qs_agg": result,
        "qs_orig": result,
        "pose": pose,
        "grasp": grasp,
        "tf": np.eye(4).tolist(),
        "stable_pose": 0,
        "attempt": attempt,
        "trial": trial,
        "result": result,
    }
    return base | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "object_meshes").mkdir()
    (tmp_path / "phys_grasps_json").mkdir()
    (tmp_path / "object_meshes" / "cube_3cm.obj").write_text(CUBE)
    write(tmp_path, [record(a, t, result=(a + t) % 3 > 0) for a in range(2) for t in range(5)])
    return tmp_path


def write(folder: Path, records) -> None:
    (folder / "phys_grasps_json" / "cube_3cm.json").write_text(json.dumps(records))


def same(a, b) -> bool:
    return len(a) == len(b) and all(
        x.name == y.name
        and x.results == y.results
        and np.array_equal(x.grasp.p_WG, y.grasp.p_WG)
        and np.array_equal(x.grasp.R_WG, y.grasp.R_WG)
        and np.array_equal(x.resting.p_WO, y.resting.p_WO)
        and np.array_equal(x.resting.R_WO, y.resting.R_WO)
        for x, y in zip(a, b, strict=True)
    )


# Reading


def test_trials_are_grouped_by_attempt_and_put_on_the_plane(folder):
    first, second = read_trials(folder)
    assert [first.name, second.name] == ["cube_3cm/0", "cube_3cm/1"]
    assert first.results == (False, True, True, False, True) and first.robustness == 0.6
    assert first.resting.mass == MASSES["cube_3cm"] == 0.003
    assert first.resting.vertices_W[:, 2].min() == pytest.approx(0, abs=1e-12)
    # The pads' reference point is 0.16 m from the base: at the middle of the cube.
    assert np.allclose(first.grasp.p_WG - first.resting.com_W, 0, atol=1e-9)
    assert np.allclose(first.grasp.R_WG, np.diag([1, -1, -1]))


def test_the_leaking_fields_are_never_read(folder):
    """Changing or removing `qs_*` changes nothing; changing `result` does, so the comparison can fail."""
    before = read_trials(folder)
    file = folder / "phys_grasps_json" / "cube_3cm.json"
    records = json.loads(file.read_text())
    leaks = [key for key in records[0] if key.startswith("qs_")]
    assert len(leaks) == 3
    write(folder, [r | {key: not r[key] for key in leaks} for r in records])
    assert same(read_trials(folder), before)
    write(folder, [{k: v for k, v in r.items() if k not in leaks} for r in records])
    assert same(read_trials(folder), before)
    write(folder, [r | {"result": not r["result"]} for r in records])
    assert not same(read_trials(folder), before)


def test_nothing_but_the_named_fields_is_looked_at(folder, monkeypatch):
    """A record that tells every key asked of it."""
    asked = set()

    class Spy(dict):
        def __getitem__(self, key):
            asked.add(key)
            return super().__getitem__(key)

    load = json.loads
    monkeypatch.setattr("fistful.jaws.trials.json.loads", lambda text: [Spy(r) for r in load(text)])
    read_trials(folder)
    assert asked == {"obj", "pose", "grasp", "attempt", "result"}


def test_a_recorded_pose_with_few_digits_is_laid_flat(folder):
    """The data set's poses have 0.01 where a rotation has 0: 10 mrad, which must not lift an edge."""
    write(folder, [record(pose=[*POSE, [0, 0, 0, 1]])])
    (only,) = read_trials(folder)
    vertices = only.resting.vertices_W
    assert np.sum(vertices[:, 2] < 1e-9) == 4
    assert np.allclose(only.resting.R_WO @ only.resting.R_WO.T, np.eye(3), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pose": [[1, 2], [3, 4]]}, "4 x 4"),
        ({"grasp": np.diag([1.0, 1, -1, 1]).tolist()}, "rotation"),
        ({"result": "yes"}, "true or false"),
        ({"obj": "vase"}, "vase"),
    ],
)
def test_a_bad_record_is_named(folder, change, message):
    write(folder, [record(), record(trial=1, **change)])
    with pytest.raises(JawsError, match=message) as caught:
        read_trials(folder)
    assert "trial 1" in str(caught.value)


def test_folders_that_are_something_else_are_named(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(JawsError, match="phys_grasps_json"):
        read_trials(empty)
    write(folder, {"a": 1})
    with pytest.raises(JawsError, match="list of trials"):
        read_trials(folder)
    (folder / "phys_grasps_json" / "cube_3cm.json").write_text("{")
    with pytest.raises(JawsError, match="JSON"):
        read_trials(folder)
    write(folder, [{k: v for k, v in record().items() if k != "attempt"}])
    with pytest.raises(JawsError, match="attempt"):
        read_trials(folder)
    tilted = [[1, 0, 0, 0], [0, 0.8, -0.6, 0], [0, 0.6, 0.8, 0.02], [0, 0, 0, 1]]
    write(folder, [record(pose=tilted)])
    with pytest.raises(JawsError, match="degrees"):
        read_trials(folder)
    moved = record()["grasp"]
    moved[0] = [1.0, 0, 0, 0.5]
    write(folder, [record(), record(trial=1, grasp=moved)])
    with pytest.raises(JawsError, match="attempt"):
        read_trials(folder)
    (folder / "object_meshes" / "cube_3cm.obj").unlink()
    with pytest.raises(JawsError, match="missing"):
        read_trials(folder)


def test_an_object_without_a_known_mass_needs_one(folder):
    for kind, suffix in (("object_meshes", "obj"), ("phys_grasps_json", "json")):
        shutil.move(folder / kind / f"cube_3cm.{suffix}", folder / kind / f"block.{suffix}")
    (folder / "phys_grasps_json" / "block.json").write_text(json.dumps([record(obj="block")]))
    with pytest.raises(JawsError, match="mass"):
        read_trials(folder)
    assert read_trials(folder, mass=0.01)[0].resting.mass == 0.01


def test_the_published_trials(assets):
    """25 grasps x 5 trials, and wherever most trials succeeded both pads close on the cube."""
    grasps = read_trials(assets / "ipc_graspsim")
    assert len(grasps) == 25 and all(len(g.results) == 5 for g in grasps)
    assert sum(sum(g.results) for g in grasps) == 101
    points = outline_points(GRIPPER.pad.outline)
    for g in grasps:
        patches = [press(surface(g.resting), g.grasp, GRIPPER, jaw, points) for jaw in (0, 1)]
        if g.robustness >= 0.5:
            assert all(p is not None and len(p.f) >= 5 for p in patches), g.name
        # Fingers from above, jaws within their opening, pads above the table.
        assert g.grasp.R_WG[2, 2] < -0.99
        assert (g.grasp.p_WG + 0.008 * g.grasp.R_WG[:, 2])[2] > 0


# Metrics


def test_hand_computed_scores():
    """Predictions 0.9, 0.6, 0.2 for grasps that held in 2 of 2, 1 of 2 and 0 of 2 trials."""
    found = scores([0.9, 0.6, 0.2], [[True, True], [True, False], [False, False]])
    # Threshold 0.9: precision 1, recall 2/3. 0.6: precision 3/4, recall 1. 0.2 adds no recall.
    assert found.ap == pytest.approx(2 / 3 * 1 + 1 / 3 * 3 / 4)
    # Two successes reach the thresholds 0 .. 0.9 (10 of 11), one 0 .. 0.6 (7 of 11).
    assert found.ar == pytest.approx((10 + 10 + 7) / 33)
    assert found.f1 == pytest.approx(2 * found.ap * found.ar / (found.ap + found.ar))
    assert found.mae == pytest.approx((0.1 + 0.1 + 0.2) / 3)
    assert found.balanced_accuracy == 1.0


def test_always_success_looks_good_where_most_succeed():
    results = [[True] * 5] * 4 + [[False] * 5]
    found = always_success(results)
    assert (found.ap, found.ar) == (pytest.approx(0.8), 1.0)
    assert found.f1 == pytest.approx(1.6 / 1.8)
    assert (found.mae, found.balanced_accuracy) == (pytest.approx(0.2), 0.5)


def test_recall_is_never_below_one_eleventh():
    assert average_recall(np.array([True]), np.array([0.0])) == pytest.approx(1 / 11)
    # Three tenths reach the threshold 0.3, though 0.1 + 0.2 > 0.3 and 0.3 < 3 * 0.1 in floating point.
    assert average_recall(np.array([True]), np.array([0.1 + 0.2])) == pytest.approx(4 / 11)
    assert average_recall(np.array([True]), np.array([0.7])) == pytest.approx(8 / 11)


def test_metrics_against_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for _ in range(20):
        truth = rng.uniform(size=60) < 0.7
        predicted = rng.integers(0, 6, 60) / 5
        assert average_precision(truth, predicted) == pytest.approx(
            sklearn.average_precision_score(truth, predicted)
        )
        assert balanced_accuracy(truth, predicted >= 0.5) == pytest.approx(
            sklearn.balanced_accuracy_score(truth, predicted >= 0.5)
        )
        recalls = [sklearn.recall_score(truth, predicted >= t - 1e-9) for t in np.arange(11) / 10]
        assert average_recall(truth, predicted) == pytest.approx(np.mean(recalls))


def test_what_is_not_defined_is_nan():
    assert np.isnan(average_precision(np.zeros(3, bool), np.ones(3)))
    assert np.isnan(average_recall(np.zeros(3, bool), np.ones(3)))
    assert np.isnan(balanced_accuracy(np.ones(3, bool), np.ones(3, bool)))


@pytest.mark.parametrize(
    ("predicted", "results"), [([0.5], [[True], [True]]), ([1.5], [[True]]), ([0.5], [[]]), ([], [])]
)
def test_what_can_not_be_scored_is_refused(predicted, results):
    with pytest.raises(JawsError):
        scores(predicted, results)
