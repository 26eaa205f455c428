"""What it costs to load a hand: CPU seconds, built-in ones and model files.

python benchmarks/hands.py [MODEL.xml|MODEL.urdf ...] [--json OUT]

A model file is reduced and described from scratch (no cache); a built-in hand is read from its two files.
"""

import argparse
import json
import time
from pathlib import Path

from fistful.hands import hand_names, load_hand


def measure(name: str) -> dict:
    start = time.process_time()
    hand = load_hand(name, use_cache=False)
    return {
        "hand": hand.name,
        "joints": len(hand.joints),
        "shapes": len(hand.model.geoms),
        "spaces": len(hand.opposition_spaces),
        "cpu_s": round(time.process_time() - start, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", help="MJCF or URDF files")
    parser.add_argument("--json", type=Path, help="file to write the records to")
    arguments = parser.parse_args()
    load_hand("allegro")  # Imports are not part of the cost.
    records = []
    for name in (*hand_names(), *arguments.models):
        records.append(measure(name))
        print(
            "{hand:20} {joints:3} joints {shapes:3} shapes {spaces:3} spaces {cpu_s:7.2f} s CPU".format(
                **records[-1]
            )
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=2))


if __name__ == "__main__":
    main()
