"""Fingers and palm behind soft pads, as boxes: only what is above the pads, so that these are seen."""

from typing import NamedTuple

import numpy as np

from fistful.jaws.jaw_run import JawRun
from fistful.jaws.outcome import Frame
from fistful.view.colours import RGB

FINGER: RGB = (0.62, 0.64, 0.67)
THICK = 0.004
"""m. Of fingers and palm; no model simulates them."""
_LENGTH = 0.02


class Box(NamedTuple):
    """In the axes of the grasp frame: centre (3,) and half sides (3,), m, and the orientation (3, 3)."""

    centre_W: np.ndarray
    half: np.ndarray
    R_WG: np.ndarray

    @property
    def corners_W(self) -> np.ndarray:
        """(8, 3) float64, m."""
        signs = np.stack(np.meshgrid(*[[-1, 1]] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
        return self.centre_W + (signs * self.half) @ self.R_WG.T


def fingers(run: JawRun, frame: Frame) -> list[Box]:
    """Both fingers and the palm, where they are in a frame."""
    R = np.asarray(run.record["R_WG"])
    pads = np.asarray(frame.nodes_W, float) @ R  # (2, N, 3), along closing axis, across, towards the tips
    back = np.array([pads[0, :, 0].min(), pads[1, :, 0].max()])
    low, high = pads.min(axis=(0, 1)), pads.max(axis=(0, 1))
    root = low[2] - _LENGTH
    found = []
    for plane, side in zip(back, (-1, 1), strict=True):
        found.append(([plane, plane + side * THICK], [low[1], high[1]], [root, low[2]]))
    found.append(([back[0] - THICK, back[1] + THICK], [low[1], high[1]], [root - THICK, root]))
    boxes = []
    for sides in found:
        a, b = np.array(sides, float).T
        boxes.append(Box(R @ (a + b) / 2, np.abs(b - a) / 2, R))
    return boxes
