"""Trials with real hands: good grasps hold, opened hands drop, threads do not matter, what breaks is seen."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import trimesh

import fistful as ff
from fistful.hands.describing import verify_space
from fistful.hands.hand import Hand
from fistful.hands.skin import geom_distances
from fistful.objects.parts import convex_parts
from fistful.physics import trial
from fistful.physics.protocol import PROTOCOLS, Protocol
from fistful.physics.scene import Scene
from fistful.physics.trial import Attempts, simulate
from fistful.physics.verdict import Reason, Verdicts
from fistful.planning import validation
from fistful.planning.validation import attempts_of
from fistful.synthesis.targets import joint_targets

PAPER, STRICT, SHAKE, GHOSTS = (PROTOCOLS[name] for name in ("paper", "strict", "shake", "paper-ghosts"))
SMALL = ff.Settings(count=8, seed=5, skin_points=800, object_points=256)
BALL_MM = 40.0
SHORT = [PAPER, replace(STRICT, steps=20), replace(SHAKE, steps=24)]


@pytest.fixture(scope="module")
def ball(tmp_path_factory: pytest.TempPathFactory) -> ff.Object:
    path = tmp_path_factory.mktemp("ball") / "ball.stl"
    trimesh.creation.icosphere(radius=BALL_MM / 2000, subdivisions=3).export(path)
    return ff.load_object(path, units="m")


def joined(parts: list[Attempts]) -> Attempts:
    return Attempts(**{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Attempts)})


def ball_grasp(hand: Hand, space: ff.hands.hand.OppositionSpace) -> Attempts:
    """A ball between two surfaces, pressed where they are nearest to it; made without a planner."""
    first, second = (surface.candidates for surface in space.surfaces)
    found = verify_space(hand.model, first, second, space.joint_mask, BALL_MM)
    assert found is not None
    c, poses = found.c_H, hand.model.poses(found.q)

    def gaps(p: np.ndarray) -> np.ndarray:
        return geom_distances(hand.model, poses, p[None])[0] - found.radius

    body, p_B, normal = [], [], []
    for surface in (first, second):
        owner = next(g for g in np.argsort(gaps(c)) if hand.model.geoms[g].body in surface.body)
        n = -np.array([gaps(c + h)[owner] - gaps(c - h)[owner] for h in 1e-6 * np.eye(3)])
        n, b = n / np.linalg.norm(n), hand.model.geoms[owner].body
        body.append(b)
        p_B.append(poses.R_HB[b].T @ (c + found.radius * n - poses.p_HB[b]))
        normal.append(n)
    targets = joint_targets(
        hand, np.zeros((1, 3)), np.eye(3)[None], found.q[None], space.joint_mask[None],
        np.array([body]), np.array([p_B]), np.array([normal]),
    )  # fmt: skip
    return Attempts(
        q=found.q[None],
        pre_grasp=targets.pre_grasp,
        squeeze=targets.squeeze,
        moving=space.joint_mask[None],
        p_HO=c[None, None],
        R_HO=np.eye(3)[None, None],
        penetration_mm=np.array([1e3 * max(found.overlap, 0.0)]),
    )


def tried(
    hand: Hand, objects: list[ff.Object], protocol: Protocol, what: Attempts, threads: int = 2
) -> Verdicts:
    scene = Scene.of(hand, objects, [convex_parts(item) for item in objects], protocol)
    return simulate(scene, protocol, what, threads=threads)


@pytest.mark.parametrize("name", ff.hand_names())
def test_good_grasps_hold_and_opened_hands_drop(name: str, ball: ff.Object, figure):
    """A ball in every opposition space of every built-in hand, under every protocol."""
    hand = ff.load_hand(name)
    good = joined([ball_grasp(hand, space) for space in hand.opposition_spaces])
    # As far open again as the pre-grasp is from the grasp.
    opened = replace(good, q=good.pre_grasp, squeeze=2 * good.pre_grasp - good.q)
    names = np.array([space.name for space in hand.opposition_spaces])
    for protocol, most in ((PAPER, 0), (STRICT, 1), (SHAKE, 0)):
        v = tried(hand, [ball], protocol, good)
        told = [f"{n}: {v.explain(i, ['ball'])}" for i, n in enumerate(names) if not v.success[i]]
        assert (~v.success).sum() <= most, told
        figure(f"{name}, {protocol.name}: hand-made grasps that hold", 100 * v.success.mean(), "%")
        assert v.drift_mm[v.success].max() < 5
        if protocol is SHAKE:  # It is long, and nothing that the others let go would stay.
            continue
        dropped = tried(hand, [ball], protocol, opened)
        assert not dropped.success.any(), names[dropped.success]
        assert set(dropped.reason) <= {Reason.UNTOUCHED, Reason.LOST, Reason.MOVED}


# Batches.


@pytest.fixture(scope="module")
def planned() -> ff.Plan:
    """Two stages as generated: some hold, some do not."""
    hand = ff.load_hand("allegro")
    return ff.plan(hand, [ff.load_object(n) for n in ("pear", "egg")], settings=SMALL, validate=False)


def attempts(plan: ff.Plan, stage: int = -1) -> Attempts:
    made = attempts_of(plan.stages[stage])
    return Attempts(**{f.name: getattr(made, f.name).copy() for f in fields(Attempts)})


def bits(verdicts: Verdicts) -> dict[str, bytes]:
    return {f.name: getattr(verdicts, f.name).tobytes() for f in fields(Verdicts)}


@pytest.mark.parametrize("protocol", SHORT, ids=lambda p: p.name)
def test_threads_splits_and_shuffles_do_not_matter(planned: ff.Plan, protocol: Protocol):
    what = attempts(planned)
    # One that breaks, one that is dropped: they leave the batch before the others.
    what.p_HO[0, 0] += 0.3
    what.q[1, 0] = np.nan
    objects = list(planned.objects)
    whole = tried(planned.hand, objects, protocol, what, threads=1)
    assert whole.success.any() and {Reason.UNTOUCHED, Reason.UNSTABLE} <= set(whole.reason)
    for threads in (2, 3):
        assert bits(tried(planned.hand, objects, protocol, what, threads)) == bits(whole)
    order = np.random.default_rng(0).permutation(len(what))
    shuffled = tried(planned.hand, objects, protocol, what.take(order))
    assert bits(shuffled) == bits(whole.take(order))
    for part in np.split(np.arange(len(what)), [1, 4]):
        assert bits(tried(planned.hand, objects, protocol, what.take(part))) == bits(whole.take(part))


def test_ghosts_do_not_feel_each_other(planned: ff.Plan):
    """Objects put into one another: solid ones push, ghosts stay."""
    what = attempts(planned)
    what = replace(
        what, p_HO=np.repeat(what.p_HO[:, 1:], 2, axis=1), R_HO=np.repeat(what.R_HO[:, 1:], 2, axis=1)
    )
    what.p_HO[:, 1, 2] += 0.005
    egg = planned.objects[1]
    solid, ghosts = (tried(planned.hand, [egg, egg], p, what) for p in (PAPER, GHOSTS))
    apart = np.linalg.norm(solid.p_HO[:, 0] - solid.p_HO[:, 1], axis=-1)
    together = np.linalg.norm(ghosts.p_HO[:, 0] - ghosts.p_HO[:, 1], axis=-1)
    assert np.median(apart) > 0.01 and np.median(together) == pytest.approx(0.005, abs=0.003)


# What breaks is seen.


FAILURES = {Reason.STAND_IN, Reason.UNTOUCHED, Reason.LOST, Reason.UNSTABLE}


def broken(planned: ff.Plan, **changes: np.ndarray) -> Verdicts:
    what = attempts(planned, 0).take(np.arange(4))
    for name, value in changes.items():
        getattr(what, name)[0] = value
    return tried(planned.hand, [planned.objects[0]], PAPER, what)


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"q": np.nan}, {Reason.UNSTABLE}),
        ({"p_HO": np.nan}, {Reason.UNSTABLE}),
        ({"p_HO": 1e12}, {Reason.UNSTABLE}),
        ({"squeeze": np.nan}, {Reason.UNSTABLE}),
        ({"squeeze": np.inf}, {Reason.UNSTABLE}),
        ({"penetration_mm": np.nan}, {Reason.DEEP}),
        ({"p_HO": 0.0}, FAILURES),
        ({"p_HO": 0.0, "penetration_mm": 9.9}, FAILURES),
    ],
)  # fmt: skip
def test_absurd_states_fail_alone_and_in_silence(
    planned: ff.Plan, changes: dict, reasons: set, tmp_path: Path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    v = broken(planned, **changes)
    assert v.reason[0] in reasons and v.explain(0, ["pear"])
    assert bits(v.take(np.arange(1, 4))) == bits(broken(planned).take(np.arange(1, 4))), "the others go on"
    assert not list(tmp_path.iterdir()), "MuJoCo would write a log file here"
    assert capfd.readouterr() == ("", "")


def test_what_breaks_during_the_test_is_not_held(planned: ff.Plan, monkeypatch: pytest.MonkeyPatch):
    """Velocities that no simulation survives, given to a grasp that holds, after it has closed."""
    what = attempts(planned, 0)
    held = tried(planned.hand, [planned.objects[0]], PAPER, what)
    load = trial._Run.load

    def poisoned(run: trial._Run, state: trial.State) -> None:
        load(run, state)
        run.qvel[:] = 1e9

    monkeypatch.setattr(trial._Run, "load", poisoned)
    v = tried(planned.hand, [planned.objects[0]], PAPER, what)
    assert held.success.any() and not v.success.any()
    assert Reason.UNSTABLE in v.reason[held.success]
    monkeypatch.setattr(
        trial._Run, "load", lambda run, state: load(run, state | {"qvel": state["qvel"] * np.nan})
    )
    v = tried(planned.hand, [planned.objects[0]], PAPER, what)
    assert np.all(v.reason[held.success] == Reason.UNSTABLE)
    assert np.all(v.direction[held.success] == 0) and np.isfinite(v.drift_mm).all()


def test_contact_settings_that_explode_are_unstable(planned: ff.Plan):
    wild = replace(STRICT, solref=(-1e15, -1e9))
    v = tried(planned.hand, [planned.objects[0]], wild, attempts(planned, 0))
    assert not v.success.any() and Reason.UNSTABLE in v.reason


def test_mujoco_complains_as_a_physics_error(planned: ff.Plan):
    with pytest.raises(ff.PhysicsError, match="MuJoCo can not simulate allegro with pear"):
        tried(planned.hand, [planned.objects[0]], replace(STRICT, mass=1e-20), attempts(planned, 0))


# Stand-ins.


def test_a_hull_does_not_judge_a_grasp_through_the_hole(tmp_path: Path):
    """A finger in the hole of a ring: its hull is refused, its parts are not; beside it, both judge."""
    trimesh.creation.torus(0.037, 0.011, major_sections=24, minor_sections=8).export(tmp_path / "ring.stl")
    hand, ring = ff.load_hand("allegro"), ff.load_object(tmp_path / "ring.stl", units="m")
    stage = ff.plan(hand, [ring], settings=SMALL, count=24, validate=False).stages[0]
    what = attempts_of(stage)
    overlap = what.penetration_mm
    hulls, cut = (validation.Tester(hand, PAPER, parts=kind).test([ring], what) for kind in ("hull", "parts"))
    through = depth_in_hull_mm(hand, ring, stage) > PAPER.max_stand_in_mm + overlap + 1
    beside = depth_in_hull_mm(hand, ring, stage) < PAPER.max_stand_in_mm - 1
    assert through.sum() >= 3 and beside.any(), "the planner uses the hole"
    assert np.all(hulls.reason[through] == Reason.STAND_IN) and np.all(hulls.culprit[through] == 0)
    assert not np.any(hulls.reason[beside] == Reason.STAND_IN)
    assert not np.any(cut.reason[through] == Reason.STAND_IN) and cut.success[through].any()
    i = int(np.flatnonzero(through)[0])
    assert "not judged" in hulls.explain(i, ["ring"]) and "ring" in hulls.explain(i, ["ring"])


def depth_in_hull_mm(hand: Hand, item: ff.Object, stage: ff.Stage) -> np.ndarray:
    """(N,) float. How deep points of the hand's skin are in the convex hull of the object."""
    corners = item.hull_vertices[item.hull_faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    offset = np.einsum("fi,fi->f", normals, corners[:, 0])
    depth = []
    for q, p_OH, R_OH in zip(stage.grasps.q, stage.grasps.p_OH, stage.grasps.R_OH, strict=True):
        points = hand.poses(q).points(hand.skin.body, hand.skin.p_B) @ R_OH.T + p_OH
        depth.append(-1e3 * (points @ normals.T - offset).max(axis=1).min())
    return np.array(depth)
