"""Which grasps hold in physics? Collect verdicts, fit planning/prediction.py, and say what it is worth.

python benchmarks/prediction.py collect --objects FOLDER|NAME ... --out FOLDER [--hand allegro] [--count 24]
python benchmarks/prediction.py fit FOLDER [--json OUT]
python benchmarks/prediction.py check FOLDER
python benchmarks/prediction.py order --objects FOLDER|NAME ... [--sequences 4] [--protocol paper] [--seed 0]

collect: plans sequences of the objects, each of which comes first and second once, some also third; every
stage is tried under the protocols paper and strict. One file a sequence; goes on where it was stopped. 30
objects with 24 grasps a stage take 9 CPU minutes.
fit: the numbers for planning/prediction.py; then what they are worth on objects that were left out. For each
of six sixths of the objects, weights are fitted to grasps that have to do with none of them, and judged on
grasps of them. AUC: chance that of a grasp that holds and one that does not, the first is ranked higher;
`within`: of the same stage. Top tenth and best: share that holds of the best ranked of each stage.
check: the numbers in planning/prediction.py on verdicts they were not fitted to, say of another hand.
order: random sequences, validated, in the order given, in that which geometry alone would choose, and in that
which the search chooses; chained success in physics.

Only grasps count that continue one which held under the same protocol. Objects are scaled as in the paper.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata

from fistful.errors import FistfulError
from fistful.hands import load_hand
from fistful.objects import load_object, object_names
from fistful.planning import order as order_search
from fistful.planning.evaluation import draw_sequences
from fistful.planning.plan import plan, validate
from fistful.planning.prediction import FEATURES, FITTED, Prediction, features, fit
from fistful.planning.run_folder import load_plan, save_validation
from fistful.planning.validation import held_throughout, stage_rates

PROTOCOLS = ("paper", "strict")
STEPS = (0, 7, 12)
"""Sequence i holds objects i, i + 7 and i + 12 of a random circle."""
LONG = 3
"""Every third sequence has a third stage, which costs as much as the other two."""
FOLDS = 6


def collect(names: Sequence[str], out: Path, hand_name: str, count: int, seed: int) -> None:
    out.mkdir(parents=True, exist_ok=True)
    hand, start = load_hand(hand_name), time.process_time()
    circle = np.random.default_rng([4, seed]).permutation(len(names))
    for i in range(len(names)):
        path = out / f"{hand_name}_{seed}_{i:03d}"
        if (path / "validation_strict.json").exists():
            continue
        used = [names[int(circle[(i + k) % len(names)])] for k in STEPS[: 2 if i % LONG else 3]]
        objects = [load_object(name, rescale=True) for name in used]
        try:
            done = plan(hand, objects, count=count, seed=seed + i, threads=1, out=path)
        except FistfulError as error:
            print(f"{path.name}: {', '.join(used)}: {error}", flush=True)
            continue
        strict = validate(done, "strict", threads=1)
        save_validation(path, strict)
        assert done.validation is not None and strict.validation is not None
        both = zip(used, done.validation.verdicts, strict.validation.verdicts, strict=False)
        rates = ", ".join(f"{Path(o).stem} {p.success.mean():.0%}/{s.success.mean():.0%}" for o, p, s in both)
        print(f"{path.name} {time.process_time() - start:.0f} s: {rates}", flush=True)


@dataclass
class Rows:
    """All grasps that were collected; stage counts the stages of all sequences, objects are those held."""

    X: np.ndarray
    quality: np.ndarray
    stage: np.ndarray
    target: np.ndarray
    objects: list[list[str]]
    held: dict[str, np.ndarray]
    tried: dict[str, np.ndarray]


def read(folder: Path) -> Rows:
    X, quality, stage, target, objects = [], [], [], [], []
    held: dict[str, list] = {name: [] for name in PROTOCOLS}
    tried: dict[str, list] = {name: [] for name in PROTOCOLS}
    for path in sorted(p.parent for p in folder.glob("*/validation_strict.json")):
        plans = {"paper": load_plan(path), "strict": load_plan(path, "strict")}
        done = plans["paper"]
        names = [item.name for item in done.objects]
        standing = {p: held_throughout(e.stages, e.validation) for p, e in plans.items() if e.validation}
        for n, s in enumerate(done.stages):
            X.append(features(done.hand, done.objects[: n + 1], s))
            quality.append(s.grasps.quality)
            stage.append(np.full(len(s), len(objects)))
            target.append(np.full(len(s), names[n]))
            objects.append(names[: n + 1])
            for p in PROTOCOLS:
                held[p].append(plans[p].validation.verdicts[n].success)
                before = standing[p][n - 1][s.grasps.parent] if n else np.ones(len(s), bool)
                tried[p].append(before)
    join = np.concatenate
    return Rows(
        join(X),
        join(quality),
        join(stage),
        join(target),
        objects,
        {p: join(held[p]) for p in PROTOCOLS},
        {p: join(tried[p]) for p in PROTOCOLS},
    )


def fitted(rows: Rows, use: np.ndarray, protocols: Sequence[str] = PROTOCOLS) -> Prediction:
    """Fit to some rows (N,) bool, of all protocols together."""
    picks = [use & rows.tried[p] for p in protocols]
    X, y = (
        np.concatenate([v[k] for v, k in zip(vs, picks, strict=True)])
        for vs in ([rows.X] * len(picks), [rows.held[p] for p in protocols])
    )
    groups = np.repeat(np.arange(len(picks)), [k.sum() for k in picks])
    weights, offsets = fit(X, y, groups)
    return Prediction(
        weights=tuple(map(float, weights)), offset=dict(zip(protocols, map(float, offsets), strict=True))
    )


def left_out(rows: Rows, own: bool = False) -> dict[str, np.ndarray]:
    """Chances of all grasps by fits to grasps that have nothing to do with their object.

    With `own`, weights are fitted to the verdicts of each protocol alone.
    """
    names = sorted(set(rows.target))
    fold = dict(zip(np.random.default_rng(0).permutation(names), np.arange(len(names)) % FOLDS, strict=True))
    chances = {p: np.zeros(len(rows.X)) for p in PROTOCOLS}
    of_target = np.array([fold[o] for o in rows.target])
    for k in range(FOLDS):
        apart = np.array([all(fold.get(o) != k for o in held) for held in rows.objects])[rows.stage]
        test = of_target == k
        for p in PROTOCOLS:
            model = fitted(rows, apart, (p,) if own else PROTOCOLS)
            chances[p][test] = model.chance(rows.X[test], p)
    return chances


def auc(score: np.ndarray, y: np.ndarray) -> float:
    rank, won = rankdata(score), y.sum()
    return float((rank[y].sum() - won * (won + 1) / 2) / max(won * (len(y) - won), 1))


def judged(rows: Rows, score: np.ndarray, protocol: str, *, chance: bool) -> dict[str, float]:
    """What a score is worth under a protocol."""
    use, y = rows.tried[protocol], rows.held[protocol]
    pairs = right = 0.0
    top, best = [], []
    for n in np.unique(rows.stage[use]):
        mine = np.flatnonzero(use & (rows.stage == n))
        won = y[mine]
        weight = won.sum() * (~won).sum()
        pairs, right = pairs + weight, right + weight * (auc(score[mine], won) if weight else 0)
        ranked = mine[np.argsort(-score[mine], kind="stable")]
        top.append(y[ranked[: max(1, round(len(mine) / 10))]].mean())
        best.append(y[ranked[0]])
    record = {
        "auc": auc(score[use], y[use]),
        "within": right / pairs,
        "top_tenth": float(np.mean(top)),
        "best": float(np.mean(best)),
    }
    return record | ({"brier": float(np.mean((score[use] - y[use]) ** 2))} if chance else {})


def report(rows: Rows, chances: dict[str, np.ndarray], label: str) -> dict:
    print(f"{len(rows.X)} grasps, {len(rows.objects)} stages, {len(set(rows.target))} objects")
    result: dict = {}
    for p in PROTOCOLS:
        use, y = rows.tried[p], rows.held[p]
        stages = [y[use & (rows.stage == n)].mean() for n in np.unique(rows.stage[use])]
        rate = float(y[use].mean())
        base = {"auc": 0.5, "within": 0.5, "top_tenth": np.mean(stages), "best": np.mean(stages)}
        result[p] = {
            "tried": int(use.sum()),
            "random": base | {"brier": rate * (1 - rate)},
            "quality": judged(rows, rows.quality, p, chance=False),
            label: judged(rows, chances[p], p, chance=True),
        }
        print(f"\n{p}: {use.sum()} tried, {rate:.1%} held")
        print(f"{'ranked by':12}{'AUC':>8}{'within':>8}{'top 10 %':>10}{'best':>8}{'Brier':>8}")
        for name, v in list(result[p].items())[1:]:
            brier = f"{v['brier']:8.4f}" if "brier" in v else ""
            print(f"{name:12}{v['auc']:8.3f}{v['within']:8.3f}{v['top_tenth']:10.1%}{v['best']:8.1%}{brier}")
        edges = np.quantile(chances[p][use], np.linspace(0, 1, 6))
        part = np.clip(np.searchsorted(edges, chances[p][use], side="right") - 1, 0, 4)
        told = (f"{chances[p][use][part == k].mean():.2f}/{y[use][part == k].mean():.2f}" for k in range(5))
        print(f"predicted/observed by fifths: {', '.join(told)}")
    # Plan.best: of what holds under paper, which would stand more?
    harder: dict[str, list] = {"random": [], "quality": [], label: []}
    for n in np.unique(rows.stage):
        mine = np.flatnonzero((rows.stage == n) & rows.tried["strict"] & rows.held["paper"])
        if len(mine):
            y = rows.held["strict"][mine]
            harder["random"].append(y.mean())
            harder["quality"].append(y[np.argmax(rows.quality[mine])])
            harder[label].append(y[np.argmax(chances["paper"][mine])])
    result["best_of_held"] = {name: float(np.mean(v)) for name, v in harder.items()}
    print("\nbest of those that hold under paper, under strict:", end=" ")
    print(", ".join(f"{name} {v:.1%}" for name, v in result["best_of_held"].items()))
    return result


def univariate(rows: Rows) -> None:
    print(f"{'feature':14}" + "".join(f"{p + ' AUC':>12}" for p in PROTOCOLS) + "   strict held by fifths")
    for k, name in enumerate(FEATURES):
        line = f"{name:14}"
        for p in PROTOCOLS:
            line += f"{auc(rows.X[rows.tried[p], k], rows.held[p][rows.tried[p]]):12.3f}"
        order = np.argsort(rows.X[rows.tried["strict"], k], kind="stable")
        fifths = np.array_split(rows.held["strict"][rows.tried["strict"]][order], 5)
        print(line + "   " + " ".join(f"{v.mean():.2f}" for v in fifths))
    print()


def run_fit(folder: Path) -> dict:
    rows = read(folder)
    univariate(rows)
    model = fitted(rows, np.ones(len(rows.X), bool))
    print("weights:", {k: round(v, 2) for k, v in zip(FEATURES, model.weights, strict=True)})
    print("offset:", {k: round(v, 2) for k, v in model.offset.items()}, "\n")
    result = report(rows, left_out(rows), "chance")
    alone = left_out(rows, own=True)
    for p in PROTOCOLS:
        own = judged(rows, alone[p], p, chance=True)
        print(f"{p}, weights of its own: AUC {own['auc']:.3f}, Brier {own['brier']:.4f}")
        result[p]["own"] = own
    return result | {"weights": model.weights, "offset": dict(model.offset)}


def run_order(
    names: Sequence[str], hand_name: str, sequences: int, protocol: str, seed: int, count: int
) -> dict:
    """Chained success in physics of the order given and of the searched ones."""
    hand = load_hand(hand_name)
    table: dict[str, list[float]] = {"given": [], "geometry": [], "chance": []}
    for i, places in enumerate(draw_sequences(len(names), sequences, 3, seed)):
        objects = [load_object(names[k], rescale=True) for k in places]
        seen: dict[tuple, float] = {}
        for kind in table:
            told: Callable = order_search.chance_to_hold
            if kind == "geometry":
                order_search.chance_to_hold = lambda hand, objects, stage, protocol: np.ones(len(stage))
            try:
                done = plan(
                    hand,
                    objects,
                    order="given" if kind == "given" else "auto",
                    protocol=protocol,
                    count=count,
                    seed=seed + i,
                    threads=1,
                )
            finally:
                order_search.chance_to_hold = told
            assert done.validation is not None
            rates = stage_rates(done.stages, done.validation)
            value = rates[-1].chained if len(rates) == len(objects) else 0.0
            seen[(kind, done.order)] = value
            table[kind].append(value)
        print(
            ", ".join(o.name for o in objects),
            {f"{k} {o}": round(v, 3) for (k, o), v in seen.items()},
            flush=True,
        )
    means = {kind: float(np.mean(values)) for kind, values in table.items()}
    print("chained success:", {k: round(v, 3) for k, v in means.items()})
    return {"means": means, "each": table}


def named(entries: Sequence[str]) -> list[str]:
    names: list[str] = []
    for entry in entries:
        path = Path(entry)
        names += sorted(map(str, path.glob("*.obj"))) if path.is_dir() else [entry]
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("collect", "fit", "check", "order"))
    parser.add_argument("folder", type=Path, nargs="?", help="verdicts")
    parser.add_argument("--objects", nargs="+", default=list(object_names()))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--hand", default="allegro")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--protocol", default="paper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file to write the report to")
    a = parser.parse_args()
    folder = a.folder or a.out
    if a.command != "order" and folder is None:
        parser.error("name the folder of the verdicts")
    record = None
    if a.command == "collect":
        collect(named(a.objects), folder, a.hand, a.count, a.seed)
    elif a.command == "fit":
        record = run_fit(folder)
    elif a.command == "check":
        rows = read(folder)
        record = report(rows, {p: FITTED.chance(rows.X, p) for p in PROTOCOLS}, "chance")
    else:
        record = run_order(named(a.objects), a.hand, a.sequences, a.protocol, a.seed, a.count)
    if a.json and record is not None:
        a.json.write_text(json.dumps(record, indent=2, default=float))


if __name__ == "__main__":
    main()
