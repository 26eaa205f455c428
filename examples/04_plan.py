"""A plan: one hand picks up several objects one after the other and holds them all.

    python examples/04_plan.py [OBJECT ...]

OBJECT is a built-in name or a path to a mesh. Without any, an Allegro hand takes a cube and an egg.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import fistful as ff


def main(*names: str) -> None:
    """Plan, look at the best grasp, and continue from grasps that one has chosen oneself."""
    hand = ff.load_hand("allegro")
    objects = [ff.load_object(name) for name in names or ("cube", "egg")]
    folder = Path(tempfile.mkdtemp()) / "plan"
    ff.plan(hand, objects, count=32, seed=1, out=folder, on_stage=lambda so_far: print(so_far))

    # The folder stands alone: it can be read again here or on another machine.
    plan = ff.load_plan(folder)
    for n, stage in enumerate(plan.stages):
        deepest = np.median(stage.measures.penetration_mm)
        good, held = stage.good.sum(), plan.held(n).sum()
        print(f"{stage.object_name}: of {len(stage)}, {good} are good, {held} hold; {deepest:.2f} mm deep")

    # The best grasp of the last stage, and the grasps that lead to it: what a robot would do, in order.
    path = plan.lineage(-1, plan.best())
    for stage, i in zip(plan.stages, path, strict=True):
        g = stage.grasps
        moving = [name for name, own in zip(hand.joints, g.joint_mask[i], strict=True) if own]
        space = stage.spaces[g.space[i]]
        print(f"{stage.object_name} by {space}, quality {g.quality[i]:.2f}: {', '.join(moving)}")
        for word, q in (("open to", g.pre_grasp), ("close to", g.q), ("press towards", g.squeeze)):
            print(f"  {word} {np.round(q[i][g.joint_mask[i]], 2)}")

    # Continue by hand: only from the three best grasps of the first object, as after a validation.
    first = plan.stages[0]
    planner = ff.Planner.of(hand, plan.settings)
    again = planner.stage(plan.objects[:2], first, parents=first.ranked()[:3])
    print(f"from three chosen grasps: {again.good.sum()} of {len(again)} good")


if __name__ == "__main__":
    main(*sys.argv[1:])
