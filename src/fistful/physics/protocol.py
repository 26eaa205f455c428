"""Protocols: what a grasp has to stand, as frozen, named records that are stored with every verdict.

A success rate without its protocol means nothing: friction 2.0 with a contact test is lenient, no squeeze is
harsh. So everything that decides a verdict is here, and nothing else does.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from fistful.errors import PhysicsError

Test = Literal["pushes", "shake"]


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A test of grasps, in SI units.

    1. Objects float at their poses in the hand; there is no gravity yet. The joints of the grasp start at the
       grasp or the pre-grasp, those that hold something already press as they did.
    2. Targets go from there to the squeeze in `close_s`, by way of the grasp, then rest for `settle_s`.
    3. Pushes: from that state, each of six accelerations along the axes of the hand acts on all objects.
       Shake: the hand turns palm down under gravity, moves left and right, and turns its wrist.
    4. Every object must be in contact with the hand at the end, and have moved no farther than allowed.
    """

    name: str
    summary: str
    density: float | None = 500.0
    """kg/m3; None if all objects have the same `mass`."""
    mass: float | None = None
    """kg of every object, instead of a density."""
    friction: float
    """Coulomb coefficient of all contacts."""
    torsion: float
    """m. Torsional friction: the radius of the patch that resists twisting."""
    objects_collide: bool = True
    """Whether objects feel each other. The public code of SeqGrasp switched that off."""
    stiffness: float = 5.0
    """N m/rad of all joints (a slide counts as a hinge with a lever of 50 mm)."""
    joint_damping: float = 0.1
    """N m s/rad, at least."""
    step_s: float
    """s. One step of the protocol."""
    substeps: int
    """Steps of the simulator in one of the protocol."""
    integrator: Literal["implicitfast", "discrete"]
    impratio: float = 100.0
    """How much stiffer friction is than the contact normal; low values creep."""
    noslip_iterations: int = 0
    solref: tuple[float, float] = (0.004, 1.0)
    """s, damping ratio of contacts."""
    solimp: tuple[float, float, float, float, float] = (0.95, 0.99, 0.001, 0.5, 2.0)
    start: Literal["grasp", "pre-grasp"]
    """Where the joints of the grasp begin."""
    close_s: float
    reach: float = 3.0
    """If an object is not touched by then, its targets go on the same way, up to this many times as far."""
    settle_s: float
    test: Test = "pushes"
    acceleration: float = 9.8
    """m/s2 of the pushes, or of gravity."""
    steps: int
    """Steps of the protocol for each push, or for the whole shake."""
    contact_mm: float = 2.0
    """Nearer than this is in contact."""
    max_drift_mm: float | None = None
    """Farther than this from where it settled, an object is lost; None: only contact counts."""
    max_turn_deg: float | None = None
    max_penetration_mm: float = 10.0
    """Of the grasp as it was generated: hand in object or object in object, on exact meshes."""

    max_stand_in_mm: float = 5.0
    """The hand may be this much deeper in the convex parts of an object than in its mesh; if it is
    deeper, the parts fill space that the mesh leaves free (the hole of
    a ring), and the grasp is not judged by them."""

    def to_dict(self) -> dict[str, Any]:
        """All settings as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "Protocol":
        """The inverse of `to_dict`."""
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
        return cls(**values)


PAPER = Protocol(
    name="paper",
    summary="SeqGrasp: friction 2, 9.8 m/s2 in six directions, 100 steps of 1/60 s, contact left",
    friction=2.0,
    torsion=0.005,
    step_s=1 / 60,
    substeps=2,
    integrator="discrete",
    start="grasp",
    close_s=0.2,
    settle_s=0.2,
    steps=100,
)
PAPER_GHOSTS = replace(
    PAPER,
    name="paper-ghosts",
    summary="paper, but objects pass through each other, as in the public code; for comparison only",
    objects_collide=False,
)
STRICT = Protocol(
    name="strict",
    summary="DexGraspBench: friction 0.6, 0.1 kg, pre-grasp to squeeze, six pushes of 2 s, 5 cm and 15 deg",
    density=None,
    mass=0.1,
    friction=0.6,
    torsion=0.02,
    step_s=0.02,
    substeps=5,
    integrator="implicitfast",
    impratio=10.0,
    noslip_iterations=2,
    start="pre-grasp",
    close_s=0.4,
    settle_s=0.2,
    acceleration=10.0,
    steps=100,
    max_drift_mm=50.0,
    max_turn_deg=15.0,
)
SHAKE = Protocol(
    name="shake",
    summary="SeqGrasp, Fig. 6: palm down under gravity, left and right, then the wrist turns by +-90 deg",
    friction=1.0,
    torsion=0.005,
    step_s=1 / 60,
    substeps=2,
    integrator="discrete",
    start="grasp",
    close_s=0.2,
    settle_s=0.2,
    test="shake",
    acceleration=9.81,
    steps=360,
)
PROTOCOLS: dict[str, Protocol] = {p.name: p for p in (PAPER, PAPER_GHOSTS, STRICT, SHAKE)}


def protocol_names() -> Sequence[str]:
    """Names of the protocols."""
    return tuple(PROTOCOLS)


def find_protocol(name: str) -> Protocol:
    """A protocol by name; PhysicsError that lists them if there is none."""
    if name not in PROTOCOLS:
        raise PhysicsError(f"no protocol called {name!r}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
