"""A hand: forward kinematics, limits, contact surfaces, opposition spaces.

    python examples/01_hand.py [HAND]

HAND is a built-in name or a path to an MJCF, a URDF or a description.
"""

import sys

import numpy as np

import fistful as ff


def main(name: str = "allegro") -> None:
    """Print what a planner would ask of a hand."""
    hand = ff.load_hand(name)
    model = hand.model
    print(f"{hand.name}: {len(hand.joints)} joints, {len(model.geoms)} shapes")

    # A batch of random configurations within the limits, and where the fingertips' bodies are.
    rng = np.random.default_rng(0)
    q = rng.uniform(model.lower, model.upper, (1000, len(hand.joints)))
    poses = hand.poses(q)
    for finger in hand.fingers:
        p_HB = poses.p_HB[:, finger.bodies[-1]]
        reach_mm = 1e3 * np.linalg.norm(p_HB, axis=1).max()
        print(f"  {finger.name}: {finger.joint_mask.sum()} joints, reaches {reach_mm:.0f} mm from the base")

    # An opposition space is two surfaces and the joints that are spent when it is used.
    for space in hand.opposition_spaces:
        a, b = space.surfaces
        print(f"  {space.name}: {a.name} ({len(a.candidates.body)} points) against {b.name}")
    free = ~hand.opposition_spaces[0].joint_mask
    left = [s.name for s in hand.opposition_spaces if np.any(s.joint_mask & free)]
    print(f"after {hand.opposition_spaces[0].name}, these still have a free joint: {', '.join(left)}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
