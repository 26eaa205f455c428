"""Physics: which grasps hold, why others do not, and under rules of your own.

    python examples/05_validate.py [OBJECT]

OBJECT is a built-in name or a path to a mesh; without it, an egg.
"""

import sys
from dataclasses import replace

import fistful as ff
from fistful.physics.protocol import PAPER


def main(name: str = "egg") -> None:
    """Plan by geometry alone, then try the same grasps under one protocol after the other."""
    hand, item = ff.load_hand("allegro"), ff.load_object(name)
    plan = ff.plan(hand, [item], count=32, seed=1, validate=False)
    # All that decides a verdict is in the protocol, so a new one needs a name of its own.
    wet = replace(PAPER, name="wet", summary="paper, but slippery", friction=0.3)
    for protocol in ("paper", "strict", "shake", wet):
        tried = ff.validate(plan, protocol)
        (row,) = tried.summary()["stages"]
        v = row["validation"]
        fates = ", ".join(f"{fate} {n}" for fate, n in v["reasons"].items())
        print(f"{tried.summary()['protocol']['name']}: {v['valid']} of {v['generated']} hold ({fates})")

        # One that does not hold, and what happened to it.
        assert tried.validation is not None
        (verdicts,) = tried.validation.verdicts
        for i in (~verdicts.success).nonzero()[0][:1]:
            print(f"  grasp {i}: {verdicts.explain(i, [item.name])}")


if __name__ == "__main__":
    main(*sys.argv[1:])
