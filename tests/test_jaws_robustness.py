"""Starts that noise makes impossible, and the ledger of finished work."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh

import fistful as ff
from fistful.errors import JawsError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.outcome import Reason

pytest.importorskip("ipctk")


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Resting:
    path = tmp_path_factory.mktemp("block") / "block.stl"
    trimesh.creation.box([0.03, 0.03, 0.03]).export(path)
    item = ff.load_object(path, units="m")
    return Resting(item=item, p_WO=np.array([0, 0, 0.015]), R_WO=np.eye(3), mass=0.02)


def grasp_at(x: float) -> JawGrasp:
    R = np.array([[1.0, 0, 0], [0, -1.0, 0], [0, 0, -1.0]])
    return JawGrasp(p_WG=np.array([x, 0.0, 0.018]), R_WG=R)


def test_a_pad_that_noise_puts_into_the_object_starts_farther_open(block: Resting):
    """The pad would start 1 mm inside: an error for the pose asked for, a push aside for a perturbed one."""
    from fistful.jaws.job import Job, run
    from fistful.jaws.simulation import Settings
    from fistful.jaws.start import BlockedError
    from fistful.jaws.trial import simulate

    gripper = replace(Gripper(), opening=0.05)
    with pytest.raises(BlockedError, match="starts with a pad inside the object") as error:
        simulate(block, grasp_at(0.011), gripper)
    assert error.value.narrow
    outcome = run(Job(block, grasp_at(0.011), gripper, Settings()))
    assert outcome.reason is Reason.HELD
    assert outcome.squeeze_displacement_mm == pytest.approx(11, abs=2), "pushed into the middle"


def test_an_object_that_is_too_wide_stays_blocked(block: Resting):
    from fistful.jaws.job import Job, run
    from fistful.jaws.simulation import Settings

    outcome = run(Job(block, grasp_at(0.0), replace(Gripper(), opening=0.028), Settings()))
    assert outcome.reason is Reason.BLOCKED and not outcome.success
    assert "30.0 mm wide between the pads, the gripper opens to 28.0 mm" in outcome.notes[0]


def test_a_comparison_knows_its_data(assets: Path, tmp_path: Path):
    """The same folder for units of other poses is refused, not mixed."""
    from fistful.jaws.comparison import compare

    data = tmp_path / "data"
    shutil.copytree(assets / "ipc_graspsim", data)
    first = compare(data, models=["soft-point"], trials=1, out=tmp_path / "out")
    assert compare(data, models=["soft-point"], trials=1, out=tmp_path / "out") == first
    file = data / "phys_grasps_json" / "cube_3cm.json"
    records = json.loads(file.read_text())
    for record in records:
        record["grasp"][0][3] += 0.5
    file.write_text(json.dumps(records))
    with pytest.raises(JawsError, match="holds other work: data is"):
        compare(data, models=["soft-point"], trials=1, out=tmp_path / "out")
