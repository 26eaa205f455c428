"""What a click in the viewer costs: python benchmarks/view.py [--count 2000] [--json OUT]

Plans `count` grasps of one object without physics, opens the viewer without a browser, and measures what
the server does for a new grasp, a move of the phase slider, and a new order of the list: CPU time, and bytes
of texts and arrays that go to a browser.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import fistful as ff
from fistful.view.plan_viewer import PlanViewer
from fistful.view.serving import close_server, open_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--object", default="mug")
    parser.add_argument("--clicks", type=int, default=100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    hand, item = ff.load_hand("allegro"), ff.load_object(options.object, rescale=True)
    plan = ff.plan(hand, [item], count=options.count, validate=False)
    server = open_server("127.0.0.1", None, "benchmark")
    sent = 0
    queue = server._websock_server.queue_message

    def counted(message):
        nonlocal sent
        sent += size_of(message)
        return queue(message)

    server._websock_server.queue_message = counted
    began = time.process_time()
    viewer = PlanViewer(server, plan)
    record = {"count": options.count, "faces": len(item.faces)}
    record["open"] = {"cpu_ms": 1e3 * (time.process_time() - began), "bytes": sent}
    rng = np.random.default_rng(0)
    actions = {
        "another grasp": lambda: viewer.select(0, int(rng.integers(options.count))),
        "phase": lambda: setattr(viewer.phase, "value", float(rng.choice(np.arange(0, 2.01, 0.05)))),
        "order": lambda: setattr(viewer.order, "value", str(rng.choice(["rank", "quality", "penetration"]))),
    }
    for name, action in actions.items():
        costs, sizes = [], []
        for _ in range(options.clicks):
            sent, began = 0, time.process_time()
            action()
            costs.append(1e3 * (time.process_time() - began))
            sizes.append(sent)
        record[name] = {"cpu_ms": float(np.median(costs)), "bytes": int(np.median(sizes))}
    close_server(server)
    for name, row in record.items():
        if isinstance(row, dict):
            print(f"{name:14} {row['cpu_ms']:8.1f} ms CPU {row['bytes']:12,} bytes")
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def size_of(value: object) -> int:
    """Bytes of all arrays and texts in a message, however deep."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, dict):
        return sum(size_of(v) for v in value.values())
    if isinstance(value, list | tuple):
        return sum(size_of(v) for v in value)
    if hasattr(value, "__dict__"):
        return sum(size_of(v) for v in vars(value).values())
    return 8


if __name__ == "__main__":
    main()
