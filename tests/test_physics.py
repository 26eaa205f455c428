"""The simulator against closed forms: Coulomb's limit, free flight, inertial forces. Protocols as records."""

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import trimesh
from scipy.integrate import solve_ivp

import fistful as ff
from fistful.geometry.pose import apply, rotation_about, rotation_from_quaternion
from fistful.hands.description import (
    Description,
    OppositionSpaceDescription,
    Patch,
    SurfaceDescription,
)
from fistful.hands.facing import palm_axes
from fistful.hands.hand import Hand, resolve_hand
from fistful.hands.model import Model
from fistful.objects.parts import convex_parts
from fistful.physics import shake
from fistful.physics.protocol import PROTOCOLS, Protocol, find_protocol, protocol_names
from fistful.physics.scene import SLIDE_LEVER, Scene
from fistful.physics.trial import Attempts, simulate
from fistful.physics.verdict import DIRECTION_NAMES, DIRECTIONS, Reason, Verdicts

PAPER, STRICT, SHAKE, GHOSTS = (PROTOCOLS[name] for name in ("paper", "strict", "shake", "paper-ghosts"))
SIDE = 0.04
"""m. Side of the block."""


def slider(body: str, y: float) -> str:
    towards = -np.sign(y)
    return f"""<body name="{body}" pos="0 {y} 0">
      <joint name="{body}" type="slide" axis="0 {towards} 0" range="0 .06" actuatorfrcrange="-60 60"/>
      <geom name="{body}" type="box" size=".05 .01 .05" mass=".1"/></body>"""


def hand_of(base: str, rest: str = "") -> Hand:
    """Two plates at y = +-50 mm that slide towards each other, and a base of boxes."""
    model = Model.from_mjcf(
        f"""<mujoco><compiler angle="radian"/><worldbody><body name="base">{base}
        {slider("left", 0.06)}{slider("right", -0.06)}</body></worldbody>
        {rest}<keyframe><key name="open" qpos="0 0"/></keyframe></mujoco>"""
    )
    sides = tuple(
        SurfaceDescription(name=name, patches=(Patch(body=name, direction=(0, way, 0), cone_deg=30),))
        for name, way in (("left", -1), ("right", 1))
    )
    space = OppositionSpaceDescription(
        name="plates", surfaces=("left", "right"), joints=("left", "right"), span_mm=None
    )
    fingers = (("left", "left"), ("right", "right"))
    description = Description(
        name="plates",
        model="plates.xml",
        summary="",
        fingers=fingers,
        surfaces=sides,
        opposition_spaces=(space,),
    )
    return resolve_hand(model, description)


STUMP = '<geom name="base" type="box" size=".01 .01 .005" pos="0 0 -.2"/>'


@pytest.fixture(scope="module")
def plates() -> Hand:
    return hand_of(STUMP)


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> ff.Object:
    path = tmp_path_factory.mktemp("block") / "block.stl"
    trimesh.creation.box((SIDE,) * 3).export(path)
    return ff.load_object(path, units="m")


def attempt(q: float, squeeze: float, *places: tuple[float, float, float]) -> Attempts:
    """Both plates at q, then sent on by `squeeze`, m; blocks at places."""
    joints = np.full((1, 2), q)
    return Attempts(
        q=joints,
        pre_grasp=joints - 0.005,
        squeeze=joints + squeeze,
        moving=np.ones((1, 2), bool),
        p_HO=np.array([places], float),
        R_HO=np.tile(np.eye(3), (1, len(places), 1, 1)),
        penetration_mm=np.zeros(1),
    )


def tried(hand: Hand, block: ff.Object, protocol: Protocol, what: Attempts) -> Verdicts:
    n = what.p_HO.shape[1]
    scene = Scene.of(hand, [block] * n, [convex_parts(block)] * n, protocol)
    return simulate(scene, protocol, what, threads=1)


# Coulomb.

CLOSED = 0.05 - SIDE / 2
"""m. Where the plates touch a block between them."""


