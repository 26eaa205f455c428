"""What the synthesis of grasps costs, and what comes out.

python benchmarks/synthesis.py core [--hands NAME ...] [--json OUT]
python benchmarks/synthesis.py paper [--objects FOLDER|NAME ...] [--json OUT]
python benchmarks/synthesis.py fast --objects FOLDER|NAME ... [--json OUT]
python benchmarks/synthesis.py sequences --objects FOLDER|NAME ... [--sequences 10] [--json OUT]
python benchmarks/synthesis.py order --objects FOLDER|NAME ... [--length 3] [--json OUT]
python benchmarks/synthesis.py scaling [--json OUT]

core: CPU time of one evaluation of energy and gradient, per grasp: the compiled core against torch autograd
(`synthesis/reference.py`, float32, one thread) in the same run, on the same states with the same points.
Torch evaluates every point, the core skips what is far. Terms: the paper's; these without self penetration,
where skipping pays most; and ours as well. Torch takes the batch in blocks of the size that suits it best.
Compilation and warm-up come before the clock.

paper: 256 grasps x 6000 steps of the paper's optimiser on one thread and on two, CPU and wall, with 1500
points on the hand (--skin-points; a plan has 3000).
fast: one stage of the default method on each object: share of good grasps (measure.Tolerance, exact meshes)
and good grasps per CPU second, everything included: starts, refinement, exact measures, joint targets.
sequences: random sequences of four objects; every stage continues the good grasps of the one before, so its
`good` is conditional; `chained` is the product so far.
order: the same sequences as given and in the order that `--order auto` finds; what the search costs.
scaling: cost against count and against held objects, and the peak memory of the process so far.

Objects are scaled as in the paper (longest side into 6-10 cm) unless --true-scale is given.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from fistful.errors import PlanError
from fistful.hands import Hand, hand_names, load_hand
from fistful.objects import Object, load_object
from fistful.planning.plan import plan as plan_sequence
from fistful.synthesis.compiling import compile_kernels
from fistful.synthesis.contact_set import contact_sets
from fistful.synthesis.core import Batch, Core
from fistful.synthesis.sequence import Planner
from fistful.synthesis.settings import Settings
from fistful.synthesis.stage import Stage, packed
from fistful.synthesis.tables import HandTables, ObjectTables
from fistful.synthesis.weights import PAPER, Weights

BARS = {
    "core_ratio": 50.0,
    "paper_cpu_s": 15.0,
    "paper_speedup": 1.6,
    "good_share": 0.6,
    "good_per_cpu_s": 100.0,
    "median_penetration_mm": 2.0,
    "memory_mb": 1000.0,
}
ALL_TERMS = Weights(hho=5.0, ohp=5.0, friction=1.0)
TERMS = {"paper": PAPER, "paper but hsp": PAPER, "all": ALL_TERMS}
MESHES = {".obj", ".stl", ".ply", ".off", ".glb"}
STATE = ("x", "mask", "contact", "p_HO", "R_HO")


def cpu_seconds(run: Callable[[], object], repeats: int, times: int = 1) -> float:
    """Median over repeats of the CPU seconds of one call, each repeat being a number of calls."""
    run()
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        for _ in range(times):
            run()
        spent.append((time.process_time() - start) / times)
    return float(np.median(spent))


# core: the compiled core against torch.


def scattered(
    hand: Hand, tables: HandTables, things: list[Object], batch: Batch, rng: np.random.Generator
) -> None:
    """Random grasps: the middle of the contact surfaces 2-8 cm above the target, any direction, open fingers.

    Held objects, if any, lie in the open hand.
    """
    N, target = batch.count, things[-1]
    model = hand.model
    q = np.clip(
        model.open_pose + 0.1 * (model.upper - model.lower) * rng.normal(size=(N, len(model.lower))),
        model.lower,
        model.upper,
    )
    e, f = np.linalg.qr(rng.normal(size=(N, 3, 2)))[0].swapaxes(0, 2).swapaxes(1, 2)
    R_OH = np.stack([e, f, np.cross(e, f)], axis=2)
    surface = tables.set_surface[rng.integers(len(tables.set_surface), size=N)]
    centre_H = hand.poses(model.open_pose).points(tables.candidate_body, tables.candidate_p_B).mean(axis=0)
    spot = target.surface_points[rng.integers(len(target.surface_points), size=N)]
    outward = spot - target.mass_properties.com_O
    outward /= np.linalg.norm(outward, axis=1, keepdims=True)
    p_OH = spot + outward * rng.uniform(0.02, 0.08, (N, 1)) - R_OH @ centre_H
    p_HO = np.array([centre_H - thing.mass_properties.com_O for thing in things[:-1]]).reshape(1, -1, 3)
    batch.write(
        x=np.concatenate([p_OH, e, f, q], axis=1),
        mask=np.ones_like(q),
        surface=surface,
        contact=rng.integers(tables.surface_start[surface], tables.surface_start[surface + 1]),
        p_HO=np.broadcast_to(p_HO, (N, len(things) - 1, 3)),
        R_HO=np.broadcast_to(np.eye(3), (N, len(things) - 1, 3, 3)),
    )


def descend(batch: Batch, weights: Weights, steps: int = 300) -> None:
    """Gradient descent with RMS-scaled steps, 2 mm (rad) down to a tenth of that: contacts come close."""
    x, square = batch.read("x"), np.zeros_like(batch.read("x"))
    for step in range(steps):
        batch.evaluate(weights)
        g = batch.read("gradient")
        square = 0.9 * square + 0.1 * g * g
        x = x - 2e-3 * 0.1 ** (step / steps) * g / (np.sqrt(square) + 1e-6)
        batch.write(x=x)


def torch_microseconds(
    tables: HandTables, objects: ObjectTables, batch: Batch, weights: Weights, repeats: int
) -> tuple[float, int]:
    """CPU time per grasp of energy and gradient by torch autograd, and the block of grasps that was best."""
    import torch

    from fistful.synthesis import reference

    torch.set_num_threads(1)
    hand_tensors = reference.tensors(tables, torch.float32)
    object_tensors = reference.tensors(objects, torch.float32)
    arrays = [torch.tensor(batch.read(name)) for name in STATE]

    def evaluate(block: int) -> None:
        for start in range(0, batch.count, block):
            state = reference.State(*(array[start : start + block] for array in arrays))
            state = state._replace(x=state.x.clone().requires_grad_(), contact=state.contact.long())
            E, _ = reference.energy(hand_tensors, object_tensors, state, weights)
            torch.autograd.grad(E.sum(), state.x)

    spent = {
        block: cpu_seconds(lambda block=block: evaluate(block), repeats)
        for block in (32, 256)
        if block <= batch.count
    }
    best = min(spent, key=lambda block: spent[block])
    return 1e6 * spent[best] / batch.count, best


def core_microseconds(batch: Batch, weights: Weights, repeats: int) -> dict[str, float]:
    """CPU time per grasp of energy and gradient by the kernels: each kernel, and all."""
    batch.data.w_hop.fill_(weights.hop)
    launches = batch.evaluation(weights)
    names = ("pose", "touch", "energy")
    each = {
        f"{name}_us": 1e6 * cpu_seconds(launch.launch, repeats, 50) / batch.count
        for name, launch in zip(names, launches, strict=True)
    }

    def whole() -> None:
        for launch in launches:
            launch.launch()

    return {**each, "core_us": 1e6 * cpu_seconds(whole, repeats, 50) / batch.count}


def without_pairs(tables: HandTables) -> HandTables:
    """The same hand, free to pass through itself."""
    none = np.zeros((0, 2), dtype=int)
    return replace(
        tables, pair_body=none, pair_reach=np.zeros(0), pair_start=np.zeros(1, dtype=int), geom_pair=none
    )


def core_study(options: argparse.Namespace) -> dict:
    """The compiled core against torch autograd."""
    rows = []
    print(
        f"{'hand':12} {'held':>4} {'states':10} {'terms':13} {'core us':>8} "
        f"(pose, touch, energy) {'torch us':>9} {'block':>5} {'ratio':>6}"
    )
    for name, held in product(options.hands, (0, 1)):
        hand = load_hand(name)
        things = [load_object(thing, rescale=True) for thing in ("ball", "mug")[1 - held :]]
        objects, full = ObjectTables.of(things), HandTables.of(hand, contact_sets(hand))
        start = Core(full, objects).batch(options.batch)
        scattered(hand, full, things, start, np.random.default_rng(options.seed))
        for states, (terms, weights) in product(("scattered", "descended"), TERMS.items()):
            if states == "descended" and terms == next(iter(TERMS)):
                descend(start, replace(ALL_TERMS, hop=ALL_TERMS.hop_end))
            tables = without_pairs(full) if terms == "paper but hsp" else full
            batch = Core(tables, objects).batch(options.batch)
            batch.write(**{array: start.read(array) for array in STATE})
            row = {"hand": name, "held": held, "states": states, "terms": terms}
            row["skin_points"] = len(full.points)
            row |= core_microseconds(batch, weights, options.repeats)
            row["torch_us"], row["torch_block"] = torch_microseconds(
                tables, objects, batch, weights, options.torch_repeats
            )
            row["ratio"] = row["torch_us"] / row["core_us"]
            rows.append(row)
            print(
                "{hand:12} {held:4} {states:10} {terms:13} {core_us:8.2f} ({pose_us:4.2f}, {touch_us:6.2f}, "
                "{energy_us:5.2f}) {torch_us:9.0f} {torch_block:5} {ratio:6.0f}".format(**row),
                flush=True,
            )
    ratios = [row["ratio"] for row in rows]
    print(f"torch / core: {min(ratios):.0f} to {max(ratios):.0f}, median {np.median(ratios):.0f}")
    return {"batch": options.batch, "smallest_ratio": min(ratios), "rows": rows}


# Whole stages.


def prepared(options: argparse.Namespace) -> list[Object]:
    """The objects asked for: built-in names, mesh files, or all meshes of folders."""
    paths: list[str | Path] = []
    for name in options.objects:
        folder = Path(name)
        meshes = sorted(p for p in folder.iterdir() if p.suffix in MESHES) if folder.is_dir() else []
        paths += meshes or [name]
    return [load_object(path, rescale=not options.true_scale) for path in paths]


def planner(options: argparse.Namespace, **settings) -> Planner:
    """A planner for the hand asked for, with every kernel compiled and warm."""
    compile_kernels(settings.get("method", "fast"))
    hand, threads = load_hand(options.hand), options.threads
    Planner.of(hand, Settings(count=8), threads=threads).stage([load_object("ball", rescale=True)])
    return Planner.of(hand, Settings(seed=options.seed, **settings), threads=threads)


def row_of(stage: Stage) -> dict:
    """The figures of a stage."""
    m, good = stage.measures, int(stage.good.sum())
    overlaps = {"hand": m.penetration_mm, "self": m.self_penetration_mm, "object": m.object_penetration_mm}
    return {
        "object": stage.object_name,
        "count": len(stage),
        "good": good,
        "good_per_cpu_s": good / stage.cpu_s,
        "median_mm": {name: float(np.median(depth)) for name, depth in overlaps.items()},
        "quality": float(np.median(stage.grasps.quality[stage.good])) if good else 0.0,
        "cpu_s": stage.cpu_s,
        "wall_s": stage.wall_s,
    }


def paper_study(options: argparse.Namespace) -> dict:
    """256 x 6000 steps of the paper's optimiser, on one thread and on two."""
    rows = []
    print(
        f"{'object':24} {'threads':>7} {'CPU s':>6} {'wall s':>6} {'us per grasp and step':>22} {'good %':>6}"
    )
    for item in prepared(options):
        for threads in (1, 2):
            options.threads = threads
            plan = planner(options, method="paper", count=256, skin_points=options.skin_points)
            row = row_of(plan.stage([item])) | {"threads": threads, "skin_points": options.skin_points}
            row["us"] = 1e6 * row["cpu_s"] / (256 * plan.settings.paper.steps)
            rows.append(row)
            print(
                "{object:24} {threads:7} {cpu_s:6.1f} {wall_s:6.1f} {us:22.2f} {share:6.0f}".format(
                    share=100 * row["good"] / row["count"], **row
                ),
                flush=True,
            )
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    speedup = float(np.median([one["wall_s"] / two["wall_s"] for one, two in pairs]))
    cpu = float(np.median([one["cpu_s"] for one, _ in pairs]))
    print(f"median: {cpu:.1f} s CPU on one thread, two threads {speedup:.2f} times as fast")
    return {"cpu_s": cpu, "speedup": speedup, "rows": rows}


