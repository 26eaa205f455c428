"""A hand: mechanics and meaning together, with every name resolved to arrays."""

from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from fistful.errors import HandError
from fistful.hands.description import Description
from fistful.hands.kinematics import BodyPoses
from fistful.hands.model import Model, lock
from fistful.hands.skin import SKIN_VERSION, Skin, contact_candidates, sample_skin
from fistful.storage import content_key


@dataclass(frozen=True, kw_only=True, eq=False)
class Finger:
    """A finger: its name, its bodies from base to tip, and the mask (K,) of the joints that move them."""

    name: str
    bodies: tuple[int, ...]
    joint_mask: np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class Surface:
    """A contact surface and its candidates."""

    name: str
    candidates: Skin


@dataclass(frozen=True, kw_only=True, eq=False)
class OppositionSpace:
    """Two surfaces that can hold an object between them (SeqGrasp section IV-A).

    Attributes:
      name: For instance "index-palm".
      surfaces: The two surfaces; their candidates are S_i of the paper.
      joint_mask: (K,) bool. J_i of the paper.
      span_mm: Diameters of the smallest and largest ball it was shown to hold; None if that was not tried.
    """

    name: str
    surfaces: tuple[Surface, Surface]
    joint_mask: np.ndarray
    span_mm: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Hand:
    """A hand ready to plan with.

    Attributes:
      name: Short name.
      summary: One line.
      model: Mechanics; see Model for joints, limits, shapes.
      description: What it was resolved from.
      skin: Dense points on the outside.
      fingers: Fingers.
      surfaces: Contact surfaces.
      opposition_spaces: Opposition spaces.
      notes: What an importer changed or assumed; empty for built-in hands.
    """

    name: str
    summary: str
    model: Model
    description: Description
    skin: Skin
    fingers: tuple[Finger, ...]
    surfaces: tuple[Surface, ...]
    opposition_spaces: tuple[OppositionSpace, ...]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = f"{len(self.joints)} joints, {len(self.opposition_spaces)} opposition spaces"
        return f"Hand({self.name!r}, {counts})"

    @cached_property
    def key(self) -> str:
        """The sha256 of all that the hand was made from: same key, same hand."""
        return content_key(self.model.mjcf, asdict(self.description), SKIN_VERSION)

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the K independent joints, the order of every joint vector."""
        return self.model.joints

    def poses(self, q: np.ndarray) -> BodyPoses:
        """Poses of all bodies for joint vectors (..., K)."""
        return self.model.poses(q)

    def space(self, name: str) -> OppositionSpace:
        """The opposition space of that name."""
        for space in self.opposition_spaces:
            if space.name == name:
                return space
        known = ", ".join(space.name for space in self.opposition_spaces)
        raise HandError(f"{self.name} has no opposition space {name!r}; it has {known}")


def resolve_hand(model: Model, description: Description, notes: tuple[str, ...] = ()) -> Hand:
    """The hand of a model and a description whose names must fit together. No I/O."""
    skin = sample_skin(model)
    surfaces: dict[str, Surface] = {}
    for entry in description.surfaces:
        if entry.name in surfaces:
            raise HandError(f"surface {entry.name!r} is described twice")
        candidates = contact_candidates(model, skin, entry.patches)
        if not len(candidates.body):
            raise HandError(
                f"surface {entry.name!r} of {description.name!r} is empty: no skin faces its patches' "
                "directions; widen cone_deg or turn the direction"
            )
        surfaces[entry.name] = Surface(name=entry.name, candidates=candidates)
    spaces = []
    for entry in description.opposition_spaces:
        missing = [s for s in entry.surfaces if s not in surfaces]
        if missing:
            known = ", ".join(surfaces)
            raise HandError(f"space {entry.name!r} names surface {missing[0]!r}; there are {known}")
        mask = joint_mask(model, entry.joints, f"space {entry.name!r}")
        pair = (surfaces[entry.surfaces[0]], surfaces[entry.surfaces[1]])
        spaces.append(OppositionSpace(name=entry.name, surfaces=pair, joint_mask=mask, span_mm=entry.span_mm))
    names = [space.name for space in spaces]
    if len(set(names)) != len(names):
        raise HandError(
            f"two opposition spaces of {description.name!r} have the same name: {', '.join(names)}"
        )
    hand = Hand(
        name=description.name,
        summary=description.summary,
        model=model,
        description=description,
        skin=skin,
        fingers=tuple(_finger(model, name, body) for name, body in description.fingers),
        surfaces=tuple(surfaces.values()),
        opposition_spaces=tuple(spaces),
        notes=notes,
    )
    return lock(hand)


def joint_mask(model: Model, names: tuple[str, ...], where: str) -> np.ndarray:
    """Mask (K,) of the independent joints that are named, or that drive a named coupled joint."""
    unknown = [name for name in names if name not in model.all_joints]
    if unknown or not names:
        what = f"names joint {unknown[0]!r}" if unknown else "names no joint"
        raise HandError(f"{where} {what}; the hand has {', '.join(model.all_joints)}")
    return np.any(model.coupling[np.isin(model.all_joints, names)] != 0, axis=0)


def _finger(model: Model, name: str, first: str) -> Finger:
    if first not in model.bodies[1:]:
        raise HandError(
            f"finger {name!r} starts at body {first!r}; the model has {', '.join(model.bodies[1:])}"
        )
    bodies = [model.bodies.index(first)]
    for b in range(bodies[0] + 1, len(model.bodies)):
        if model.tree.parent[b] in bodies:
            bodies.append(b)
    return Finger(
        name=name, bodies=tuple(bodies), joint_mask=np.any([moving_joints(model, b) for b in bodies], axis=0)
    )


def moving_joints(model: Model, body: int) -> np.ndarray:
    """Mask (K,) of the independent joints that move a body."""
    chain = []
    while body >= 0:
        chain.append(body)
        body = int(model.tree.parent[body])
    on_chain = np.isin(model.tree.joint_body, chain)
    return np.any(model.coupling[on_chain] != 0, axis=0)
