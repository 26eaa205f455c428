"""Which grasps hold in physics? Collect verdicts, fit planning/prediction.py, and say what it is worth.

python benchmarks/prediction.py collect --objects FOLDER|NAME ... --out FOLDER [--hand allegro] [--count 24]
"""

import argparse
import pickle
import time
from pathlib import Path

import numpy as np

from fistful.hands import load_hand
from fistful.objects import Object, load_object, object_names
from fistful.planning.plan import plan, validate
from fistful.planning.validation import held_throughout

STEPS = (0, 7, 12)
"""Sequence i holds objects i, i + 7 and i + 12 of a random circle: each comes first, second and third once."""
LONG = 3
"""Only every third sequence has a third stage, which costs as much as the other two."""


def collect(names: list[str], out: Path, hand_name: str, count: int, seed: int) -> None:
    """One file a sequence; those that are there already are left."""
    out.mkdir(parents=True, exist_ok=True)
    hand, start = load_hand(hand_name), time.process_time()
    circle = np.random.default_rng([4, seed]).permutation(len(names))
    for i in range(len(names)):
        path = out / f"{hand_name}_{seed}_{i:03d}.pickle"
        if path.exists():
            continue
        used = [names[circle[(i + k) % len(names)]] for k in STEPS[: 2 if i % LONG else 3]]
        objects = [load_object(name, rescale=True) for name in used]
        try:
            done = plan(hand, objects, count=count, seed=seed + i, threads=1)
        except Exception as error:
            print(f"{path.name}: {', '.join(used)}: {error}", flush=True)
            continue
        strict = validate(done, "strict", threads=1)
        verdicts, tried = {}, {}
        for name, each in (("paper", done), ("strict", strict)):
            assert each.validation is not None
            held = held_throughout(each.stages, each.validation)
            verdicts[name] = each.validation.verdicts
            tried[name] = [
                held[n - 1][s.grasps.parent] if n else np.ones(len(s), bool)
                for n, s in enumerate(each.stages)
            ]
        record = {"hand": hand_name, "objects": used, "stages": done.stages}
        record |= {"verdicts": verdicts, "tried": tried}
        path.with_suffix(".part").write_bytes(pickle.dumps(record))
        path.with_suffix(".part").rename(path)
        rates = ", ".join(
            f"{Path(o).stem} {p.success.mean():.0%}/{s.success.mean():.0%}"
            for o, p, s in zip(used, verdicts["paper"], verdicts["strict"], strict=False)
        )
        print(f"{path.name} {time.process_time() - start:.0f} s: {rates}", flush=True)


def named(entries: list[str]) -> list[str]:
    names = []
    for entry in entries:
        path = Path(entry)
        names += sorted(map(str, path.glob("*.obj"))) if path.is_dir() else [entry]
    return names


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    c = commands.add_parser("collect")
    c.add_argument("--objects", nargs="+", default=list(object_names()))
    c.add_argument("--out", type=Path, required=True)
    c.add_argument("--hand", default="allegro")
    c.add_argument("--count", type=int, default=24)
    c.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    if a.command == "collect":
        collect(named(a.objects), a.out, a.hand, a.count, a.seed)


if __name__ == "__main__":
    main()
