"""Hands as data: mechanics from one MJCF of primitives, meaning from a small description."""

from fistful.hands.hand import Finger, Hand, OppositionSpace, Surface
from fistful.hands.library import check_hand, hand_names, load_hand, save_hand

__all__ = [
    "Finger",
    "Hand",
    "OppositionSpace",
    "Surface",
    "check_hand",
    "hand_names",
    "load_hand",
    "save_hand",
]
