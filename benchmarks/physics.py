"""What the validation of grasps in physics costs, what comes out, and how far verdicts can be trusted.

python benchmarks/physics.py validate --objects FOLDER|NAME ... [--sequences 10] [--json OUT]
python benchmarks/physics.py throughput --objects FOLDER|NAME ... [--json OUT]
python benchmarks/physics.py agreement --objects FOLDER|NAME ... [--sequences 10] [--json OUT]

validate: random sequences are planned, each stage continuing what held; then every stage is tried again on
one thread, for its CPU time per generated grasp, and on one and two threads by turns, for the ratio of their
wall times (the best of --repeats each, so that other work on the machine counts less). Compiling the scene is
included, cutting objects into convex parts is not: that is done once an object, and cached.
throughput: one stage of each object, planned and validated on --threads: grasps that hold per CPU second,
everything included but loading the object, its convex parts (listed apart), and compiling kernels.
agreement: the grasps of random sequences as they were generated, tried again under a protocol or with shapes
that should not matter, or do: on how many is the verdict the same?

Objects are scaled as in the paper (longest side into 6-10 cm) unless --true-scale is given.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fistful.errors import PlanError
from fistful.hands import Hand, load_hand
from fistful.objects import Object, load_object
from fistful.objects.parts import PartsKind
from fistful.physics.protocol import Protocol, find_protocol
from fistful.physics.trial import Attempts
from fistful.planning.evaluation import draw_sequences
from fistful.planning.plan import Plan, plan
from fistful.planning.validation import Agreement, Tester, attempts_of
from fistful.synthesis.sequence import Planner
from fistful.synthesis.settings import Settings
from synthesis import prepared

BARS = {
    "ms_per_grasp_1": 60.0,
    "ms_per_grasp_4": 250.0,
    "two_threads_speedup": 1.6,
    "validated_per_cpu_s": 5.0,
}


def warm(hand: Hand, rules: Protocol) -> None:
    """Compile kernels, load what is loaded once."""
    plan(hand, [load_object("ball", rescale=True)], count=8, protocol=rules, threads=1)


def planned(options: argparse.Namespace, hand: Hand, rules: Protocol) -> list[Plan]:
    """Plans of random sequences, validated stage by stage, as far as they go."""
    items, plans = prepared(options), []
    length = min(options.length, len(items))
    for places in draw_sequences(len(items), options.sequences, length, options.seed):
        chosen = [items[i] for i in places]
        try:
            made = plan(
                hand, chosen, count=options.count, seed=options.seed, protocol=rules, threads=options.threads
            )
        except PlanError as stop:
            print(stop)
            continue
        plans.append(made)
        if made.stopped:
            print(f"stopped: {made.stopped}", flush=True)
    if not plans:
        raise SystemExit("no sequence could be planned")
    return plans


def seconds(run: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds of a call."""
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    return time.process_time() - cpu, time.perf_counter() - wall


def names_of(objects: Sequence[Object]) -> str:
    return ", ".join(item.name[:20] for item in objects)


# validate: what a verdict costs.


