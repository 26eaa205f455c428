"""Your own hand, without annotation: import, look, write out, edit, load again.

    python examples/03_your_own_hand.py [MODEL.urdf|MODEL.xml] [FOLDER]

Without a model, the two-finger gripper beside this file is taken.
"""

import sys
import tempfile
from pathlib import Path

import fistful as ff

GRIPPER = Path(__file__).parent / "gripper.urdf"


def main(model: str | Path = GRIPPER, folder: str | None = None) -> None:
    """Describe a hand automatically and write it out."""
    hand = ff.load_hand(model, progress=lambda step: print(f"  trying {step}"))
    for note in hand.notes:
        print("note:", note)
    for entry in hand.description.opposition_spaces:
        print(f"{entry.name}: {' - '.join(entry.surfaces)}, balls of {entry.span_mm} mm")

    written = ff.save_hand(hand, Path(folder or tempfile.mkdtemp()), name="mine")
    # The two files are plain text: here the summary is edited, as one would rename fingers or drop spaces.
    written.write_text(written.read_text().replace("automatically", "automatically, then edited"))
    again = ff.load_hand(written)
    print(f"{written.name}: {again.summary}; joints {', '.join(again.joints)}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