def squeezed(hand: Hand, block: ff.Object, protocol: Protocol, depth: float) -> tuple[Verdicts, float]:
    """A block between the plates, which are sent `depth` into it; and the force (N) of each after closing."""
    v = tried(hand, block, protocol, attempt(CLOSED, depth, (0, 0, 0)))
    gain = protocol.stiffness / SLIDE_LEVER**2
    return v, float(np.mean(gain * (CLOSED + depth - v.q)))


@pytest.mark.parametrize(
    "protocol", [PAPER, STRICT, replace(SHAKE, test="pushes", steps=100)], ids=lambda p: p.name
)
@pytest.mark.parametrize("mu", [0.1, 0.3, 0.6])
def test_a_block_between_plates_obeys_coulomb(
    plates: Hand, block: ff.Object, protocol: Protocol, mu: float, figure
):
    """It holds if 2 mu N > m a, and slips if not: within 5 %, by the contact settings of every protocol."""
    rules = replace(protocol, friction=mu, density=None, max_drift_mm=None, max_turn_deg=None)
    heaviest, lightest = 0.0, np.inf  # that holds, and that slips; load over limit
    low, high = 0.9, 1.1
    for _ in range(6):
        share = (low + high) / 2
        mass = share * 2 * mu * 20.0 / rules.acceleration
        v, force = squeezed(
            plates, block, replace(rules, mass=mass), 20.0 / (rules.stiffness / SLIDE_LEVER**2)
        )
        load = mass * rules.acceleration / (2 * mu * force)
        assert v.success[0] or (v.reason[0], v.direction[0]) == (Reason.LOST, 0), "lost across the normals"
        if v.success[0]:
            low, heaviest = share, max(heaviest, load)
        else:
            high, lightest = share, min(lightest, load)
    figure(f"{protocol.name}, friction {mu}: heaviest block that holds, of Coulomb's", 100 * heaviest, "%")
    figure(f"{protocol.name}, friction {mu}: lightest block that slips, of Coulomb's", 100 * lightest, "%")
    assert heaviest > 0.95 and lightest < 1.05 and heaviest < lightest


@pytest.mark.parametrize("protocol", [PAPER, STRICT], ids=lambda p: p.name)
def test_what_is_held_does_not_creep(plates: Hand, block: ff.Object, protocol: Protocol, figure):
    """At two thirds of the limit, less than 0.05 mm/s."""
    rules = replace(protocol, friction=0.05, density=None, mass=0.13, max_drift_mm=None, max_turn_deg=None)
    drift = [squeezed(plates, block, replace(rules, steps=steps), 0.01)[0] for steps in (100, 400)]
    assert drift[1].success[0]
    # Along the normals the joints give way, once and for all, by m a / 2 k.
    give = 1e3 * 0.13 * rules.acceleration / 2 / (rules.stiffness / SLIDE_LEVER**2)
    assert drift[0].drift_mm[0, 0] < give + 0.1
    speed = float((drift[1].drift_mm - drift[0].drift_mm)[0, 0] / (300 * rules.step_s))
    figure(f"{protocol.name}: creep of a block at 2/3 of the limit", speed, "mm/s")
    assert speed < 0.05


@pytest.mark.parametrize("protocol", [PAPER, STRICT], ids=lambda p: p.name)
def test_a_coupled_finger_does_not_give_way(block: ff.Object, protocol: Protocol):
    """The right plate has no motor: it follows the left one, and presses as hard."""
    hand = hand_of(STUMP, "<equality><joint joint1='right' joint2='left' polycoef='0 1 0 0 0'/></equality>")
    assert hand.joints == ("left",)
    both = attempt(CLOSED, 0.01, (0, 0, 0))
    one = replace(both, **{k: getattr(both, k)[:, :1] for k in ("q", "pre_grasp", "squeeze", "moving")})
    v = tried(hand, block, protocol, one)
    assert v.success[0] and v.shift_mm[0, 0] < 0.5, "with MuJoCo's default coupling it is 1.7 mm"


