"""Where a grasp starts: inputs checked, the object on the plane, the jaws open around it."""

from dataclasses import dataclass

import numpy as np

from fistful.errors import JawsError
from fistful.jaws.contact import barrier_slope, barrier_stiffness
from fistful.jaws.contact_mesh import contact_mesh
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.pad_mesh import PadMesh, contains, mesh_pad
from fistful.jaws.perturbation import LEVER
from fistful.jaws.simulation import GRAVITY, RIGID, Hinge, Settings, Solid, World

# Pa. From jelly to diamond; anything else is a slip of units.
_MODULI = (1e3, 1e12)
# m. Sides and thickness of pads; anything else is a slip of units.
_SIDES, _THICKNESSES = (1e-3, 0.5), (2e-4, 0.1)
# Of dhat: jaws that start closer to the object than this touch it.
_LEAST_GAP = 0.1


class BlockedError(JawsError):
    """The open jaws do not fit around the object, or not above the plane.

    `narrow` says that the object itself fits between them: jaws opened a little farther would be free.
    """

    def __init__(self, message: str, *, narrow: bool = False):
        super().__init__(message)
        self.narrow = narrow


@dataclass(frozen=True, kw_only=True, eq=False)
class Start:
    """A world ready to close the jaws."""

    world: World
    inward: np.ndarray
    """(2, 3) float64. Closing direction of each jaw."""
    p_OC: np.ndarray
    """(3,) float64, m. Centre of mass in the object frame."""
    p_WC: np.ndarray
    """(3,) float64, m. In the world, at the start."""
    R_WO: np.ndarray
    """(3, 3) float64. At the start."""
    notes: tuple[str, ...]


def check_gripper(gripper: Gripper) -> None:
    """Raise JawsError if a number of the gripper can not be meant. No I/O."""
    pad = gripper.pad
    low, high = _MODULI
    if not low <= pad.youngs_modulus <= high:
        raise JawsError(
            f"Young's modulus {pad.youngs_modulus:g} Pa lies outside {low:g} .. {high:g}; silicone has about "
            "1e6 (the paper's scaled 1e8)"
        )
    if not 0 <= pad.poissons_ratio <= 0.495:
        raise JawsError(f"Poisson's ratio {pad.poissons_ratio:g} lies outside 0 .. 0.495; rubber: use 0.45")
    length = () if gripper.jaw_length is None else (("length of the jaws (m)", gripper.jaw_length),)
    for name, value in (
        *length,
        ("density of the pads (kg/m3)", pad.density),
        ("opening (m)", gripper.opening),
        ("closing force (N)", gripper.closing_force),
        ("stop energy (J)", gripper.stop_energy),
        ("closing speed (m/s)", gripper.closing_speed),
        ("lifting speed (m/s)", gripper.lifting_speed),
        ("stiffness of the jaws (N/m)", gripper.stiffness),
    ):
        if not (np.isfinite(value) and value > 0):
            raise JawsError(f"the {name} must be a positive number, not {value}")
    for name, value, (least, most) in (
        *(("side of the pads", side, _SIDES) for side in np.ptp(pad.outline, axis=0)),
        ("thickness of the pads", pad.thickness, _THICKNESSES),
    ):
        if not least <= value <= most:
            raise JawsError(
                f"the {name}, {1e3 * value:g} mm, lies outside {1e3 * least:g} .. {1e3 * most:g} mm"
            )
    for name, value, known in (
        ("stop", gripper.stop, ("force", "energy")),
        ("hold", gripper.hold, ("distance", "force")),
    ):
        if value not in known:
            raise JawsError(f"{name} is {value!r}; choose {known[0]!r} or {known[1]!r}")
    for name, value in (("friction", gripper.friction), ("ground friction", gripper.ground_friction)):
        if not 0 <= value <= 10:
            raise JawsError(f"the coefficient of {name} {value} lies outside 0 .. 10")


def rest_height(heights: np.ndarray, weight: float, dhat: float) -> float:
    """By how much (m) a body on the plane is raised so that the barrier carries its weight (N).

    Args:
      heights: (V,) float, m. Of its vertices, the lowest at 0.
      weight: N.
      dhat: Of the barrier, m.
    """
    from scipy.optimize import brentq

    low = heights[heights < dhat]
    stiffness = barrier_stiffness(dhat)

    def surplus(gap: float) -> float:
        d = low + gap
        return -stiffness * float(barrier_slope(d[d < dhat], dhat).sum()) - weight

    if surplus(dhat * (1 - 1e-9)) > 0:
        return dhat
    return float(brentq(surplus, 1e-6 * dhat, dhat * (1 - 1e-9)))  # type: ignore[arg-type]


