"""MultiGrasp: a hand grasps a whole cluster of objects at once (Li et al., Grasp Multiple Objects with One
Hand), the simultaneous baseline that the SeqGrasp paper compares with (its section VII).

1. Lay a cluster of the objects on a table for every grasp (clusters.py).
2. Start with the open hand 0.3 m away on the upper hemisphere, palm towards the cluster.
3. Move the hand, all joints, until three of its contact candidates hold each object (langevin.py).
4. Measure the result on exact meshes, and add pre-grasp and squeeze.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from fistful.errors import PlanError
from fistful.geometry.mesh_distance import MeshDistance
from fistful.geometry.pose import apply, frames_along
from fistful.hands.facing import palm_facing
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.synthesis.clusters import Clusters, overlaps, sample_clusters
from fistful.synthesis.compiling import compile_kernels
from fistful.synthesis.core import Core
from fistful.synthesis.langevin import BATCH, ClusterEnergy, Langevin, cluster_cores, optimise
from fistful.synthesis.measure import Tolerance, measure
from fistful.synthesis.sequence import cores as all_cores
from fistful.synthesis.stage import contact_points, inverse_pose, packed, unpacked
from fistful.synthesis.tables import SKIN_POINTS, HandTables
from fistful.synthesis.targets import joint_targets
from fistful.synthesis.task import Solution

CONTACTS = 3
"""Contacts that hold each object."""
STREAM = 4
"""First number of every seed here; see target.PAIRS_STREAM."""


@dataclass(frozen=True, kw_only=True)
class MultiGrasp:
    """Settings."""

    langevin: Langevin = field(default_factory=Langevin)
    """Of the optimiser."""
    square_m: float = 0.075
    """Side of the square that up to three objects are thrown into; more get one twice as wide. Where they do
    not fit, it is widened; see `MultiGrasps.square_m`."""
    distance_m: float = 0.3
    """Distance of the hand from the cluster at the start."""
    spread: float = 0.1
    """Standard deviation of the joints around the open pose, as a part of their range."""
    skin_points: int = SKIN_POINTS
    """Points on the hand that are kept out of the objects."""

    def check(self) -> None:
        """Raise PlanError for a value that makes no sense."""
        self.langevin.check()
        if not (self.square_m > 0 and self.distance_m > 0 and self.spread >= 0):
            raise PlanError(
                f"square_m = {self.square_m}, distance_m = {self.distance_m}, spread = {self.spread}: "
                "lengths are above 0, and the spread is not negative"
            )
        if self.skin_points < 1:
            raise PlanError(f"skin_points = {self.skin_points}: use at least one")


@dataclass(frozen=True, kw_only=True, eq=False)
class MultiGrasps:
    """N simultaneous grasps of n objects, 3 contacts each; H is the hand base, W the table of the cluster.

    Attributes:
      p_WH, R_WH: (N, 3), (N, 3, 3) float. Pose of the hand base, m.
      p_WO, R_WO: (N, n, 3), (N, n, 3, 3) float. The cluster of each grasp, m; z = 0 is the table.
      p_HO, R_HO: (N, n, 3), (N, n, 3, 3) float. The objects in the hand base frame.
      q: (N, K) float. Joints at the grasp, within their limits.
      pre_grasp, squeeze: (N, K) float. Joint targets before and after it.
      joint_mask: (N, K) bool. Joints that may move: all.
      contact_body: (N, n, 3) int. Bodies of the contacts.
      contact_p_B: (N, n, 3, 3) float, m. Contact points on the hand, in the frames of their bodies.
      contact_n_O: (N, n, 3, 3) float. Outward unit normals of the object there, in its frame.
      energy: (N,) float. What was minimised, weighted and summed over the objects.
      terms: (N, n, 9) float. Unweighted terms for each object, in the order of weights.TERMS; those of the
        hand alone, hsp and joint, are the same for all objects and count once.
      penetration_mm: (N,) float. Deepest overlap of the hand with any object, exact.
      self_penetration_mm: (N,) float. Deepest overlap of the hand with itself.
      object_penetration_mm: (N,) float. Deepest overlap of any two objects.
      contact_distance_mm: (N, n, 3) float. Distances of the contact points to their objects, not negative.
      square_m: (N,) float. Side of the square that the objects were thrown into.
    """

    p_WH: np.ndarray
    R_WH: np.ndarray
    p_WO: np.ndarray
    R_WO: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray
    q: np.ndarray
    pre_grasp: np.ndarray
    squeeze: np.ndarray
    joint_mask: np.ndarray
    contact_body: np.ndarray
    contact_p_B: np.ndarray
    contact_n_O: np.ndarray
    energy: np.ndarray
    terms: np.ndarray
    penetration_mm: np.ndarray
    self_penetration_mm: np.ndarray
    object_penetration_mm: np.ndarray
    contact_distance_mm: np.ndarray
    square_m: np.ndarray

    def __len__(self) -> int:
        return len(self.q)

    def take(self, index: np.ndarray) -> "MultiGrasps":
        """The grasps of an index array or mask."""
        return MultiGrasps(**{f.name: getattr(self, f.name)[index] for f in fields(self)})

    @staticmethod
    def join(parts: "Sequence[MultiGrasps]") -> "MultiGrasps":
        """All grasps of several batches, in order."""
        columns = {f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(MultiGrasps)}
        return MultiGrasps(**columns)

    def within(self, tolerance: Tolerance | None = None) -> np.ndarray:
        """Whether contacts and overlaps of each grasp are within a tolerance, (N,) bool; no angles."""
        t = tolerance or Tolerance()
        overlap = (self.penetration_mm, self.self_penetration_mm, self.object_penetration_mm)
        near = np.all(self.contact_distance_mm <= t.contact_mm, axis=(1, 2))
        return near & np.all([o < t.penetration_mm for o in overlap], axis=0)


def multigrasp(
    hand: Hand,
    objects: Sequence[Object],
    *,
    count: int = 256,
    seed: int = 0,
    settings: MultiGrasp | None = None,
    threads: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> MultiGrasps:
    """Grasps of all objects at once, each of a cluster of its own. Deterministic for a seed.

    Args:
      hand: Hand.
      objects: The objects of the cluster; the paper has one to four.
      count: Number of grasps.
      seed: From 0 to 2^31 - 1.
      settings: Settings.
      threads: Threads that share the work, default all cores; they do not change the result.
      progress: Called with a line now and then.

    Raises:
      PlanError: Something given makes no sense, or the objects do not fit beside each other.
    """
    s = settings or MultiGrasp()
    s.check()
    objects = tuple(objects)
    if not objects:
        raise PlanError("multigrasp needs at least one object to grasp")
    if count < 1:
        raise PlanError(f"count = {count}: plan at least one grasp")
    if not 0 <= seed < 2**31:
        raise PlanError(f"seed = {seed}: take one from 0 to {2**31 - 1}")
    if threads is not None and threads < 1:
        raise PlanError(f"threads = {threads}: at least one has to do the work")
    threads = threads or all_cores()
    compile_kernels("paper")
    tables = HandTables.of(hand, (), s.skin_points)
    cores = cluster_cores(tables, objects, CONTACTS)
    parts = []
    for start in range(0, count, BATCH):
        size = min(BATCH, count - start)
        rng = np.random.default_rng([STREAM, seed, start])
        progress(f"grasps {start + 1:,} to {start + size:,}: clusters of {len(objects)}")
        half = s.square_m / 2 * (1 if len(objects) <= 3 else 2)
        clusters = sample_clusters(objects, size, half, rng)
        x = starts(hand, objects, clusters, rng, s)
        contact = rng.integers(len(tables.candidate_body), size=(size, len(objects), CONTACTS))
        steps = s.langevin.steps + s.langevin.refine_steps
        progress(f"grasps {start + 1:,} to {start + size:,}: {steps:,} steps")
        found = optimise(
            cores,
            clusters,
            x,
            contact,
            seed=int(rng.integers(2**31)),
            settings=s.langevin,
            threads=threads,
        )
        parts.append(_complete(hand, objects, cores, clusters, found, s, threads))
    return MultiGrasps.join(parts)


def starts(
    hand: Hand, objects: Sequence[Object], clusters: Clusters, rng: np.random.Generator, s: MultiGrasp
) -> np.ndarray:
    """States (N, 9 + K) on the upper hemisphere around each cluster, palm towards its middle, spun at random.

    The middle of a cluster is the mean of its objects' centres of mass.
    """
    count, model = len(clusters), hand.model
    com_O = np.array([item.mass_properties.com_O for item in objects])
    middle = np.mean(clusters.p_WO + apply(clusters.R_WO, com_O), axis=1)
    up, around = rng.uniform(0, 1, count), rng.uniform(0, 2 * np.pi, count)
    level = np.sqrt(1 - up**2)
    z_W = -np.stack([level * np.cos(around), level * np.sin(around), up], axis=1)
    z_H, centre_H = palm_facing(hand)
    spin = rng.uniform(0, 2 * np.pi, count)
    R_WH = frames_along(z_W, spin) @ frames_along(z_H[None])[0].T
    p_WH = middle - s.distance_m * z_W - apply(R_WH, centre_H)
    sigma = s.spread * (model.upper - model.lower)
    drawn = model.open_pose + sigma * np.clip(rng.standard_normal((count, len(hand.joints))), -2, 2)
    return packed(p_WH, R_WH, np.clip(drawn, model.lower, model.upper))


def _complete(
    hand: Hand,
    objects: tuple[Object, ...],
    cores: tuple[Core, ...],
    clusters: Clusters,
    found: Solution,
    s: MultiGrasp,
    threads: int,
) -> MultiGrasps:
    """The found states as grasps: measured, with joint targets and energies."""
    N, n, tables = len(clusters), len(objects), cores[0].tables
    p_WH, R_WH, q = unpacked(found.x)
    q = np.clip(q, hand.model.lower, hand.model.upper)
    contact = found.contact.reshape(N, n, CONTACTS)
    energy = ClusterEnergy(cores, clusters, s.langevin.weights)
    energy.write(packed(p_WH, R_WH, q), contact)
    total, _, terms = energy.evaluate()

    R_HW = np.swapaxes(R_WH, 1, 2)[:, None]
    p_HO = apply(R_HW, clusters.p_WO - p_WH[:, None])
    R_HO = R_HW @ clusters.R_WO
    body, p_B = tables.candidate_body[contact], tables.candidate_p_B[contact]
    x_H = contact_points(hand, q, body.reshape(N, -1), p_B.reshape(N, -1, 3)).reshape(N, n, CONTACTS, 3)
    x_O = apply(np.swapaxes(R_HO, 2, 3)[:, :, None], x_H - p_HO[:, :, None])
    distance, n_O = np.zeros((N, n, CONTACTS)), np.zeros((N, n, CONTACTS, 3))
    for k, item in enumerate(objects):
        exact = MeshDistance(item.vertices, item.faces).query(x_O[:, k].reshape(-1, 3))
        distance[:, k] = np.abs(exact.values).reshape(N, CONTACTS)
        n_O[:, k] = exact.gradients.reshape(N, CONTACTS, 3)
    pre_grasp, squeeze = _targets(hand, q, body, p_B, apply(R_HO[:, :, None], n_O))

    # Of the last object as the target, the others held; contacts were measured above, any two do here.
    p_OH, R_OH = inverse_pose(p_HO[:, -1], R_HO[:, -1])
    held = p_HO[:, :-1], R_HO[:, :-1]
    pair = body[:, -1, :2], p_B[:, -1, :2]
    measures = measure(hand, objects, p_OH, R_OH, q, *pair, *held, threads=threads)
    return MultiGrasps(
        p_WH=p_WH,
        R_WH=R_WH,
        p_WO=clusters.p_WO,
        R_WO=clusters.R_WO,
        p_HO=p_HO,
        R_HO=R_HO,
        q=q,
        pre_grasp=pre_grasp,
        squeeze=squeeze,
        joint_mask=np.ones(q.shape, dtype=bool),
        contact_body=body,
        contact_p_B=p_B,
        contact_n_O=n_O,
        energy=total,
        terms=terms,
        penetration_mm=measures.penetration_mm,
        self_penetration_mm=measures.self_penetration_mm,
        object_penetration_mm=1e3 * overlaps(objects, p_HO, R_HO),
        contact_distance_mm=1e3 * distance,
        square_m=2 * clusters.half_m,
    )


def _targets(
    hand: Hand, q: np.ndarray, body: np.ndarray, p_B: np.ndarray, n_H: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pre-grasp and squeeze (N, K) that press the contacts of all objects inward.

    Finger by finger: joints that move no common body are solved apart, so that a finger whose contacts
    contradict each other, as between two objects, does not keep the others from pressing.
    """
    N, K = q.shape
    tree, drives = hand.model.tree, hand.model.coupling != 0
    moved = np.zeros((len(tree.parent), K), dtype=bool)
    for b, parent in enumerate(tree.parent):
        moved[b] = drives[tree.joint_body == b].any(axis=0) | (parent >= 0 and moved[parent])
    body, p_B, n_H = body.reshape(N, -1), p_B.reshape(N, -1, 3), n_H.reshape(N, -1, 3)
    same, none = np.tile(np.eye(3), (N, 1, 1)), np.zeros((N, 3))
    pre_grasp, squeeze = q.copy(), q.copy()
    for finger in _independent(moved):
        # What other fingers touch is as good as on the palm, which does not move.
        own = np.where(moved[body][..., finger].any(axis=2), body, 0)
        aims = joint_targets(hand, none, same, q, np.tile(finger, (N, 1)), own, p_B, n_H)
        pre_grasp[:, finger], squeeze[:, finger] = aims.pre_grasp[:, finger], aims.squeeze[:, finger]
    return pre_grasp, squeeze


def _independent(moved: np.ndarray) -> list[np.ndarray]:
    """Masks (K,) of groups of joints that move no common body, given which body (B, K) each moves."""
    together = (moved.T.astype(int) @ moved.astype(int)) > 0
    for _ in range(len(together)):
        together = (together.astype(int) @ together.astype(int)) > 0
    return [mask for mask in np.unique(together, axis=0) if mask.any()]
