"""Soft jaws: compliant parallel-jaw grasps under Incremental Potential Contact, and models to compare."""
