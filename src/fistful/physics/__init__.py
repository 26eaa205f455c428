"""Grasps in physics: scenes for MuJoCo, frozen protocols, verdicts that say why."""
