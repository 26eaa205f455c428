"""Soft jaws: plan grasps of an object on a table, simulate the best, and ask two models how robust it is.

    python examples/06_soft_jaws.py [OBJECT]

OBJECT is a built-in name or a path to a mesh; without it, a die. Needs `pip install 'fistful[jaws]'`.
"""

import sys

import fistful as ff
from fistful.jaws.candidates import candidates
from fistful.jaws.gripper import Gripper
from fistful.jaws.robustness import robustness
from fistful.jaws.stable_poses import rest, stable_poses
from fistful.jaws.trial import simulate


def main(name: str = "die") -> None:
    """The object lies in its most likely pose; the jaws have the paper's pads and open farther."""
    item = ff.load_object(name)
    resting = rest(item, stable_poses(item)[0], mass=0.03)
    gripper = Gripper(opening=0.06, friction=0.4, closing_force=20.0)
    best, *others = candidates(resting, gripper, count=5)
    print(f"{1 + len(others)} grasps; the best closes at {best.p_WG.round(3)} along {best.axis_W.round(2)}")

    outcome = simulate(resting, best, gripper)
    force = outcome.force_N[-1].round(1)
    print(f"{outcome.reason}: {force} N at the end, {outcome.intersections} intersections")

    for model in ("reach", "ipc"):
        found = robustness(model, resting, best, gripper, trials=3)
        print(f"{model}: {found.value:.2f} of the perturbed poses hold, {found.cpu_s:.2f} CPU s each")


if __name__ == "__main__":
    main(*sys.argv[1:])
