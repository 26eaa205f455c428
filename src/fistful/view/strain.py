"""Pads coloured by strain energy, the same in pictures and in the viewer."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fistful.jaws.jaw_run import JawRun
from fistful.jaws.outcome import Frame
from fistful.view.colours import RGB

RAMP = np.array(
    [[0.80, 0.84, 0.88], [0.99, 0.86, 0.45], [0.93, 0.52, 0.20], [0.62, 0.11, 0.24], [0.25, 0.03, 0.25]]
)
"""(5, 3) float. From nothing to the largest value, light to dark."""
OBJECT: RGB = (0.55, 0.70, 0.82)
"""An object that is not mistaken for a pad."""
SHADES = 12
"""A pad is drawn in so many colours."""
_TOP = 99.0


class Patch(NamedTuple):
    """Faces of a pad in one colour: its number, the colour, vertices (V, 3) in m, faces (F, 3)."""

    shade: int
    colour: RGB
    vertices_W: np.ndarray
    faces: np.ndarray


def ramp(at: float) -> RGB:
    """A colour between light (0) and dark (1)."""
    place = float(np.clip(at, 0, 1)) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    r, g, b = RAMP[low] + (place - low) * (RAMP[low + 1] - RAMP[low])
    return float(r), float(g), float(b)


def largest_energy(run: JawRun) -> float:
    """J/m3. What the dark end of the ramp stands for: nearly the largest density in any frame."""
    highest = np.percentile([np.percentile(f.energies, _TOP) for f in run.recording.frames], _TOP)
    return float(max(highest, 1e-9))


def patches(run: JawRun, frame: Frame, jaw: int, largest: float) -> Iterator[Patch]:
    """The surface of a pad, shade by shade; shades that no face has are left out."""
    nodes, faces = np.asarray(frame.nodes_W[jaw], float), run.recording.faces[jaw]
    level = node_levels(run.recording.tets[jaw], frame.energies[jaw], len(nodes), largest)
    shade = np.minimum((level[faces].mean(axis=1) * SHADES).astype(int), SHADES - 1)
    for k in np.unique(shade):
        used, local = np.unique(faces[shade == k], return_inverse=True)
        yield Patch(int(k), ramp((k + 0.5) / SHADES), nodes[used], local.reshape(-1, 3))


def node_levels(tets: np.ndarray, energies: np.ndarray, nodes: int, largest: float) -> np.ndarray:
    """(N,) float, 0 to 1. How dark a pad's nodes are: by the mean density of the tetrahedra around each.

    Args:
      tets: (T, 4) int.
      energies: (T,) float, J/m3.
      nodes: Number of nodes.
      largest: J/m3. The dark end.
    """
    total = np.bincount(tets.ravel(), np.repeat(energies, 4), nodes)
    density = total / np.maximum(np.bincount(tets.ravel(), minlength=nodes), 1)
    # The square root: energy is quadratic in strain, and most of a pad has little of it.
    return np.sqrt(np.clip(density / largest, 0, 1))
