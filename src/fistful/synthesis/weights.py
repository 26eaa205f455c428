"""Weights of the energy (SeqGrasp eq. 3)."""

from dataclasses import dataclass

TERMS = ("fc", "dis", "hop", "hsp", "joint", "oop", "hho", "ohp", "friction")
"""Names of the energy terms in the order of every array of them; the first six are the paper's."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """E = sum of weight x term. The first six terms are the paper's, with its weights as defaults.

    Lengths are metres, so a weight of 50 makes 2 mm cost 0.1.
    """

    fc: float = 50.0
    """E_fc, eq. 4: contact normals cancel, in force and in torque over object size."""
    dis: float = 50.0
    """E_dis, eq. 6: contact points lie on the object."""
    hop: float = 5.0
    """E_hop, eq. 7: skin points inside the object. The paper lets it grow; see `hop_end`."""
    hop_end: float = 36.95
    """Its value at the end of a run, 5 e^2. The paper prints "5e^2" and "linearly"; its public code grows it
    exponentially to 5 exp(2), and so do we."""
    hsp: float = 5.0
    """E_hsp, eq. 8: skin points inside another part of the hand."""
    joint: float = 1.0
    """E_joint, eq. 9: joints outside of their limits, rad (m)."""
    oop: float = 5.0
    """E_oop, eq. 10: points of held objects inside the target."""
    hho: float = 0.0
    """Ours: moving fingers inside held objects, which the paper leaves free."""
    ohp: float = 0.0
    """Ours: object points inside the hand's shapes, the other way round than E_hop: catches corners."""
    friction: float = 0.0
    """Ours: how far the line through opposed contacts leaves their friction cones (1 - cosine)."""
    mu: float = 1.0
    """Friction coefficient of that term."""
    turning: float = 1.0
    """How much of the way normals turn enters the gradient of E_fc: 1 is exact. The public code has none of
    it (0), and needs that: one grasp at a fold of the distance field, where normals turn at once, would
    otherwise set the step of its whole batch."""


PAPER = Weights()
"""As the paper runs it."""