def fast_study(options: argparse.Namespace) -> dict:
    """The default method, one object at a time."""
    plan, rows = planner(options, count=options.count), []
    print(f"{'object':40} {'good %':>6} {'good/CPU s':>10} {'penetration mm':>14} {'quality':>7}")
    for item in prepared(options):
        row = row_of(plan.stage([item]))
        rows.append(row)
        print(
            f"{row['object'][:40]:40} {100 * row['good'] / row['count']:6.0f} {row['good_per_cpu_s']:10.0f} "
            f"{row['median_mm']['hand']:14.2f} {row['quality']:7.2f}",
            flush=True,
        )
    shares = [row["good"] / row["count"] for row in rows]
    rates = [row["good_per_cpu_s"] for row in rows]
    print(
        f"{len(rows)} objects: good {np.mean(shares):.1%} on average, {min(shares):.0%} at worst; "
        f"good grasps per CPU s: median {np.median(rates):.0f}, worst {min(rates):.0f}"
    )
    figures = {"mean_share": np.mean(shares), "worst_share": min(shares), "median_rate": np.median(rates)}
    return {name: float(value) for name, value in figures.items()} | {"count": options.count, "rows": rows}


def sequences_study(options: argparse.Namespace) -> dict:
    """Random sequences of four objects."""
    items, plan = prepared(options), planner(options, count=options.count)
    rng, rows = np.random.default_rng(options.seed), []
    print(
        f"{'sequence':>8} {'stage':>5} {'object':36} {'good %':>6} {'chained %':>9} "
        "median mm: hand, self, object"
    )
    for k in range(options.sequences):
        chosen = [
            items[i] for i in rng.choice(len(items), options.length, replace=len(items) < options.length)
        ]
        stage, chained = None, 1.0
        for n in range(options.length):
            try:
                stage = plan.stage(chosen[: n + 1], stage, to_come=options.length - 1 - n)
            except PlanError as stop:
                print(stop)
                break
            row = row_of(stage) | {"sequence": k, "stage": n + 1}
            chained *= row["good"] / row["count"]
            rows.append(row | {"chained": chained})
            print(
                f"{k + 1:8} {n + 1:5} {row['object'][:36]:36} {100 * row['good'] / row['count']:6.0f} "
                f"{100 * chained:9.0f} " + ", ".join(f"{v:.2f}" for v in row["median_mm"].values()),
                flush=True,
            )
    by_stage = []
    for n in range(1, options.length + 1):
        own = [row for row in rows if row["stage"] == n]
        if not own:
            break
        medians = {
            key: float(np.max([row["median_mm"][key] for row in own])) for key in ("hand", "self", "object")
        }
        by_stage.append(
            {
                "stage": n,
                "good": float(np.mean([row["good"] / row["count"] for row in own])),
                "chained": float(np.sum([row["chained"] for row in own])) / options.sequences,
                "worst_median_mm": medians,
                "cpu_s": float(np.mean([row["cpu_s"] for row in own])),
            }
        )
        print(
            "stage {stage}: good {good:.0%}, chained {chained:.0%}, worst medians {worst_median_mm}".format(
                **by_stage[-1]
            )
        )
    return {"by_stage": by_stage, "rows": rows}


