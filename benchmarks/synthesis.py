"""What the synthesis of grasps costs, and what comes out.

python benchmarks/synthesis.py core [--hands NAME ...] [--json OUT]

core: CPU time of one evaluation of energy and gradient, per grasp: the compiled core against torch autograd
(`synthesis/reference.py`, float32, one thread) in the same run, on the same states with the same points.
Torch evaluates every point, the core skips what is far. Terms: the paper's; these without self penetration,
where skipping pays most; and ours as well. Torch takes the batch in blocks of the size that suits it best.
Compilation and warm-up come before the clock.
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

from fistful.hands import Hand, hand_names, load_hand
from fistful.objects import Object, load_object
from fistful.synthesis.contact_set import contact_sets
from fistful.synthesis.core import Batch, Core
from fistful.synthesis.tables import HandTables, ObjectTables
from fistful.synthesis.weights import PAPER, Weights

BARS = {"core_ratio": 50.0}
ALL_TERMS = Weights(hho=5.0, ohp=5.0, friction=1.0)
TERMS = {"paper": PAPER, "paper but hsp": PAPER, "all": ALL_TERMS}
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
    return replace(tables, pair_body=none, pair_start=np.zeros(1, dtype=int), geom_pair=none)


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
