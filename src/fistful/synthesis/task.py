"""What an optimiser is asked for, and what it answers."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from threading import Event
from typing import NamedTuple, TypeVar

import numpy as np

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """N grasps to be found, with C contacts each, while Q objects are held.

    Attributes:
      q: (N, K) float. Joints to start from; those not in the mask stay as they are.
      mask: (N, K) bool. J_n: joints that may move.
      surface: (N, C) int. Surface of each contact, as HandTables numbers them.
      p_HO, R_HO: (N, Q, 3), (N, Q, 3, 3) float. Held objects in the hand base frame.
      key: (N,) int, below 32768. Stream of random numbers of each grasp.
    """

    q: np.ndarray
    mask: np.ndarray
    surface: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray
    key: np.ndarray

    def __len__(self) -> int:
        return len(self.q)

    def take(self, index: np.ndarray) -> "Task":
        """The grasps of an index array."""
        return Task(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


class Solution(NamedTuple):
    """States x (N, 9 + K) float32: position of H in O, its 6D rotation, joints; contact candidates (N, C).

    `curve` (N, S) float32 is what each cost on its way, in the optimiser's own units; NaN after the end.
    """

    x: np.ndarray
    contact: np.ndarray
    curve: np.ndarray = np.zeros((0, 0), dtype=np.float32)

    @staticmethod
    def join(parts: Sequence["Solution"]) -> "Solution":
        """All grasps of several solutions, in order."""
        return Solution(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def in_threads(work: Callable[[_In, Event], _Out], items: Sequence[_In], threads: int) -> list[_Out]:
    """Results of work(item, stop) in order. An error or Ctrl-C sets `stop`, which the others look at."""
    stop = Event()
    if threads == 1 or len(items) == 1:
        return [work(item, stop) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(work, item, stop) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise


def blocks(count: int, threads: int, largest: int) -> list[np.ndarray]:
    """Index arrays that split `count` grasps evenly over threads, none larger than `largest`."""
    number = max(threads, -(-count // largest))
    number = -(-number // threads) * threads if count > largest else number
    return [block for block in np.array_split(np.arange(count), min(number, count)) if len(block)]
