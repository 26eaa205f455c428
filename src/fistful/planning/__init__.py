"""Sequences: plan a stage, try it in physics, go on from what held; orders; plans as folders."""
