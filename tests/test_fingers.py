"""Fingers that are drawn behind soft pads: where they have to be, and out of the way."""

import numpy as np
import pytest
import trimesh

from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.jaw_run import JawRun
from fistful.jaws.simulation import Settings
from fistful.jaws.trial import simulate
from fistful.objects.object import load_object
from fistful.view.fingers import THICK, fingers
from fistful.view.jaw_picture import jaw_picture

pytest.importorskip("ipctk")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> JawRun:
    path = tmp_path_factory.mktemp("fingers") / "cube.stl"
    trimesh.creation.box((0.03, 0.03, 0.03)).export(path)
    item = load_object(path, units="m", voxels=4096, use_cache=False)
    lies = Resting(item=item, p_WO=np.array([0, 0, 0.015]), R_WO=np.eye(3), mass=0.05)
    c, s = np.cos(0.3), np.sin(0.3)
    grasp = JawGrasp(p_WG=np.array([0, 0, 0.015]), R_WG=np.array([[c, s, 0], [s, -c, 0], [0, 0, -1.0]]))
    gripper = Gripper()
    settings = Settings(pad_size=5e-3, pad_layers=1)
    return JawRun.of(lies, grasp, gripper, simulate(lies, grasp, gripper, settings, record=True))


def test_fingers_sit_on_the_backs_of_the_pads_and_above_them(run: JawRun):
    R = np.asarray(run.record["R_WG"])
    for frame in (run.recording.frames[0], run.recording.frames[-1]):
        left, right, palm = fingers(run, frame)
        pads = np.asarray(frame.nodes_W) @ R
        for box, nodes, side in ((left, pads[0], -1), (right, pads[1], 1)):
            middle = box.centre_W @ R
            back = side * (side * nodes[:, 0]).max()
            assert middle[0] - side * box.half[0] == pytest.approx(back, abs=1e-9)
            assert middle[2] + box.half[2] == pytest.approx(pads[:, :, 2].min(), abs=1e-9)
        # The palm joins them.
        assert 2 * palm.half[0] == pytest.approx(pads[1, :, 0].max() - pads[0, :, 0].min() + 2 * THICK)
    first, last = (fingers(run, run.recording.frames[k])[2].centre_W[2] for k in (0, -1))
    assert last - first > 0.015


def test_the_picture_has_a_legend_of_all_shades(run: JawRun):
    """Below three pictures and their labels there is a bar from light to dark."""
    picture = np.asarray(jaw_picture(run, size=160))
    bar = picture[-20, 14:234].astype(int).sum(axis=1)
    assert bar[0] > 550 and bar[-1] < 200
    assert np.all(np.diff(bar) < 60)