# Free flight.


def test_what_nothing_touches_flies(plates: Hand, block: ff.Object, figure):
    """a t^2 / 2, to 1 % with a fine step; the verdict names object and direction."""
    fine = replace(PAPER, substeps=8)
    v = tried(plates, block, fine, attempt(CLOSED - 0.001, 0.0, (0, 0, 0)))
    assert Reason(int(v.reason[0])) == Reason.LOST and v.culprit[0] == 0
    assert DIRECTION_NAMES[v.direction[0]] == "+x" and v.shift_mm[0, 0] == 0 and v.turn_deg[0, 0] == 0
    t = 20 / 60  # The first look: it is gone, and nobody waits for the end.
    way = v.drift_mm[0, 0] / (1e3 * fine.acceleration * t**2 / 2)
    figure("free flight, of a t^2 / 2", 100 * way, "%")
    assert way == pytest.approx(1, rel=0.01)
    assert v.explain(0, ["block"]) == "block was lost when pushed along +x of the hand"


def test_an_object_elsewhere_is_not_touched(plates: Hand, block: ff.Object):
    v = tried(plates, block, PAPER, attempt(CLOSED, 0.01, (0, 0, 0), (0.3, 0, 0)))
    assert Reason(int(v.reason[0])) == Reason.UNTOUCHED and v.culprit[0] == 1 and v.direction[0] == -1
    assert v.drift_mm[0].tolist() == [0, 0], "no test was run"
    assert v.explain(0, ["block", "stray"]) == "stray is not touched after closing; it moved by 0.0 mm"


@pytest.mark.parametrize(("gap_mm", "touches"), [(1.9, True), (2.1, False)])
def test_nearer_than_two_millimetres_is_contact(plates: Hand, block: ff.Object, gap_mm: float, touches: bool):
    """And a contact at a distance does not push."""
    v = tried(plates, block, PAPER, attempt(CLOSED - 1e-3 * gap_mm, 0.0, (0, 0, 0)))
    assert Reason(int(v.reason[0])) == (Reason.LOST if touches else Reason.UNTOUCHED)
    assert v.shift_mm[0, 0] == 0


def walls(centre: np.ndarray, without: int | None, name: str) -> str:
    """Six boxes around a block, 0.5 mm from it, or five."""
    made = []
    for k, way in enumerate(DIRECTIONS):
        size = np.where(way != 0, 0.005, SIDE / 2 + 0.01)
        place = centre + (SIDE / 2 + 0.0055) * way
        if k != without:
            numbers = (" ".join(f"{x:.6f}" for x in v) for v in (size, place))
            made.append('<geom name="{}{}" type="box" size="{}" pos="{}"/>'.format(name, k, *numbers))
    return "".join(made)


@pytest.mark.parametrize("opening", range(6), ids=DIRECTION_NAMES)
def test_the_verdict_names_the_way_out(block: ff.Object, opening: int):
    """Two boxes, the second of which has no wall on one side."""
    first, second = np.array([-0.2, 0.2, 0.2]), np.array([0.2, -0.2, -0.2])
    hand = hand_of(walls(first, None, "a") + walls(second, opening, "b"))
    v = tried(hand, block, replace(PAPER, friction=0.01), attempt(0.0, 0.0, tuple(first), tuple(second)))
    assert Reason(int(v.reason[0])) == Reason.LOST and v.culprit[0] == 1
    assert v.direction[0] == opening
    assert v.drift_mm[0, 0] < 2 and v.drift_mm[0, 1] > 100


def test_a_closed_box_loses_nothing(block: ff.Object):
    place = np.array([0.2, -0.2, -0.2])
    v = tried(hand_of(walls(place, None, "b")), block, PAPER, attempt(0.0, 0.0, tuple(place)))
    assert v.success[0] and v.drift_mm[0, 0] < 2


