"""Whole simulated grasps: outcomes of the state machine, bad input, budgets, the same result twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import trimesh

from fistful.errors import FistfulError, JawsError
from fistful.jaws.contact_mesh import contact_mesh, simplify
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper, Pad, rectangle
from fistful.jaws.models import Ipc
from fistful.jaws.outcome import JawOutcome, Reason
from fistful.jaws.robustness import robustness
from fistful.jaws.simulation import Settings
from fistful.jaws.trial import simulate
from fistful.objects.object import Object, load_object

pytest.importorskip("ipctk")
# Coarser than the defaults: these tests ask what happens, not how exactly.
COARSE = Settings(pad_size=5e-3, pad_layers=1)
GRIPPER = Gripper(pad=Pad(outline=rectangle(0.012, 0.016)))


@pytest.fixture(scope="module")
def cube(tmp_path_factory: pytest.TempPathFactory) -> Object:
    path = tmp_path_factory.mktemp("jaws") / "cube.stl"
    trimesh.creation.box((0.03, 0.03, 0.03)).export(path)
    return load_object(path, units="m", voxels=4096, use_cache=False)


@pytest.fixture(scope="module")
def ball(tmp_path_factory: pytest.TempPathFactory) -> Object:
    path = tmp_path_factory.mktemp("jaws") / "ball.stl"
    trimesh.creation.icosphere(4, 0.015).export(path)
    return load_object(path, units="m", voxels=4096, use_cache=False)


def resting(item: Object, mass: float = 0.05) -> Resting:
    return Resting(item=item, p_WO=np.array([0, 0, 0.015]), R_WO=np.eye(3), mass=mass)


def from_above(x: float = 0.0, y: float = 0.0, z: float = 0.015, yaw: float = 0.0) -> JawGrasp:
    c, s = np.cos(yaw), np.sin(yaw)
    return JawGrasp(p_WG=np.array([x, y, z]), R_WG=np.array([[c, s, 0], [s, -c, 0], [0, 0, -1.0]]))


def sound(outcome: JawOutcome) -> None:
    """What holds for every outcome."""
    assert outcome.intersections == 0 and outcome.inverted_tets == 0 and outcome.unconverged_steps == 0
    assert outcome.success == (outcome.reason is Reason.HELD)
    assert len(outcome.time_s) == len(outcome.force_N) == len(outcome.area_mm2) == outcome.steps
    assert outcome.min_gap_m > 0


def test_held(cube: Object):
    outcome = simulate(resting(cube), from_above(x=1e-3), GRIPPER, COARSE, record=True)
    sound(outcome)
    assert outcome.reason is Reason.HELD
    # The jaws are 1 mm to the right of the cube: the left one, jaw 0, arrives first and pushes it there.
    assert outcome.first_contact == 0
    assert outcome.squeeze_displacement_mm == pytest.approx(1.0, abs=0.1)
    assert outcome.squeeze_rotation_deg < 0.5 and outcome.lift_displacement_mm < 0.2
    end = int(np.argmax(outcome.lifting)) - 1
    assert outcome.force_N[end] == pytest.approx([20, 20], rel=0.06)
    assert outcome.area_mm2[end] == pytest.approx([192, 192], rel=0.05)
    assert outcome.height_mm[-1] >= 20
    assert outcome.recording and len(outcome.recording.frames) == outcome.steps
    frame = outcome.recording.frames[-1]
    assert frame.p_WO[2] == pytest.approx(0.035, abs=1.5e-3)
    assert frame.nodes_W.shape[0] == 2 and frame.energies.min() >= 0


def test_jaws_that_keep_their_force_hold_a_cone(tmp_path: Path):
    """A cone that narrows upwards slips a little in the jerk of the lift.

    Its wall leans by a = 6.8 degrees, so two jaws of F = 20 N carry 2 F tan(atan(mu) - a) = 10.7 N: more than
    its weight of 7.8 N, less than in the jerk. Jaws that keep their distance lose their force with the slip.
    """
    cone = trimesh.creation.cylinder(radius=0.02, height=0.03, sections=48)
    cone.vertices[:, :2] *= 1 - 6 * cone.vertices[:, 2:]
    path = tmp_path / "cone.stl"
    cone.export(path)
    item = load_object(path, units="m", voxels=4096, use_cache=False)
    locked, pressing = (
        simulate(resting(item, 0.8), from_above(), replace(GRIPPER, hold=hold), COARSE)
        for hold in ("distance", "force")
    )
    sound(locked)
    sound(pressing)
    assert locked.reason is Reason.DROPPED
    assert pressing.reason is Reason.HELD
    assert pressing.force_N[pressing.lifting][5:] == pytest.approx(20, rel=0.05)


def test_energy_rule(cube: Object):
    outcome = simulate(resting(cube), from_above(), replace(GRIPPER, stop="energy"), COARSE)
    sound(outcome)
    assert outcome.reason is Reason.HELD
    assert 5 < outcome.force_N[int(np.argmax(outcome.lifting)) - 1].min() < 40


def test_missed(cube: Object):
    outcome = simulate(resting(cube), from_above(y=0.05), GRIPPER, COARSE)
    assert (outcome.reason, outcome.steps, outcome.first_contact) == (Reason.MISSED, 0, None)


def test_pushed_out(cube: Object):
    outcome = simulate(resting(cube), from_above(x=0.012, y=-0.012, yaw=np.pi / 4), GRIPPER, COARSE)
    sound(outcome)
    assert outcome.reason is Reason.PUSHED_OUT and outcome.first_contact is not None
    assert outcome.squeeze_displacement_mm > 1


def test_zero_friction_is_an_outcome(cube: Object):
    slippery = replace(GRIPPER, friction=0.0, ground_friction=0.0)
    outcome = simulate(resting(cube), from_above(), slippery, COARSE)
    sound(outcome)
    assert outcome.reason in (Reason.DROPPED, Reason.NOT_LIFTED)


def test_too_heavy_to_lift(cube: Object):
    """2 mu N = 16 N do not carry 3 kg."""
    outcome = simulate(resting(cube, mass=3.0), from_above(), GRIPPER, COARSE)
    assert not outcome.success and outcome.reason in (Reason.NOT_LIFTED, Reason.DROPPED)


def test_force_is_kept_after_the_energy_rule_too(cube: Object):
    """Jaws still close when the energy is reached; they keep what they press with, not what drives them."""
    gripper = replace(GRIPPER, stop="energy", hold="force")
    outcome = simulate(resting(cube), from_above(), gripper, COARSE)
    sound(outcome)
    assert outcome.reason is Reason.HELD
    squeezed = outcome.force_N[~outcome.lifting][-1].mean()
    assert outcome.force_N[-1] == pytest.approx(squeezed, rel=0.02)


def test_pads_that_meet_in_the_lift_hold_nothing(tmp_path: Path):
    """Jaws that keep their force rise off a slippery plate and close on each other."""
    path = tmp_path / "plate.stl"
    trimesh.creation.box((0.006, 0.03, 0.012)).export(path)
    item = load_object(path, units="m", voxels=4096, use_cache=False)
    plate = Resting(item=item, p_WO=np.array([0, 0, 0.006]), R_WO=np.eye(3), mass=0.05)
    outcome = simulate(plate, from_above(z=9e-3), replace(GRIPPER, hold="force", friction=0.0), COARSE)
    sound(outcome)
    assert outcome.reason is Reason.DROPPED
    assert outcome.height_mm[-1] < 1


@pytest.mark.parametrize(("friction", "held"), [(0.4, True), (0.05, False)])
def test_jaws_that_bend_let_a_slippery_ball_go(ball: Object, friction: float, held: bool):
    """20 N bend jaws of 5e3 N/m and 6 cm by 0.1 rad: a wedge that opens to the tips.

    It pushes the ball out unless mu > 0.1, as a vase of the paper. Jaws that give way without a tilt hold it
    as stiff ones do: 2 mu F is four times its weight.
    """
    soft = replace(GRIPPER, stiffness=5e3, friction=friction)
    for gripper, expected in ((soft, True), (replace(soft, jaw_length=0.06), held)):
        outcome = simulate(resting(ball), from_above(), gripper, COARSE)
        sound(outcome)
        assert outcome.success is expected


def test_budgets(cube: Object):
    outcome = simulate(resting(cube), from_above(), GRIPPER, replace(COARSE, max_steps=4))
    assert (outcome.reason, outcome.steps) == (Reason.BUDGET, 4)
    outcome = simulate(resting(cube), from_above(), GRIPPER, replace(COARSE, max_cpu_s=0.0))
    assert (outcome.reason, outcome.steps) == (Reason.BUDGET, 1)


def test_the_same_twice(cube: Object):
    a, b = (simulate(resting(cube), from_above(y=0.004), GRIPPER, COARSE) for _ in range(2))
    assert np.array_equal(a.force_N, b.force_N) and np.array_equal(a.height_mm, b.height_mm)
    assert a.newton_iterations == b.newton_iterations


def test_robustness_is_the_same_on_one_and_two_workers(cube: Object):
    model = Ipc(settings=COARSE)
    runs = [
        robustness(model, resting(cube), from_above(y=0.02), GRIPPER, trials=3, seed=5, workers=n)
        for n in (1, 2)
    ]
    assert runs[0].value == runs[1].value == np.mean([v.held for v in runs[0].verdicts])
    for a, b in zip(runs[0].verdicts, runs[1].verdicts, strict=True):
        assert a._replace(cpu_s=0.0) == b._replace(cpu_s=0.0)


def test_poses_that_noise_makes_impossible_count_as_failures(cube: Object):
    """The gripper opens to just the width of the cube: turned ones are wider."""
    tight = replace(GRIPPER, opening=0.0301)
    found = robustness(
        Ipc(settings=COARSE), resting(cube), from_above(), tight, trials=4, shift=0.0, turn=0.02, lever=0.0
    )
    assert Reason.BLOCKED in found.reasons
    for verdict in found.verdicts:
        assert verdict.held == (verdict.reason == Reason.HELD)
    assert found.value == found.reasons.count(Reason.HELD) / 4


def test_force_is_of_no_effect_with_the_energy_rule(cube: Object):
    ends = [
        simulate(resting(cube), from_above(), replace(GRIPPER, stop="energy", closing_force=F), COARSE)
        for F in (5.0, 40.0)
    ]
    assert np.array_equal(ends[0].force_N, ends[1].force_N)


@pytest.mark.parametrize(
    ("gripper", "grasp", "message"),
    [
        (replace(GRIPPER, opening=0.02), from_above(), "30.0 mm wide.*opens to 20.0"),
        (GRIPPER, from_above(x=0.02), "inside the object"),
        (GRIPPER, from_above(z=0.002), "below the plane"),
        (GRIPPER, JawGrasp(p_WG=np.array([0, 0, 0.015]), R_WG=np.eye(3)), "from under the plane"),
        (
            replace(GRIPPER, pad=Pad(outline=rectangle(1e-4, 1e-2))),
            from_above(),
            "0.1 mm, lies outside 1 .. 500",
        ),
        (GRIPPER, from_above(z=np.nan), "not finite"),
        (GRIPPER, JawGrasp(p_WG=np.zeros(3), R_WG=np.ones((3, 3))), "no rotation"),
        (replace(GRIPPER, pad=Pad(youngs_modulus=1e20)), from_above(), r"1e\+20 Pa"),
        (replace(GRIPPER, pad=Pad(youngs_modulus=0.0)), from_above(), "0 Pa"),
        (replace(GRIPPER, pad=Pad(youngs_modulus=np.nan)), from_above(), "nan Pa"),
        (replace(GRIPPER, pad=Pad(poissons_ratio=0.5)), from_above(), "0.495"),
        (replace(GRIPPER, pad=Pad(thickness=0.0)), from_above(), "thickness"),
        (replace(GRIPPER, friction=-0.1), from_above(), "friction -0.1"),
        (replace(GRIPPER, closing_force=0.0), from_above(), "closing force"),
        (replace(GRIPPER, jaw_length=-0.1), from_above(), "length of the jaws"),
        (replace(GRIPPER, stop="soon"), from_above(), "stop is 'soon'"),  # pyright: ignore[reportArgumentType]
        (replace(GRIPPER, hold="tight"), from_above(), "hold is 'tight'"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_input(cube: Object, gripper: Gripper, grasp: JawGrasp, message: str):
    with pytest.raises(JawsError, match=message) as caught:
        simulate(resting(cube), grasp, gripper, COARSE)
    assert isinstance(caught.value, FistfulError) and isinstance(caught.value, ValueError)


def test_bad_objects(cube: Object):
    opened = replace(cube, faces=cube.faces[:-1], key="open")
    with pytest.raises(JawsError, match="open: 3 edges"):
        simulate(resting(opened), from_above(), GRIPPER, COARSE)
    crossing = trimesh.util.concatenate([cube.mesh, cube.mesh.copy().apply_translation([0.01, 0.012, 0.013])])
    assert isinstance(crossing, trimesh.Trimesh)
    cut = replace(cube, vertices=np.array(crossing.vertices), faces=np.array(crossing.faces), key="cut")
    with pytest.raises(JawsError, match="cuts itself"):
        simulate(resting(cut), from_above(), GRIPPER, COARSE)
    with pytest.raises(JawsError, match="mass"):
        simulate(resting(cube, mass=0.0), from_above(), GRIPPER, COARSE)


def test_robustness_of_a_pose_that_can_not_be_says_why(cube: Object):
    with pytest.raises(JawsError, match="wide"):
        robustness("ipc", resting(cube), from_above(), replace(GRIPPER, opening=0.02), trials=2)
    with pytest.raises(JawsError, match="at least one"):
        robustness("ipc", resting(cube), from_above(), GRIPPER, trials=0)


def test_heavy_meshes_are_simplified_with_a_note(cube: Object):
    ball = trimesh.creation.icosphere(5, 0.02)
    assert len(ball.faces) > 4000
    small = simplify(np.asarray(ball.vertices), np.asarray(ball.faces), 2000)
    assert 100 < len(small.faces) <= 2000
    assert "20,480 faces were simplified" in small.notes[0] and "mm at most" in small.notes[0]
    radii = np.linalg.norm(small.vertices, axis=1)
    assert radii.min() > 0.0195
    item = replace(cube, vertices=np.array(ball.vertices), faces=np.array(ball.faces), key="ball")
    assert len(contact_mesh(item, 4000).faces) <= 4000


@pytest.mark.parametrize("radius", [1e-3, 1e-4])
def test_thin_parts_survive_simplification(radius: float):
    """However few faces are asked for, a rod keeps its length, and a thickness above the tolerance."""
    rod = trimesh.creation.icosphere(4)
    rod.vertices *= [radius, radius, 0.05]
    small = simplify(np.array(rod.vertices), np.array(rod.faces), 8)
    assert 8 < len(small.faces) < len(rod.faces) / 2
    size = np.ptp(small.vertices, axis=0)
    assert size[2] == pytest.approx(0.1, rel=0.05)
    assert radius < 5e-4 or size[:2] == pytest.approx(2 * radius, rel=0.3)
    assert "by more with the 8 asked for" in small.notes[0]


def test_without_ipctk(cube: Object, monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "ipctk", None)
    with pytest.raises(JawsError, match=r"fistful\[jaws\]"):
        simulate(resting(cube), from_above(), GRIPPER, COARSE)
