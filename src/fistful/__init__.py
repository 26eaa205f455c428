"""One hand, several objects: plan, validate, learn and execute sequential multi-object grasps."""

__version__ = "0.1.0"
