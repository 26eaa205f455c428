"""Wrench mathematics: friction cones, the grasp matrix, and how much disturbance a grasp resists."""