def validate_study(options: argparse.Namespace) -> dict:
    """CPU time of a verdict by number of objects; two threads against one."""
    hand, rules = load_hand(options.hand), find_protocol(options.protocol)
    warm(hand, rules)
    testers = {n: Tester(hand, rules, threads=n) for n in (1, 2)}
    rows = []
    print(f"{'objects':>7} {'held %':>6} {'CPU ms per grasp':>16} {'2 threads':>9}  sequence")
    for made in planned(options, hand, rules):
        for n, stage in enumerate(made.stages, 1):
            things, attempts = made.objects[:n], attempts_of(stage)
            spent: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
            for tester in testers.values():
                tester.prepare(things)
            for _ in range(options.repeats):
                for threads, tester in testers.items():
                    spent[threads].append(seconds(partial(tester.test, things, attempts)))
            wall = {threads: min(each[1] for each in runs) for threads, runs in spent.items()}
            row = {
                "objects": n,
                "names": [item.name for item in things],
                "count": len(stage),
                "held": float(np.mean(made.held(n - 1))),
                "ms_per_grasp": 1e3 * min(each[0] for each in spent[1]) / len(stage),
                "speedup": wall[1] / wall[2],
            }
            rows.append(row)
            print(
                f"{n:7} {100 * row['held']:6.0f} {row['ms_per_grasp']:16.1f} {row['speedup']:9.2f}  "
                + names_of(things),
                flush=True,
            )
    by_number = []
    for n in sorted({row["objects"] for row in rows}):
        own = [row for row in rows if row["objects"] == n]
        cost, ratio = ([row[key] for row in own] for key in ("ms_per_grasp", "speedup"))
        by_number.append(
            {
                "objects": n,
                "sequences": len(own),
                "ms_per_grasp": float(np.median(cost)),
                "worst_ms_per_grasp": max(cost),
                "speedup": float(np.median(ratio)),
            }
        )
        print(
            "{objects} objects: median {ms_per_grasp:.1f} ms of CPU per grasp, worst sequence "
            "{worst_ms_per_grasp:.1f}; two threads {speedup:.2f} times as fast".format(**by_number[-1])
        )
    speedup = float(np.median([row["speedup"] for row in rows]))
    print(f"two threads against one, median of all: {speedup:.2f}")
    return {"count": options.count, "by_number": by_number, "speedup": speedup, "rows": rows}


# throughput: what a grasp that holds costs.


def throughput_study(options: argparse.Namespace) -> dict:
    """Grasps of one object that hold, per CPU second of planning and validating."""
    hand, rules = load_hand(options.hand), find_protocol(options.protocol)
    warm(hand, rules)
    planner = Planner.of(hand, Settings(count=options.count, seed=options.seed), threads=options.threads)
    rows = []
    print(
        f"{'object':40} {'held %':>6} {'plan CPU s':>10} {'test CPU s':>10} {'held/CPU s':>10} {'parts s':>7}"
    )
    for item in prepared(options):
        tester = Tester(hand, rules, threads=options.threads)
        parts_cpu, _ = seconds(partial(tester.prepare, [item]))
        start = time.process_time()
        try:
            stage = planner.stage([item])
        except PlanError as stop:
            print(stop)
            continue
        made = time.process_time()
        verdicts = tester.test([item], attempts_of(stage))
        end = time.process_time()
        held = int(verdicts.success.sum())
        row = {
            "object": item.name,
            "count": len(stage),
            "held": held,
            "plan_cpu_s": made - start,
            "test_cpu_s": end - made,
            "parts_cpu_s": parts_cpu,
            "held_per_cpu_s": held / (end - start),
        }
        rows.append(row)
        print(
            f"{item.name[:40]:40} {100 * held / len(stage):6.0f} {row['plan_cpu_s']:10.2f} "
            f"{row['test_cpu_s']:10.2f} {row['held_per_cpu_s']:10.1f} {parts_cpu:7.1f}",
            flush=True,
        )
    if not rows:
        raise SystemExit("no object could be planned")
    rates = [row["held_per_cpu_s"] for row in rows]
    share = float(np.mean([row["held"] / row["count"] for row in rows]))
    print(
        f"{len(rows)} objects: {np.median(rates):.1f} validated grasps per CPU s at the median, "
        f"{min(rates):.1f} at worst; {share:.0%} hold on average"
    )
    figures = {"median_rate": float(np.median(rates)), "worst_rate": min(rates), "mean_share": share}
    return figures | {"count": options.count, "rows": rows}


# agreement: do verdicts depend on what should not matter?


class Variant(NamedTuple):
    """Another way to try the same grasps."""

    name: str
    protocol: Protocol
    parts: PartsKind = "parts"
    squeeze: float = 1.0
    """How far targets are beyond the grasp, against what was planned."""


def variants(rules: Protocol) -> tuple[Variant, ...]:
    """The first is the yardstick."""
    return (
        Variant("as it is", rules),
        Variant("half the step", replace(rules, name="half-step", substeps=2 * rules.substeps)),
        Variant(
            "twice as stiff",
            replace(rules, name="stiff", stiffness=2 * rules.stiffness),
            squeeze=0.5,
        ),
        Variant("hulls", rules, parts="hull"),
        Variant("objects pass", replace(rules, name="ghosts", objects_collide=False)),
    )


