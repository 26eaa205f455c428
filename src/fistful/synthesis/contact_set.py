"""Contact sets: the opposed pairs of surfaces that hold one object, and which of them a hand has left.

The paper holds each object with one opposition space, that is one pair of contacts. A contact set joins
several spaces that share a surface (thumb against index and middle finger; two fingers against the palm),
so that three or more links hold the object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from fistful.hands.hand import Hand


@dataclass(frozen=True, kw_only=True, eq=False)
class ContactSet:
    """One or more opposition spaces used together.

    Attributes:
      name: Names of the spaces, joined by "+".
      spaces: Their places in `hand.opposition_spaces`.
      surfaces: Names of the surfaces of the contacts, two for each space: contacts 2i and 2i + 1 oppose.
      joint_mask: (K,) bool. J: all joints of the spaces.
    """

    name: str
    spaces: tuple[int, ...]
    surfaces: tuple[str, ...]
    joint_mask: np.ndarray


def contact_sets(hand: Hand, pairs: int = 1) -> tuple[ContactSet, ...]:
    """All contact sets of a hand with a number of opposed pairs.

    One pair: the opposition spaces. More: spaces that all share one surface, so that the other ends oppose it
    together.
    """
    spaces = hand.opposition_spaces
    found = []
    for group in combinations(range(len(spaces)), pairs):
        surfaces = [{s.name for s in spaces[i].surfaces} for i in group]
        if set.intersection(*surfaces):
            found.append(
                ContactSet(
                    name="+".join(spaces[i].name for i in group),
                    spaces=group,
                    surfaces=tuple(s.name for i in group for s in spaces[i].surfaces),
                    joint_mask=np.any([spaces[i].joint_mask for i in group], axis=0),
                )
            )
    return tuple(found)


def remaining_masks(sets: Sequence[ContactSet], free: np.ndarray) -> np.ndarray:
    """J_j <- J_j * (1 - J_n) of Algorithm 1, line 12: the joints of each set that are still free.

    Args:
      sets: T contact sets.
      free: (..., K) bool. Joints that hold nothing yet.

    Returns:
      (..., T, K) bool. A set whose row is all False is spent (line 14).
    """
    return np.array([s.joint_mask for s in sets]) & free[..., None, :]


def usable_sets(sets: Sequence[ContactSet], free: np.ndarray, to_come: int) -> np.ndarray:
    """Which sets a hand can use now, (T,) bool: they have free joints, and leave enough for later objects.

    A set that leaves fewer further stages than another could is not used, unless enough are left anyway.

    Args:
      sets: T contact sets.
      free: (K,) bool. Joints that hold nothing yet.
      to_come: Objects still to be grasped after this one.
    """
    masks = tuple(_bits(s.joint_mask) for s in sets)
    left = np.array([_stages(masks, _bits(free) & ~m) if m & _bits(free) else -1 for m in masks])
    return (left >= 0) & (left >= min(to_come, left.max()))


@lru_cache(maxsize=4096)
def _stages(masks: tuple[int, ...], free: int) -> int:
    """How many objects can be grasped one after the other with the free joints, given as bits."""
    return max((1 + _stages(masks, free & ~m) for m in masks if m & free), default=0)


def _bits(mask: np.ndarray) -> int:
    return int("".join("01"[int(j)] for j in mask), 2)
