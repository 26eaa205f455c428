"""Everything that decides what a plan is, besides hand and objects."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from fistful.errors import PlanError
from fistful.synthesis.fast import Fast
from fistful.synthesis.paper import Paper

Method = Literal["fast", "paper"]
Parents = Literal["good", "all"]
MAX_STEPS = 32767
"""Of the paper's chain: a grasp's stream of random numbers is that long."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the planner."""

    count: int = 256
    """Grasps a stage."""
    method: Method = "fast"
    """fast: antipodal starts and Levenberg-Marquardt. paper: 6000 steps of MALA."""
    seed: int = 0
    """Same seed, same plan."""
    pairs: int = 1
    """Opposed pairs of contacts that hold each object: 1 as in the paper; 2 uses three or more links."""
    rounds: int = 4
    """fast: how often what is not good is planned anew, with another opposition space and another parent."""
    uniform: bool = False
    """Choose opposition spaces uniformly, as the paper does, not by what earlier rounds achieved."""
    parents: Parents = "good"
    """Which grasps of a stage the next one continues; all of them if none is good."""
    spread: float = 0.1
    """Standard deviation around the open pose, as a part of their range, of the joints that a first stage
    does not use; 0 leaves them at the open pose."""
    skin_points: int = 3000
    """Points on the hand that are kept out of objects."""
    object_points: int = 2048
    """Points on each object that are kept out of the hand and of other objects."""
    fast: Fast = field(default_factory=Fast)
    """Of the fast method."""
    paper: Paper = field(default_factory=Paper)
    """Of the paper's method."""

    def check(self) -> None:
        """Raise PlanError for a value that makes no sense."""
        if self.count < 1:
            raise PlanError(f"count = {self.count}: plan at least one grasp a stage")
        if self.pairs < 1:
            raise PlanError(f"pairs = {self.pairs}: an object is held by at least one opposed pair")
        if self.rounds < 1:
            raise PlanError(f"rounds = {self.rounds}: at least one is needed")
        for name in ("tries", "steps", "pick_every", "lives"):
            if getattr(self.fast, name) < 1:
                raise PlanError(f"fast.{name} = {getattr(self.fast, name)}: at least one is needed")
        if self.skin_points < 1 or self.object_points < 1:
            raise PlanError(
                f"skin_points = {self.skin_points}, object_points = {self.object_points}: use at least one"
            )
        if not 0 <= self.spread <= 1:
            raise PlanError(f"spread = {self.spread}: a part of the joints' range, from 0 to 1")
        if not 0 <= self.paper.steps <= MAX_STEPS:
            raise PlanError(f"paper.steps = {self.paper.steps}: take from 0 to {MAX_STEPS}")
        if not (self.paper.weights.hop > 0 and self.paper.weights.hop_end > 0):
            raise PlanError("paper.weights.hop and hop_end grow exponentially, so they are above 0")
        if self.method not in get_args(Method):
            raise PlanError(f"method = {self.method!r}; it is one of {', '.join(get_args(Method))}")
        if not 0 <= self.seed < 2**31:
            raise PlanError(f"seed = {self.seed}: take one from 0 to {2**31 - 1}")