# What decides besides the pushes.


def test_a_generated_overlap_fails_though_it_would_hold(plates: Hand, block: ff.Object):
    good = attempt(CLOSED, 0.01, (0, 0, 0))
    for overlap, reason in ((9.9, Reason.HELD), (10.1, Reason.DEEP), (np.inf, Reason.DEEP)):
        v = tried(plates, block, PAPER, replace(good, penetration_mm=np.array([overlap])))
        assert Reason(int(v.reason[0])) == reason and v.penetration_mm[0] == overlap
    assert np.array_equal(v.p_HO, good.p_HO) and np.array_equal(v.q, good.q), "nothing was simulated"


def test_drift_and_turn_have_limits(plates: Hand, block: ff.Object):
    """A heavy block between soft plates moves along their normals by m a / 2 k, which is known."""
    grasp = attempt(CLOSED, 0.02, (0, 0, 0))
    rules = replace(PAPER, density=None, mass=2.0)
    drift = tried(plates, block, rules, grasp).drift_mm[0, 0]
    assert drift == pytest.approx(1e3 * 2.0 * 9.8 / 2 / 2000, rel=0.05)
    for limit, reason in ((drift + 0.1, Reason.HELD), (drift - 0.1, Reason.MOVED)):
        v = tried(plates, block, replace(rules, max_drift_mm=limit), grasp)
        assert Reason(int(v.reason[0])) == reason
    assert DIRECTION_NAMES[v.direction[0]] == "+y" and "block moved by 5 mm" in v.explain(0, ["block"])


def test_objects_push_each_other_but_not_as_ghosts(plates: Hand, block: ff.Object):
    """Two blocks one beyond the other, overlapping by 2 mm, each held by plates that reach over both."""
    side_by_side = attempt(CLOSED, 0.001, (-SIDE / 2 + 0.001, 0, 0), (SIDE / 2 - 0.001, 0, 0))
    low = {"friction": 0.05, "density": None, "mass": 0.05}
    solid = tried(plates, block, replace(PAPER, **low), side_by_side)
    ghosts = tried(plates, block, replace(GHOSTS, **low), side_by_side)
    apart = solid.p_HO[0, 1, 0] - solid.p_HO[0, 0, 0]
    assert SIDE - 3e-4 < apart < SIDE + 2e-3, "pushed apart until they do not overlap"
    assert ghosts.p_HO[0, 1, 0] - ghosts.p_HO[0, 0, 0] == pytest.approx(SIDE - 0.002, abs=1e-5)


# The shake.


