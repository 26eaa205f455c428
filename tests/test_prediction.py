"""Which grasps will hold: the fit, what the features mean, and that predictions are mostly right."""

from dataclasses import replace

import numpy as np
import pytest

import fistful as ff
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.planning.plan import Plan, plan, validate
from fistful.planning.prediction import (
    FEATURES,
    FITTED,
    PATCH,
    Prediction,
    _edge,
    chance_to_hold,
    features,
    fit,
)
from fistful.synthesis.stage import Stage

NAMES = ("pear", "cube", "wrench", "spray_bottle")
COUNT = 18


@pytest.fixture(scope="module")
def hand() -> Hand:
    return ff.load_hand("allegro")


@pytest.fixture(scope="module")
def plans(hand: Hand) -> list[Plan]:
    """First stages, as planned, of objects that the weights were not fitted to."""
    objects = [ff.load_object(name, rescale=True) for name in NAMES]
    return [plan(hand, [item], count=COUNT, validate=False, seed=5) for item in objects]


def changed(stage: Stage, **measures: np.ndarray) -> Stage:
    return replace(stage, measures=replace(stage.measures, **measures))


def column(plans: list[Plan], name: str) -> np.ndarray:
    X = [features(p.hand, p.objects, p.stages[0]) for p in plans]
    return np.concatenate(X)[:, FEATURES.index(name)]


def test_the_fit_finds_known_weights():
    rng = np.random.default_rng(0)
    X, groups = rng.uniform(0, 2, (40_000, 3)) * [1, 0.1, 5], rng.integers(2, size=40_000)
    weights, offsets = np.array([-2.0, 8.0, 0.0]), np.array([2.0, -0.5])
    y = rng.uniform(size=len(X)) < 1 / (1 + np.exp(-(X @ weights + offsets[groups])))
    found, levels = fit(X, y, groups, ridge=0.0)
    np.testing.assert_allclose(found, weights, rtol=0.05, atol=0.03)
    np.testing.assert_allclose(levels, offsets, atol=0.1)
    p = 1 / (1 + np.exp(-(X @ found + levels[groups])))
    np.testing.assert_allclose(X.T @ (y - p), 0, atol=1e-6, err_msg="the gradient is 0 at the optimum")
    for group in (0, 1):
        np.testing.assert_allclose(p[groups == group].mean(), y[groups == group].mean(), rtol=1e-6)


def test_the_fit_of_what_can_be_separated_is_finite():
    X, groups = np.arange(10.0)[:, None], np.zeros(10, int)
    weights, offsets = fit(X, X[:, 0] > 4.5, groups)
    assert np.isfinite(weights).all() and np.isfinite(offsets).all() and weights[0] > 0
    harder = fit(X, X[:, 0] > 4.5, groups, ridge=10.0)[0]
    assert 0 < harder[0] < weights[0], "a stronger ridge, smaller weights"
    level = fit(np.zeros((10, 1)), X[:, 0] > 6.5, groups)
    np.testing.assert_allclose(level[1], np.log(0.3 / 0.7), atol=1e-5)


def test_chances_by_hand():
    model = Prediction(weights=(1.0, -2.0), offset={"paper": 0.5, "strict": -1.0})
    X = np.array([[0.0, 0.0], [1.0, 0.25]])
    np.testing.assert_allclose(model.chance(X, "paper"), 1 / (1 + np.exp([-0.5, -1.0])))
    np.testing.assert_allclose(model.chance(X, "strict"), 1 / (1 + np.exp([1.0, 0.5])))
    np.testing.assert_array_equal(model.chance(X, "mine"), model.chance(X, "paper"))
    assert len(FITTED.weights) == len(FEATURES) <= 8


def test_shapes_and_ranges(plans: list[Plan]):
    for p in plans:
        X = features(p.hand, p.objects, p.stages[0])
        assert X.shape == (COUNT, len(FEATURES)) and np.all((X >= 0) & (X <= 2))
        mild, harsh = (chance_to_hold(p.hand, p.objects, p.stages[0], name) for name in ("paper", "strict"))
        assert mild.shape == (COUNT,) and harsh.min() > 0 and np.all(harsh < mild) and mild.max() < 1
        assert np.array_equal(np.argsort(mild), np.argsort(harsh)), "protocols rank alike"


def test_same_grasps_same_features_alone_or_together(plans: list[Plan]):
    for p in plans:
        stage = p.stages[0]
        X = features(p.hand, p.objects, stage)
        assert np.array_equal(features(p.hand, p.objects, replace(stage)), X)
        some = np.arange(1, COUNT, 3)
        few = replace(stage, grasps=stage.grasps.take(some), measures=stage.measures.take(some))
        np.testing.assert_allclose(features(p.hand, p.objects, few), X[some], atol=1e-12)
        none = replace(stage, grasps=stage.grasps.take(some[:0]), measures=stage.measures.take(some[:0]))
        assert chance_to_hold(p.hand, p.objects, none).shape == (0,)