def make_start(resting: Resting, grasp: JawGrasp, gripper: Gripper, settings: Settings) -> Start:
    """The world with open jaws around the resting object.

    Raises:
      BlockedError: The open jaws do not fit.
      JawsError: A number or the mesh can not be used.
    """
    check_gripper(gripper)
    R = np.asarray(grasp.R_WG, float)
    p = np.asarray(grasp.p_WG, float)
    if not (np.isfinite(R).all() and np.isfinite(p).all()):
        raise JawsError("the pose of the grasp has numbers that are not finite")
    if R.shape != (3, 3) or not np.allclose(R.T @ R, np.eye(3), atol=1e-5) or np.linalg.det(R) < 0:
        raise JawsError("R_WG of the grasp is no rotation; its columns are closing axis, across and approach")
    if not (np.isfinite(resting.mass) and resting.mass > 0):
        raise JawsError(f"the object's mass must be a positive number of kg, not {resting.mass}")
    surface = contact_mesh(resting.item, settings.max_faces)
    notes = surface.notes
    arms = surface.vertices @ resting.R_WO.T
    lowest = float((arms + resting.p_WO)[:, 2].min())
    if abs(lowest) > 2e-3:
        notes = (*notes, f"the object's lowest point was {1e3 * lowest:.1f} mm above the plane; put on it")
    rise = rest_height(arms[:, 2] - arms[:, 2].min(), resting.mass * GRAVITY, settings.dhat) - lowest
    up = np.array([0.0, 0.0, rise])
    props = resting.item.mass_properties
    solid = Solid(
        vertices_W=arms + resting.p_WO + up,
        faces=surface.faces,
        com_W=resting.com_W + up,
        mass=resting.mass,
        inertia_W=resting.R_WO @ props.inertia_O @ resting.R_WO.T * (resting.mass / props.mass),
        volume=props.volume_m3,
    )
    mesh = mesh_pad(gripper.pad.outline, gripper.pad.thickness, settings.pad_size, settings.pad_layers)
    half = gripper.opening / 2
    meshes = tuple(
        PadMesh(
            nodes=(m.nodes + np.array([offset, 0, 0])) @ R.T + p,
            tets=m.tets,
            faces=m.faces,
            backing=m.backing,
        )
        for m, offset in ((mesh, -half), (mesh.mirrored(), half))
    )
    if (p - LEVER * R[:, 2])[2] < 0:
        raise BlockedError(
            "the gripper would come from under the plane; turn the grasp to approach from above"
        )
    below = min(float(m.nodes[:, 2].min()) for m in meshes)
    if below <= settings.dhat:
        raise BlockedError(
            f"the pads reach {-1e3 * below:.2f} mm below the plane; raise the grasp by more than that"
        )
    inward = np.stack([R[:, 0], -R[:, 0]])
    hinge = None
    if gripper.jaw_length is not None:
        # The end of a loaded cantilever moves by s and turns by 3 s / (2 L): as about a hinge 2 L / 3 away.
        reach = 2 / 3 * gripper.jaw_length
        levers = np.stack([(m.nodes - p) @ R[:, 2] + reach for m in meshes])
        hinge = Hinge(levers, gripper.stiffness * reach**2)
    world = World(
        solid,
        (meshes[0], meshes[1]),
        gripper.pad,
        inward,
        settings,
        friction=gripper.friction,
        ground_friction=gripper.ground_friction,
        stiffness=gripper.stiffness if hinge is None else RIGID,
        hinge=hinge,
    )
    _check_free(world, solid, R, p, gripper)
    return Start(
        world=world,
        inward=inward,
        p_OC=props.com_O,
        p_WC=solid.com_W,
        R_WO=np.asarray(resting.R_WO, float),
        notes=notes,
    )


def _check_free(world: World, solid: Solid, R: np.ndarray, p: np.ndarray, gripper: Gripper) -> None:
    """Raise BlockedError if an open pad touches the object or lies inside it."""
    from fistful.geometry.mesh_distance import signed_distance

    x = world.x
    inside = signed_distance(solid.vertices_W, solid.faces, x[world.surfaces.part < 2]).values < 0
    world.contact.cover(x, np.zeros_like(x))
    world.contact.find(x)
    if not (
        inside.any() or world.contact.intersects(x) or world.contact.gap(x) < _LEAST_GAP * world.settings.dhat
    ):
        return
    local = (solid.vertices_W - p) @ R
    corners = local[solid.faces].reshape(-1, 3)
    near = contains(gripper.pad.outline, corners[:, 1:])
    along = corners[near, 0] if near.any() else local[:, 0]
    width = float(np.ptp(along))
    if width > gripper.opening:
        raise BlockedError(
            f"the object is {1e3 * width:.1f} mm wide between the pads, the gripper opens to "
            f"{1e3 * gripper.opening:.1f} mm; choose another closing axis or a larger opening"
        )
    raise BlockedError(
        f"the grasp starts with a pad inside the object (opening {1e3 * gripper.opening:.1f} mm); shift it "
        "along its closing axis so that both open pads are free",
        narrow=True,
    )
