"""Synthesis of grasps: where to hold an object, how, and how well the result fits."""
