"""How well predicted robustness fits physical trials: the paper's metrics, and plainer ones.

The paper's F1 is the harmonic mean of an average precision and an average recall over thresholds. It is
generous: threshold 0 counts every grasp as predicted to succeed, so AR is never below 1/11, and "always
success" gets AR 1 and an AP of the share of successes. Mean absolute error and balanced accuracy do not
flatter it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fistful.errors import JawsError

THRESHOLDS = np.arange(11) / 10
"""0, 0.1, .. 1: the thresholds of the average recall."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What a model's predictions are worth."""

    ap: float
    """Average precision over trials."""
    ar: float
    """Mean recall over `THRESHOLDS`, over trials."""
    f1: float
    """2 AP AR / (AP + AR); 0 if both are."""
    mae: float
    """Mean over grasps of |predicted - physical robustness|."""
    balanced_accuracy: float
    """Mean of the share of robust grasps (physical robustness >= 0.5) that are predicted so, and of the
    others; NaN if all grasps are of one kind."""


def scores(predicted: Sequence[float] | np.ndarray, results: Sequence[Sequence[bool]]) -> Scores:
    """Scores of predicted robustness (0 .. 1, one for each grasp) against the results of its trials.

    AP, AR and F1 count every trial, with its grasp's prediction; MAE and balanced accuracy count grasps.
    """
    guess = np.asarray(predicted, dtype=float)
    if len(guess) != len(results) or len(guess) == 0:
        raise JawsError(f"{len(guess)} predictions for {len(results)} grasps; one for each is needed")
    if not np.all((guess >= 0) & (guess <= 1)):
        raise JawsError(f"a predicted robustness must be in 0 .. 1; got {guess.min()} .. {guess.max()}")
    if not all(len(trials) for trials in results):
        raise JawsError("a grasp without physical trials can not be scored; leave it out")
    truth = np.concatenate([np.asarray(trials, dtype=bool) for trials in results])
    each = np.repeat(guess, [len(trials) for trials in results])
    physical = np.array([np.mean(trials) for trials in results])
    ap, ar = average_precision(truth, each), average_recall(truth, each)
    return Scores(
        ap=ap,
        ar=ar,
        f1=2 * ap * ar / (ap + ar) if ap + ar > 0 else 0.0,
        mae=float(np.mean(np.abs(guess - physical))),
        balanced_accuracy=balanced_accuracy(physical >= 0.5, guess >= 0.5),
    )


def always_success(results: Sequence[Sequence[bool]]) -> Scores:
    """The scores of predicting that every grasp always succeeds."""
    return scores(np.ones(len(results)), results)


def average_precision(truth: np.ndarray, predicted: np.ndarray) -> float:
    """sum_k (R_k - R_(k-1)) P_k over the distinct predictions as thresholds, highest first; not interpolated.

    As in scikit-learn's `average_precision_score`. NaN without a success.

    Args:
      truth: (N,) bool.
      predicted: (N,) float.
    """
    truth, predicted = np.asarray(truth, bool), np.asarray(predicted, float)
    if not truth.any():
        return float("nan")
    order = np.argsort(-predicted, kind="stable")
    hits = np.cumsum(truth[order])
    # Ties are one threshold: only the last of each group counts.
    last = np.append(np.diff(predicted[order]) != 0, True)
    precision = hits[last] / (np.flatnonzero(last) + 1)
    recall = hits[last] / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def average_recall(truth: np.ndarray, predicted: np.ndarray) -> float:
    """The mean over `THRESHOLDS` t of the share of successes predicted >= t. NaN without a success."""
    truth, predicted = np.asarray(truth, bool), np.asarray(predicted, float)
    if not truth.any():
        return float("nan")
    # 0.3 made of three tenths is a little less than the threshold 0.3.
    return float(np.mean(predicted[truth][:, None] >= THRESHOLDS - 1e-9))


def balanced_accuracy(truth: np.ndarray, predicted: np.ndarray) -> float:
    """The mean share of true and of false cases (N,) that is right; NaN if there are none of a kind."""
    truth, predicted = np.asarray(truth, bool), np.asarray(predicted, bool)
    if truth.all() or not truth.any():
        return float("nan")
    return float((np.mean(predicted[truth]) + np.mean(~predicted[~truth])) / 2)