def squeezed(attempts: Attempts, factor: float) -> Attempts:
    """The same grasps with targets that are `factor` times as far beyond the joints."""
    beyond = attempts.q + factor * (attempts.squeeze - attempts.q)
    # Joints that hold something already press before the grasp, too; the others only open.
    pre_grasp = np.where(attempts.moving, attempts.pre_grasp, beyond)
    return replace(attempts, squeeze=beyond, pre_grasp=pre_grasp)


def compared(first: np.ndarray, second: np.ndarray) -> Agreement:
    """Which grasps hold by both of two tries, by one, by neither; each (N,) bool."""
    cells = (first & second, first & ~second, ~first & second, ~first & ~second)
    return Agreement(*(int(cell.sum()) for cell in cells))


def agreement_study(options: argparse.Namespace) -> dict:
    """Verdicts on the same grasps under settings that should not matter, or do."""
    hand, rules = load_hand(options.hand), find_protocol(options.protocol)
    warm(hand, rules)
    plans, held = planned(options, hand, rules), {}
    ways = variants(rules)
    for way in ways:
        tester = Tester(hand, way.protocol, parts=way.parts, threads=options.threads)
        for k, made in enumerate(plans):
            for n, stage in enumerate(made.stages, 1):
                attempts = squeezed(attempts_of(stage), way.squeeze)
                held[way.name, n, k] = tester.test(made.objects[:n], attempts).success
    rows = []
    print(
        f"{'':16} {'objects':>7} {'grasps':>6} {'equal %':>7} {'both':>5} {'only as it is':>13} "
        f"{'only so':>7} {'neither':>7}"
    )
    numbers = sorted({n for _, n, _ in held})
    for way in ways[1:]:
        for chosen in (*([n] for n in numbers), numbers):
            keys = [(n, k) for name, n, k in held if name == way.name and n in chosen]
            same = compared(
                *(np.concatenate([held[name, *key] for key in keys]) for name in (ways[0].name, way.name))
            )
            row = {"variant": way.name, "objects": chosen, "grasps": same.grasps, "equal": same.equal}
            rows.append(row | same._asdict())
            what = str(chosen[0]) if len(chosen) == 1 else "all"
            print(
                f"{way.name:16} {what:>7} {same.grasps:6} {100 * same.equal:7.1f} {same.both:5} "
                f"{same.only_first:13} {same.only_second:7} {same.neither:7}",
                flush=True,
            )
    return {"count": options.count, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    studies = parser.add_subparsers(dest="study", required=True)
    for name, run in (
        ("validate", validate_study),
        ("throughput", throughput_study),
        ("agreement", agreement_study),
    ):
        sub = studies.add_parser(name, help=run.__doc__)
        sub.set_defaults(run=run)
        sub.add_argument("--objects", nargs="+", required=True, help="folders of meshes, files, or names")
        sub.add_argument("--hand", default="allegro", help="default allegro")
        sub.add_argument("--protocol", default="paper", help="default paper")
        sub.add_argument("--true-scale", action="store_true", help="do not scale objects")
        sub.add_argument("--threads", type=int, default=1, help="default 1: figures are per core")
        sub.add_argument("--count", type=int, default=256, help="grasps a stage, default 256")
        sub.add_argument("--sequences", type=int, default=10, help="default 10; not of throughput")
        sub.add_argument("--length", type=int, default=4, help="objects a sequence, default 4")
        sub.add_argument("--repeats", type=int, default=3, help="of each timing by validate, default 3")
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--json", type=Path, help="where to write the results")

    options = parser.parse_args()
    result = options.run(options)
    if options.json:
        machine = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        record = {"study": options.study, "protocol": options.protocol, "bars": BARS, "machine": machine}
        options.json.write_text(json.dumps(record | result, indent=1) + "\n")


if __name__ == "__main__":
    main()