def order_study(options: argparse.Namespace) -> dict:
    """The order given against the order found."""
    items, rows = prepared(options), []
    planner(options)
    rng = np.random.default_rng(options.seed)
    print(f"{'chained good %: given':>21} {'auto':>5} {'search CPU s':>12}  order found")
    for _ in range(options.sequences):
        chosen = [items[i] for i in rng.choice(len(items), options.length, replace=False)]
        plans, spent = {}, {}
        for order in ("given", "auto"):
            start = time.process_time()
            plans[order] = plan_sequence(
                load_hand(options.hand), chosen, count=options.count, order=order, threads=options.threads
            )
            spent[order] = time.process_time() - start - sum(stage.cpu_s for stage in plans[order].stages)
        chained = {}
        for order, made in plans.items():
            shares = [stage.good.mean() for stage in made.stages]
            chained[order] = float(np.prod(shares)) if len(shares) == options.length else 0.0
        names = [item.name for item in plans["auto"].objects]
        rows.append(chained | {"order": names, "search_cpu_s": spent["auto"] - spent["given"]})
        print(
            f"{100 * chained['given']:21.0f} {100 * chained['auto']:5.0f} {rows[-1]['search_cpu_s']:12.1f}  "
            + ", ".join(names),
            flush=True,
        )
    means = {key: float(np.mean([row[key] for row in rows])) for key in ("given", "auto", "search_cpu_s")}
    print("mean: given {given:.1%}, auto {auto:.1%}, search {search_cpu_s:.1f} s CPU".format(**means))
    return {"mean": means, "rows": rows}


