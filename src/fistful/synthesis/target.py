"""The object of a stage with those that are held, and whether the hand can span it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fistful.errors import PlanError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.synthesis.antipodal import AntipodalPairs, antipodal_pairs
from fistful.synthesis.contact_set import ContactSet
from fistful.synthesis.core import Core
from fistful.synthesis.settings import Settings
from fistful.synthesis.tables import HandTables, ObjectTables

PAIRS_STREAM = 1
"""First number of every seed for antipodal pairs; rounds.py and order.py have others."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """The object to grasp, with those that are held, on the device.

    Attributes:
      objects: The held objects in the order of their stages, then the target.
      core: Hand and objects for the kernels.
      mesh: Exact distance to the target.
      pairs: Antipodal pairs of the target.
    """

    objects: tuple[Object, ...]
    core: Core
    mesh: MeshDistance
    pairs: AntipodalPairs

    @classmethod
    def of(cls, objects: Sequence[Object], hand: HandTables, settings: Settings, device: str) -> "Target":
        """The last of some objects as the target. Deterministic for the settings' seed."""
        tables = ObjectTables.of(objects, settings.object_points)
        rng = np.random.default_rng([PAIRS_STREAM, settings.seed, len(objects)])
        return cls(
            objects=tuple(objects),
            core=Core(hand, tables, device=device),
            mesh=MeshDistance(objects[-1].vertices, objects[-1].faces),
            pairs=antipodal_pairs(objects[-1], rng),
        )

    def check_span(self, hand: Hand, sets: Sequence[ContactSet]) -> None:
        """Raise PlanError if no two opposed points of the object are near enough for the hand."""
        name = self.objects[-1].name
        if not len(self.pairs.width):
            raise PlanError(
                f"{name} has no two opposed surface points with room for fingers: it can not be pinched"
            )
        narrow = self.pairs.width[0]
        spans = [hand.opposition_spaces[i].span_mm for entry in sets for i in entry.spaces]
        if None not in spans and 1e3 * narrow <= max(span[1] for span in spans if span):
            return
        wide = widest_opening(hand, sets)
        if narrow > wide:
            raise PlanError(
                f"{name} is too big for {hand.name}: its narrowest place measures {1e3 * narrow:.0f} mm, and "
                f"the free surfaces open to {1e3 * wide:.0f} mm; scale it (--rescale) or take another hand"
            )


def widest_opening(hand: Hand, sets: Sequence[ContactSet]) -> float:
    """The largest distance, m, of opposed surfaces of the sets that face each other, over random joints."""
    rng = np.random.default_rng(0)
    q = rng.uniform(hand.model.lower, hand.model.upper, (256, len(hand.joints)))
    q[0] = hand.model.open_pose
    poses, widest = hand.poses(q), 0.0
    surfaces = {s.name: s.candidates for s in hand.surfaces}
    for entry in sets:
        names = entry.surfaces
        for a, b in zip(names[::2], names[1::2], strict=True):
            skins = (surfaces[a], surfaces[b])
            x, y = (poses.points(s.body, s.p_B) for s in skins)
            n, m = (poses.directions(s.body, s.n_B) for s in skins)
            line = y[:, None] - x[:, :, None]
            width = np.linalg.norm(line, axis=-1)
            facing = (np.sum(line * n[:, :, None], axis=-1) > 0.5 * width) & (
                np.sum(line * m[:, None], axis=-1) < -0.5 * width
            )
            widest = max(widest, float(np.max(width, where=facing, initial=0.0)))
    return widest
