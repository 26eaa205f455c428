"""Plans that go on from what held, verdicts in their folders, `fistful validate`, and the vendor's hand."""

import json
from dataclasses import fields, replace
from pathlib import Path

import mujoco
import numpy as np
import pytest

import fistful as ff
from fistful.cli import main
from fistful.hands.hand import Hand
from fistful.physics.protocol import PROTOCOLS
from fistful.physics.vendor import VENDORS, vendor_spec
from fistful.physics.verdict import Reason, Verdicts
from fistful.planning.run_folder import save_validation
from fistful.planning.validation import Validation, agreement, held_throughout, stage_rates
from fistful.synthesis.stage import Grasps

SMALL = ff.Settings(count=6, seed=3, skin_points=800, object_points=256)


@pytest.fixture(scope="module")
def hand() -> ff.Hand:
    return ff.load_hand("allegro")


@pytest.fixture(scope="module")
def objects() -> list[ff.Object]:
    return [ff.load_object(name) for name in ("pear", "egg", "die")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs") / "plan-1"


@pytest.fixture(scope="module")
def done(hand: ff.Hand, objects: list[ff.Object], folder: Path) -> ff.Plan:
    return ff.plan(hand, objects, settings=SMALL, out=folder)


def bits(plan: ff.Plan) -> list[tuple[str, int, bytes]]:
    """Everything that was generated, and every verdict."""
    assert plan.validation is not None
    made = [
        (f.name, n, getattr(s.grasps, f.name).tobytes())
        for n, s in enumerate(plan.stages)
        for f in fields(Grasps)
    ]
    return made + verdict_bits(plan.validation)


def verdict_bits(validation: Validation) -> list[tuple[str, int, bytes]]:
    verdicts = enumerate(validation.verdicts)
    return [(f.name, n, getattr(v, f.name).tobytes()) for n, v in verdicts for f in fields(Verdicts)]


# The loop.


def test_a_stage_continues_what_held_from_where_it_came_to_rest(done: ff.Plan):
    assert done.stopped is None and done.validation is not None and len(done.stages) == 3
    for n in (1, 2):
        g, parent = done.stages[n].grasps, done.stages[n].grasps.parent
        before, rest = done.stages[n - 1].grasps, done.validation.verdicts[n - 1]
        assert np.all(done.held(n - 1)[parent]), "only what holds everything is continued"
        still = ~g.joint_mask
        q = np.clip(rest.q, done.hand.model.lower, done.hand.model.upper)[parent]
        assert np.array_equal(g.q[still], q[still]), "joints stay where objects stopped them, bit for bit"
        assert np.array_equal(g.p_HO[:, :n], rest.p_HO[parent]) and np.array_equal(
            g.R_HO[:, :n], rest.R_HO[parent]
        )
        assert np.any(rest.p_HO[parent] != before.p_HO[parent]), "which is not where they were generated"
        for target in (g.pre_grasp, g.squeeze):
            assert np.array_equal(target[still], rest.targets[parent][still]), "and go on pressing"


def test_rates_are_conditional_and_chained(done: ff.Plan):
    assert done.validation is not None
    held = held_throughout(done.stages, done.validation)
    chained = 1.0
    for stage, verdicts, rate, mine in zip(
        done.stages, done.validation.verdicts, stage_rates(done.stages, done.validation), held, strict=True
    ):
        assert rate.generated == rate.tried == len(stage), "every grasp continues one that held"
        assert rate.valid == verdicts.success.sum() == mine.sum()
        assert rate.conditional == rate.valid / rate.tried
        chained *= rate.conditional
        assert rate.chained == pytest.approx(chained)
    assert done.held()[done.best()], "the best grasp is one that holds"


def test_rates_of_a_plan_that_did_not_ask(done: ff.Plan, hand: ff.Hand, objects: list[ff.Object]):
    """Validated afterwards, grasps whose parent fell are generated but not tried."""
    blind = ff.plan(hand, objects[:2], settings=SMALL, validate=False)
    assert blind.validation is None and not blind.held().any()
    seen = ff.validate(blind)
    assert seen.validation is not None
    fell = replace(seen.validation.verdicts[0], reason=np.full(6, Reason.LOST))
    fell.reason[0] = Reason.HELD
    one = replace(seen.validation, verdicts=(fell, seen.validation.verdicts[1]))
    rates = stage_rates(seen.stages, one)
    assert rates[0].valid == 1 and rates[1].tried == int((seen.stages[1].grasps.parent == 0).sum())
    assert rates[1].generated == 6 and rates[1].chained == pytest.approx(rates[1].conditional / 6)


def test_resumed_is_as_uninterrupted(done: ff.Plan, hand: ff.Hand, objects: list[ff.Object], tmp_path: Path):
    def stop(_: ff.Plan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ff.plan(hand, objects, settings=SMALL, out=tmp_path, threads=1, on_stage=stop)
    part = ff.load_plan(tmp_path)
    assert len(part.stages) == 1 and part.validation is not None and len(part.validation.verdicts) == 1
    again = ff.plan(hand, objects, settings=SMALL, out=tmp_path, threads=3)
    assert bits(again) == bits(done) == bits(ff.load_plan(tmp_path))
    with pytest.raises(ff.PlanError, match=r"holds another plan: validation.protocol"):
        ff.plan(hand, objects, settings=SMALL, out=tmp_path, protocol="strict")


def test_a_plan_that_nothing_holds_says_why(hand: ff.Hand, objects: list[ff.Object], tmp_path: Path):
    ice = replace(PROTOCOLS["paper"], name="ice", friction=1e-4, torsion=1e-5)
    made = ff.plan(hand, objects[:2], settings=SMALL, protocol=ice, out=tmp_path)
    assert len(made.stages) == 1 and "none of the 6 grasps of pear holds under protocol ice: " in str(
        made.stopped
    )
    assert ff.load_plan(tmp_path).stopped == made.stopped


def test_validated_again_it_is_the_same(done: ff.Plan):
    again = ff.validate(done, threads=1)
    assert done.validation is not None and again.validation is not None
    assert verdict_bits(again.validation) == verdict_bits(done.validation)
    assert agreement(again.validation, done.validation).equal == 1


def test_a_later_validation_is_saved_beside(done: ff.Plan, folder: Path):
    strict = ff.validate(done, "strict")
    assert strict.validation is not None
    save_validation(folder, strict)
    loaded = ff.load_plan(folder, protocol="strict").validation
    assert loaded is not None and loaded.protocol == PROTOCOLS["strict"]
    assert verdict_bits(loaded) == verdict_bits(strict.validation)
    assert (loaded.cpu_s, loaded.wall_s) == (strict.validation.cpu_s, strict.validation.wall_s)
    assert bits(ff.load_plan(folder)) == bits(done), "the plan's own verdicts stay"
    with pytest.raises(ff.PlanError, match=r"no verdicts by protocol 'shake'.*fistful validate"):
        ff.load_plan(folder, protocol="shake")


# The command.


def run(*arguments: object) -> int:
    try:
        main(["validate", *map(str, arguments)])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_validate_prints_and_saves(done: ff.Plan, folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(folder, "--protocol", "paper-ghosts", "--json", "--grasp", "2", "--threads", "2") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["protocol"] == json.loads(json.dumps(PROTOCOLS["paper-ghosts"].to_dict()))
    assert [row["object"] for row in document["stages"]] == ["pear", "egg", "die"]
    for row, stage in zip(document["stages"], done.stages, strict=True):
        assert row["generated"] == len(stage) >= row["tried"] >= row["valid"]
        assert 0 <= row["sr_chained"] <= row["sr"] <= 100
        assert sum(row["reasons"].values()) == len(stage) and row["cpu_s"] > 0
    assert len(document["grasp"]) == 3 and document["grasp"][2].startswith("stage 3, grasp 2: ")
    assert "agreement" not in document
    saved = ff.load_plan(folder, protocol="paper-ghosts").summary()
    assert [row["validation"] for row in saved["stages"]] == document["stages"]
    assert run(folder) == 0
    out = capsys.readouterr().out
    assert "protocol paper: " in out and "chained" in out and "held" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name the folder of a plan"),
        (("nowhere",), "nowhere holds no plan: there is no such folder"),
        (("RUN", "--protocol", "papers"), "no protocol called 'papers'; there are paper"),
        (("RUN", "--grasp", "6"), "the last stage has grasps 0 to 5"),
        (("RUN", "--grasp", "-1"), "the last stage has grasps 0 to 5"),
        (("RUN", "--hand-model", "menagerie"), "MENAGERIE_ROOT is not set"),
    ],
)
def test_user_errors_are_one_line(
    done: ff.Plan, folder: Path, arguments: tuple[str, ...], words: str, capsys, monkeypatch
):
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    assert run(*(folder if a == "RUN" else a for a in arguments)) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err


def test_nothing_that_holds_is_exit_code_2(
    hand: ff.Hand, objects: list[ff.Object], tmp_path: Path, monkeypatch
):
    ff.plan(hand, objects[:1], settings=SMALL, count=2, out=tmp_path, validate=False)
    monkeypatch.setitem(
        PROTOCOLS, "ice", replace(PROTOCOLS["paper"], name="ice", friction=1e-4, torsion=1e-5)
    )
    assert run(tmp_path, "--protocol", "ice", "--json") == 2


# The vendor's hand.


@pytest.fixture
def menagerie(assets: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = assets / "menagerie"
    if not (root / VENDORS["allegro"].file).is_file():
        pytest.skip(f"no {VENDORS['allegro'].file} in {root}: the vendors' hands are not part of the project")
    monkeypatch.setenv("MENAGERIE_ROOT", str(root))
    return root


def test_verdicts_on_the_vendors_allegro_agree(
    done: ff.Plan, folder: Path, menagerie: Path, capsys: pytest.CaptureFixture[str], figure
):
    assert run(folder, "--hand-model", "menagerie", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    a = document["agreement"]
    assert document["hand_model"] == "menagerie" and a["grasps"] == 18
    assert a["both"] + a["neither"] + a["only_own"] + a["only_menagerie"] == 18
    assert a["equal"] == pytest.approx(100 * (a["both"] + a["neither"]) / 18, abs=0.001)
    figure("agreement of verdicts with the vendor's Allegro, 18 grasps", a["equal"], "%")
    assert a["equal"] >= 85
    saved = ff.load_plan(folder, protocol="paper").validation
    assert saved is not None and done.validation is not None
    assert verdict_bits(saved) == verdict_bits(done.validation), "what is saved is of our own hand"
    seen = ff.validate(done, hand_model="menagerie").validation
    assert seen is not None and verdict_bits(seen) != verdict_bits(saved), "it is another hand"
    assert run(folder, "--hand-model", "menagerie") == 0
    assert "vendor's hand and ours agree on " in capsys.readouterr().out


@pytest.mark.parametrize("name", VENDORS)
def test_the_vendors_hand_has_our_names_and_frame(name: str, menagerie: Path):
    """The same joints in the same places; the vendor's shapes and masses; nothing that drives it."""
    hand = ff.load_hand(name)
    model = vendor_spec(hand).compile()
    assert {model.joint(j).name for j in range(model.njnt)} == set(hand.joints)
    assert model.nu == model.ntendon == model.nkey == 0
    assert np.all(model.geom_contype | model.geom_conaffinity), "nothing that only looks"
    ours, theirs = mujoco.MjData(hand.model.compiled), mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for q in rng.uniform(hand.model.lower, hand.model.upper, (20, len(hand.joints))):
        for m, d in ((hand.model.compiled, ours), (model, theirs)):
            for joint, value in zip(hand.joints, q, strict=True):
                d.joint(joint).qpos[0] = value
            mujoco.mj_kinematics(m, d)
        for joint in hand.joints:
            np.testing.assert_allclose(ours.joint(joint).xaxis, theirs.joint(joint).xaxis, atol=1e-4)
            np.testing.assert_allclose(ours.joint(joint).xanchor, theirs.joint(joint).xanchor, atol=1e-5)
    moving = [b for b in range(model.nbody) if model.body_weldid[b]]
    own = hand.model.compiled
    assert model.body_mass[moving].sum() == pytest.approx(own.body_mass[own.body_weldid > 0].sum(), rel=0.05)


def test_a_vendors_hand_that_is_not_there(hand: ff.Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MENAGERIE_ROOT", raising=False)
    with pytest.raises(ff.PhysicsError, match=r"MENAGERIE_ROOT is not set.*mujoco_menagerie"):
        vendor_spec(hand)
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    with pytest.raises(ff.PhysicsError, match=r"no wonik_allegro/right_hand.xml in MENAGERIE_ROOT"):
        vendor_spec(hand)
    with pytest.raises(
        ff.PhysicsError, match=r"human has no vendor model.*allegro, allegro_left, shadow, leap"
    ):
        vendor_spec(ff.load_hand("human"))


def test_another_hand_under_the_same_name_is_refused(hand: ff.Hand, menagerie: Path, tmp_path: Path):
    left: Hand = replace(ff.load_hand("allegro_left"), name="allegro")
    with pytest.raises(ff.PhysicsError, match="from those of allegro"):
        vendor_spec(left)
    file = tmp_path / VENDORS["allegro"].file
    file.parent.mkdir()
    for text in ("<mujoco/>", "no xml", "<mujoco><worldbody><body name='palm'/></worldbody></mujoco>"):
        file.write_text(text)
        with pytest.raises(ff.PhysicsError, match=r"right_hand.xml"):
            vendor_spec(hand, tmp_path)