def evaluation_us(plan: Planner, things: list[Object], stage: Stage) -> float:
    """CPU of one evaluation of all terms and the gradient at the grasps of a stage, us per grasp."""
    grasps = stage.grasps
    batch = Core(plan.tables, ObjectTables.of(things)).batch(len(grasps))
    x = packed(grasps.p_OH, grasps.R_OH, grasps.q)
    held = {"p_HO": grasps.p_HO[:, :-1], "R_HO": grasps.R_HO[:, :-1]}
    batch.write(x=x, mask=grasps.joint_mask, contact=np.zeros((len(grasps), 2)), **held)
    return 1e6 * cpu_seconds(lambda: batch.evaluate(ALL_TERMS), repeats=7, times=10) / len(grasps)


def scaling_study(options: argparse.Namespace) -> dict:
    """Cost against count and held objects; memory."""
    import resource

    names = ("ball", "egg", "duck", "die")
    things = [load_object(name, rescale=True) for name in names]
    rows = []
    print(f"{'held':>4} {'count':>6} {'us per evaluation':>17} {'CPU ms per grasp':>16} {'peak MB':>7}")
    for held, counts in ((0, (64, 256, 1024, 4096)), (1, (256,)), (2, (256,)), (3, (256,))):
        for count in counts:
            plan = planner(options, count=count)
            few, stage = planner(options, count=256), None
            for n in range(held):
                stage = few.stage(things[: n + 1], stage, to_come=held - n)
            # One round, so that cost per grasp is compared and not how many need another.
            once = replace(plan, settings=replace(plan.settings, rounds=1))
            made = once.stage(things[: held + 1], stage)
            row = row_of(made) | {
                "held": held,
                "evaluation_us": evaluation_us(plan, things[: held + 1], made),
            }
            row["ms_per_grasp"] = 1e3 * row["cpu_s"] / count
            row["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            rows.append(row)
            print(
                "{held:4} {count:6} {evaluation_us:17.1f} {ms_per_grasp:16.2f} {peak_mb:7.0f}".format(**row),
                flush=True,
            )
    return {"rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    studies = parser.add_subparsers(dest="study", required=True)

    def study(name: str, run: Callable[[argparse.Namespace], dict]) -> argparse.ArgumentParser:
        sub = studies.add_parser(name, help=run.__doc__)
        sub.set_defaults(run=run)
        sub.add_argument("--seed", type=int, default=0)
        sub.add_argument("--json", type=Path, help="where to write the results")
        return sub

    sub = study("core", core_study)
    sub.add_argument("--hands", nargs="+", default=["allegro"], help=f"default allegro; of {hand_names()}")
    sub.add_argument("--batch", type=int, default=256, help="grasps, default 256")
    sub.add_argument("--repeats", type=int, default=7, help="of 50 evaluations by the core, default 7")
    sub.add_argument("--torch-repeats", type=int, default=2, help="of one evaluation by torch, default 2")

    for name, run, objects in (
        ("paper", paper_study, ["ball", "box", "can"]),
        ("fast", fast_study, None),
        ("sequences", sequences_study, None),
        ("order", order_study, None),
        ("scaling", scaling_study, []),
    ):
        sub = study(name, run)
        sub.add_argument("--hand", default="allegro", help="default allegro")
        sub.add_argument("--objects", nargs="+", default=objects, required=objects is None)
        sub.add_argument("--true-scale", action="store_true", help="do not scale objects")
        sub.add_argument("--threads", type=int, default=1, help="default 1: figures are per core")
        sub.add_argument("--count", type=int, default=256, help="grasps a stage, default 256")
        sub.add_argument("--skin-points", type=int, default=1500, help="of the paper study, default 1500")
        sub.add_argument("--sequences", type=int, default=10, help="default 10")
        sub.add_argument("--length", type=int, default=4, help="objects a sequence, default 4")

    options = parser.parse_args()
    result = options.run(options)
    if options.json:
        machine = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        record = {"study": options.study, "bars": BARS, "machine": machine, **result}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