def test_worse_geometry_less_chance(plans: list[Plan]):
    p = plans[0]
    stage, g, m = p.stages[0], p.stages[0].grasps, p.stages[0].measures
    before = chance_to_hold(p.hand, p.objects, stage)
    apart = changed(stage, contact_distance_mm=m.contact_distance_mm + 0.5)
    assert np.all(chance_to_hold(p.hand, p.objects, apart) < before)
    crossed = changed(stage, self_penetration_mm=m.self_penetration_mm + 0.5)
    assert np.all(chance_to_hold(p.hand, p.objects, crossed) < before)
    # The normal at one contact turned away, by 30 and by 60 degrees: it neither opposes nor meets the skin.
    normal = np.zeros((2, *g.contact_n_O.shape))
    for k, angle in enumerate(np.deg2rad([30, 60])):
        n = g.contact_n_O.copy()
        side = np.cross(n[:, 0], np.eye(3)[np.argmin(np.abs(n[:, 0]), axis=1)])
        side /= np.linalg.norm(side, axis=1, keepdims=True)
        n[:, 0] = np.cos(angle) * n[:, 0] + np.sin(angle) * side
        normal[k] = n
    turned = [replace(stage, grasps=replace(g, contact_n_O=n)) for n in normal]
    once, twice = (chance_to_hold(p.hand, p.objects, s).mean() for s in turned)
    assert twice < once < before.mean()
    assert np.all(np.diff(FITTED.chance(np.linspace(0, 2, 9)[:, None] * np.eye(7)[0], "strict")) < 0)


def test_not_finite_counts_as_bad(plans: list[Plan]):
    p = plans[0]
    stage = p.stages[0]
    unknown = np.full(COUNT, np.nan)
    broken = changed(stage, self_penetration_mm=unknown, contact_distance_mm=unknown[:, None])
    chance = chance_to_hold(p.hand, p.objects, broken)
    assert np.all(np.isfinite(chance)) and np.all(chance < chance_to_hold(p.hand, p.objects, stage))


def test_features_of_shapes_that_are_known(plans: list[Plan]):
    """Tangent planes leave a ball as a circle's do; a cube is flat but for its edges; normals add up."""
    ball = ff.load_object("ball", rescale=True)
    radius = float(ball.report.extents_m[0]) / 2
    n_O = np.random.default_rng(0).normal(size=(20, 2, 3))
    n_O /= np.linalg.norm(n_O, axis=-1, keepdims=True)
    x_O = ball.mass_properties.com_O + (radius + 1e-3) * n_O
    np.testing.assert_allclose(
        _edge(ball.sdf, x_O, n_O), (np.hypot(radius, PATCH) - radius) / PATCH, atol=0.02
    )
    assert column(plans[1:2], "edge").min() < 1e-3
    n = plans[0].stages[0].grasps.contact_n_O
    np.testing.assert_allclose(column(plans[:1], "imbalance"), np.linalg.norm(n[:, 0] + n[:, 1], axis=1))
    for name in ("tilt", "support", "swing"):
        assert 0 < np.median(column(plans, name)) < 1


def test_the_squeeze_counters_the_swing(plans: list[Plan]):
    p = plans[-1]
    stage, g = p.stages[0], p.stages[0].grasps
    weak = replace(stage, grasps=replace(g, squeeze=g.q + 0.25 * (g.squeeze - g.q)))
    k = FEATURES.index("swing")
    assert np.all(features(p.hand, p.objects, weak)[:, k] >= features(p.hand, p.objects, stage)[:, k])
    assert features(p.hand, p.objects, weak)[:, k].mean() > features(p.hand, p.objects, stage)[:, k].mean()


def test_the_best_is_the_most_likely_of_those_that_hold(plans: list[Plan]):
    p = plans[0]
    chance, good = chance_to_hold(p.hand, p.objects, p.stages[0]), p.stages[0].good
    assert chance[p.best()] == chance[good].max()
    ranked = p.ranked()
    assert sorted(ranked) == list(range(COUNT))
    assert np.all(np.diff(chance[ranked[: good.sum()]]) <= 0)


def test_predictions_are_right_more_often_than_not(plans: list[Plan], figure):
    """Of a grasp that holds and one that does not, the first ranks higher; objects are not those fitted."""
    chance, held = [], []
    for p in plans:
        tried = validate(p, "strict").validation
        assert tried is not None
        chance.append(chance_to_hold(p.hand, p.objects, p.stages[0], "strict"))
        held.append(tried.verdicts[0].success)
    score, y = np.concatenate(chance), np.concatenate(held)
    area = np.mean(score[y][:, None] > score[~y][None])
    quality = np.concatenate([p.stages[0].grasps.quality for p in plans])
    figure("prediction: AUC on four new objects, strict", float(area))
    figure("prediction: the same by quality", float(np.mean(quality[y][:, None] > quality[~y][None])))
    figure("prediction: mean chance", float(score.mean()))
    figure("prediction: share that held", float(y.mean()))
    assert area > 0.65
    assert abs(score.mean() - y.mean()) < 0.2


def test_objects_of_the_plan_are_used(hand: Hand, plans: list[Plan]):
    """What is asked about is the last object of a stage."""
    p = plans[0]
    others: list[Object] = [plans[1].objects[0], p.objects[0]]
    alone, beside = (features(hand, objects, replace(p.stages[0])) for objects in (p.objects, others))
    assert np.array_equal(alone, beside)