def hand_in_world(t: float, down: np.ndarray, along: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """p_WH, R_WH; the world is where the hand was first."""
    swing_s = sum(leg[2] for leg in shake._SWINGS)
    place, angle = shake._eased(shake._SWINGS, t)[0], shake._eased(shake._TURNS, t - swing_s)[0]
    return place * np.cross(down, along), rotation_about(along, np.array(angle))


def test_the_shake_is_what_the_paper_says():
    down, along = np.array([1.0, 0, 0]), np.array([0, 0, 1.0])
    seconds = SHAKE.steps * SHAKE.step_s
    times = np.linspace(0, seconds, 6001)
    poses = [hand_in_world(t, down, along) for t in times]
    angle = np.array([np.rad2deg(np.arctan2(R[1, 0], R[0, 0])) for _, R in poses])
    assert angle.max() == pytest.approx(90, abs=0.1) and angle.min() == pytest.approx(-90, abs=0.1)
    aside = np.array([p for p, _ in poses])
    assert np.ptp(aside[:, 1]) == pytest.approx(0.2, abs=1e-4) and not np.any(aside[:, [0, 2]])
    still = shake.motion(seconds, down, along, 9.81)
    assert np.allclose(still.felt_H, 9.81 * down) and not np.any(still.omega_H) and not np.any(still.alpha_H)
    # What is felt is gravity minus the acceleration of the base, seen from the hand.
    h = 1e-4
    for t in (0.1, 0.5, 1.0, 2.0, 3.1, 4.4):
        (p0, R0), (p1, R1), (p2, R2) = (hand_in_world(t + s * h, down, along) for s in (-1, 0, 1))
        felt = R1.T @ (9.81 * down - (p0 - 2 * p1 + p2) / h**2)
        moving = shake.motion(t, down, along, 9.81)
        np.testing.assert_allclose(moving.felt_H, felt, atol=1e-4)
        W = R1.T @ (R2 - R0) / (2 * h)
        np.testing.assert_allclose(moving.omega_H, [W[2, 1], W[0, 2], W[1, 0]], atol=1e-5)


def test_a_body_at_rest_in_a_turning_hand_is_pulled_outwards():
    omega = np.array([0, 0, 2.0])
    still = shake.Motion(np.zeros(3), omega, np.zeros(3))
    r = np.array([0.1, 0, 0.3])
    f, tau = shake.inertial_wrench(still, np.array(0.5), 1e-4 * np.eye(3), r, np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(f, [0.5 * 2.0**2 * 0.1, 0, 0], atol=1e-15)
    np.testing.assert_allclose(tau, 0, atol=1e-15)
    # Coriolis: what moves outwards falls behind. And a ball that stands still in the world feels nothing.
    f, _ = shake.inertial_wrench(
        still, np.array(1.0), np.eye(3), np.zeros(3), np.array([1.0, 0, 0]), np.zeros(3)
    )
    np.testing.assert_allclose(f, [0, -4, 0], atol=1e-15)
    _, tau = shake.inertial_wrench(still, np.array(1.0), np.diag([1.0, 2, 3]), r, -np.cross(omega, r), -omega)
    np.testing.assert_allclose(tau, 0, atol=1e-12)


def test_a_free_body_flies_a_parabola_and_keeps_its_spin():
    """Newton's laws in the hand's frame, with the inertial wrench, are those of the world: to 1e-6."""
    down, along = np.array([1.0, 0, 0]), np.array([0, 0, 1.0])
    mass, inertia_O = 0.3, np.diag([1.0, 2.0, 2.5]) * 1e-4
    rng = np.random.default_rng(3)
    r0, v0, w0 = 0.1 * rng.normal(size=3), rng.normal(size=3), 3 * rng.normal(size=3)

    def rate(t: float, state: np.ndarray) -> np.ndarray:
        r, v, quat, w = np.split(state, [3, 6, 10])
        R = rotation_from_quaternion(quat / np.linalg.norm(quat))
        inertia = R @ inertia_O @ R.T
        moving = shake.motion(t, down, along, 9.81)
        f, tau = shake.inertial_wrench(moving, np.array(mass), inertia, r, v, w)
        a, x, y, z = quat
        spin = 0.5 * np.array([[-x, -y, -z], [a, z, -y], [-z, a, x], [y, -x, a]]) @ w
        return np.concatenate([v, f / mass, spin, np.linalg.solve(inertia, tau - np.cross(w, inertia @ w))])

    start = np.concatenate([r0, v0, [1, 0, 0, 0], w0])
    state = start
    kinks = np.cumsum([0, *(leg[2] for leg in (*shake._SWINGS, *shake._TURNS))])
    for t0, t1 in pairwise(kinks):
        way = solve_ivp(rate, (t0, t1 - 1e-12), state, rtol=1e-10, atol=1e-12)
        state = way.y[:, -1]
        p_WH, R_WH = hand_in_world(t1, down, along)
        parabola = r0 + v0 * t1 + 9.81 * down * t1**2 / 2
        np.testing.assert_allclose(p_WH + R_WH @ state[:3], parabola, atol=1e-6 * max(1, t1**2))
        R_HO = rotation_from_quaternion(state[6:10] / np.linalg.norm(state[6:10]))
        omega = shake.motion(t1, down, along, 9.81).omega_H
        spin_W = R_WH @ R_HO @ inertia_O @ R_HO.T @ (omega + state[10:])
        np.testing.assert_allclose(spin_W, inertia_O @ w0, atol=1e-9)


def test_what_falls_out_of_a_shaken_hand_falls_freely(block: ff.Object, figure):
    """In the simulator, too: seen from a hand that swings and turns, it is where a parabola says."""
    hand = hand_of('<geom name="base" type="box" size=".01 .01 .01" pos=".2 0 0"/>')
    down, along = palm_axes(hand)
    assert abs(down @ along) < 1e-12
    start = np.array([0.2, 0, 0]) + (0.01 + SIDE / 2 + 0.001) * down
    rules = replace(SHAKE, substeps=8, steps=216)  # Until the wrist is half way back.
    v = tried(hand, block, rules, attempt(0.0, 0.0, tuple(start)))
    assert Reason(int(v.reason[0])) == Reason.LOST and v.direction[0] == -1
    assert v.explain(0, ["block"]) == "block was lost when shaken"
    drift = []
    for t in np.arange(1, 25) / 24 * rules.steps * rules.step_s:
        p_WH, R_WH = hand_in_world(t, down, along)
        p_WO = start + SHAKE.acceleration * down * t**2 / 2
        drift.append(np.linalg.norm(apply(R_WH.T, p_WO - p_WH) - start))
    way = v.drift_mm[0, 0] / (1e3 * max(drift))
    figure("fall out of a shaken hand, of a parabola", 100 * way, "%")
    assert way == pytest.approx(1, rel=0.02)


# Protocols as records.


def test_protocols_are_frozen_records():
    assert protocol_names() == ("paper", "paper-ghosts", "strict", "shake")
    for name in protocol_names():
        protocol = find_protocol(name)
        assert protocol.name == name and protocol.summary
        with pytest.raises(FrozenInstanceError):
            protocol.friction = 1.0  # pyright: ignore[reportAttributeAccessIssue]
        assert Protocol.from_dict(protocol.to_dict()) == protocol
        assert (protocol.density is None) != (protocol.mass is None), "one of them"


def test_protocols_survive_json(tmp_path: Path):
    import json

    for protocol in PROTOCOLS.values():
        assert Protocol.from_dict(json.loads(json.dumps(protocol.to_dict()))) == protocol


def test_an_unknown_protocol_is_named():
    with pytest.raises(ff.PhysicsError, match=r"no protocol called 'papers'; there are paper, .*shake"):
        find_protocol("papers")


def test_the_paper_protocol_is_that_of_the_paper():
    assert (PAPER.density, PAPER.friction, PAPER.acceleration, PAPER.steps) == (500, 2.0, 9.8, 100)
    assert PAPER.step_s == pytest.approx(1 / 60) and PAPER.objects_collide and PAPER.contact_mm == 2
    assert PAPER.max_penetration_mm == 10 and PAPER.max_drift_mm is None
    assert replace(GHOSTS, name=PAPER.name, summary=PAPER.summary, objects_collide=True) == PAPER
    assert (STRICT.friction, STRICT.mass, STRICT.max_drift_mm, STRICT.max_turn_deg) == (0.6, 0.1, 50, 15)
    assert STRICT.start == "pre-grasp" and STRICT.torsion > 0


def test_the_documentation_has_the_records():
    """docs/physics.md has a table of all settings, and it is right."""
    text = (Path(__file__).parents[1] / "docs" / "physics.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:3] == "| `"
    ]
    table = {row[0].strip("`"): dict(zip(protocol_names(), row[1:], strict=False)) for row in rows}
    for protocol in PROTOCOLS.values():
        for field, value in protocol.to_dict().items():
            if field not in ("name", "summary"):
                assert table[field][protocol.name] == shown(value), (field, protocol.name)


def shown(value: object) -> str:
    """A setting as docs/physics.md has it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " ".join(f"{x:g}" for x in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
