"""Trials: grasps simulated under a protocol, all at once, with the same bits on any number of threads."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import mujoco
import numpy as np
from mujoco.batch import Batch, SimulationError

from fistful.geometry.pose import apply
from fistful.hands.facing import palm_axes
from fistful.physics.protocol import Protocol
from fistful.physics.scene import Scene
from fistful.physics.shake import inertial_wrench, motion
from fistful.physics.verdict import DIRECTION_NAMES, DIRECTIONS, Reason, Verdicts

CHECKS = 5
"""How often drift is looked at in each test, and what is lost taken out."""
SHAKE_CHECKS = 24
GONE = 0.5
"""m. An object that has moved this far in the hand has left it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Attempts:
    """N grasps of n objects to be tried; H is the hand base.

    Attributes:
      q: (N, K) float. Joints at the grasp.
      pre_grasp, squeeze: (N, K) float. Joint targets before and after it. The targets of joints that hold
        something already are those that hold it, in both.
      moving: (N, K) bool. Joints that close on the last object.
      p_HO, R_HO: (N, n, 3), (N, n, 3, 3) float, m. Objects.
      penetration_mm: (N,) float. Deepest overlap, on exact meshes.
    """

    q: np.ndarray
    pre_grasp: np.ndarray
    squeeze: np.ndarray
    moving: np.ndarray
    p_HO: np.ndarray
    R_HO: np.ndarray
    penetration_mm: np.ndarray

    def __len__(self) -> int:
        return len(self.q)

    def take(self, index: np.ndarray) -> "Attempts":
        """The attempts of an index array or mask."""
        return Attempts(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def simulate(scene: Scene, protocol: Protocol, attempts: Attempts, *, threads: int = 0) -> Verdicts:
    """Close, settle, test. A grasp leaves the trial at its first failure.

    Args:
      scene: Hand and objects, compiled for the protocol.
      protocol: Protocol.
      attempts: Grasps.
      threads: Threads that share the work; 0 for all cores. They do not change the result.
    """
    return _Trial(scene, protocol, attempts, threads).run()


@dataclass(frozen=True, kw_only=True, eq=False)
class Film:
    """What one simulation looked like, step by step: closing, then each push from the settled state.

    Attributes:
      names: "close", then the directions of the pushes, or "shake".
      step_s: Time between two frames.
      joints: For each name, (T, J) float. All joints of the hand.
      p_HO, R_HO: For each name, (T, n, 3), (T, n, 3, 3) float. Objects in the hand base frame.
    """

    names: tuple[str, ...]
    step_s: float
    joints: tuple[np.ndarray, ...]
    p_HO: tuple[np.ndarray, ...]
    R_HO: tuple[np.ndarray, ...]


def film(scene: Scene, protocol: Protocol, attempt: Attempts) -> Film:
    """One grasp on its way through a protocol, as `simulate` sees it; every test, even after a failure.

    A simulation that breaks down, or in which an object leaves the hand, has fewer frames.
    """
    if len(attempt) != 1:
        raise ValueError(f"a film shows one grasp, not {len(attempt)}")
    trial = _Trial(scene, protocol, attempt, threads=1)
    trial.reel = []
    trial.show()
    shots = [np.array(frames)[:, 0] for frames in trial.reel]
    shots = [shot[np.isfinite(shot).all(axis=1)] for shot in shots]
    poses = [scene.poses(shot) for shot in shots]
    return Film(
        names=("close", *(DIRECTION_NAMES if protocol.test == "pushes" else ("shake",))),
        step_s=protocol.step_s,
        joints=tuple(shot[:, scene.joints] for shot in shots),
        p_HO=tuple(p for p, _ in poses),
        R_HO=tuple(R for _, R in poses),
    )


State = dict[str, np.ndarray]
"""What a simulation goes on from, by MuJoCo's names, one row a simulation."""


class _Trial:
    """Grasps on their way through a protocol."""

    def __init__(self, scene: Scene, protocol: Protocol, attempts: Attempts, threads: int):
        self.scene, self.protocol, self.attempts, self.threads = scene, protocol, attempts, threads
        N, n = attempts.p_HO.shape[:2]
        self.reason = np.full(N, Reason.HELD, int)
        self.culprit = np.full(N, -1)
        self.direction = np.full(N, -1)
        self.drift_mm, self.turn_deg = np.zeros((2, N, n))
        self.reel: list[list[np.ndarray]] | None = None
        """One list of states for each simulation, if somebody wants to see them."""

    def show(self) -> None:
        """All simulations of all grasps, whatever comes of them."""
        everyone = np.arange(len(self.attempts))
        settled = self._close(everyone)
        self.p_HO, self.R_HO = self.scene.poses(settled["qpos"])
        for direction in self._tests():
            self._try(everyone, settled, direction)

    def run(self) -> Verdicts:
        a = self.attempts
        self._fail(np.flatnonzero(~(a.penetration_mm <= self.protocol.max_penetration_mm)), Reason.DEEP)
        alive = self._alive()
        q, targets, p_HO, R_HO = a.q.copy(), a.squeeze.copy(), a.p_HO.copy(), a.R_HO.copy()
        settled = None
        if len(alive):
            settled = self._close(alive)
            q[alive], targets[alive] = settled["qpos"][:, self.scene.independent], settled["ctrl"]
            p_HO[alive], R_HO[alive] = self.scene.poses(settled["qpos"])
            broken = ~np.isfinite(q).all(axis=1) | ~np.isfinite(p_HO).all(axis=(1, 2))
            q[broken], p_HO[broken], R_HO[broken] = a.q[broken], a.p_HO[broken], a.R_HO[broken]
        self.p_HO, self.R_HO = p_HO, R_HO
        if settled is not None:
            self._test(alive, settled)
        return Verdicts(
            reason=self.reason,
            culprit=self.culprit,
            direction=self.direction,
            penetration_mm=a.penetration_mm,
            shift_mm=1e3 * np.linalg.norm(p_HO - a.p_HO, axis=-1),
            drift_mm=self.drift_mm,
            turn_deg=self.turn_deg,
            q=q,
            targets=targets,
            p_HO=p_HO,
            R_HO=R_HO,
        )

    def _alive(self) -> np.ndarray:
        return np.flatnonzero(self.reason == Reason.HELD)

    def _fail(self, grasps: np.ndarray, reason: Reason, culprit: Any = -1, direction: int = -1) -> None:
        self.reason[grasps], self.culprit[grasps], self.direction[grasps] = reason, culprit, direction

    def _close(self, alive: np.ndarray) -> State:
        """Simulate closing; the states afterwards."""
        p, scene, a = self.protocol, self.scene, self.attempts.take(alive)
        start = np.where(a.moving, a.pre_grasp, a.q) if p.start == "pre-grasp" else a.q
        run = self._new_run(len(alive))
        run.qpos[:] = scene.qpos(a.q, a.p_HO, a.R_HO)
        strange = run.depth_mm() > a.penetration_mm[:, None] + p.max_stand_in_mm
        run.qpos[:] = scene.qpos(start, a.p_HO, a.R_HO)
        ramp = max(1, round(p.close_s / p.step_s))
        ways = [start, a.q, a.squeeze] if p.start == "pre-grasp" else [a.q, a.squeeze]
        for k in range(1, ramp + 1):
            along = k / ramp * (len(ways) - 1)
            leg = min(int(np.ceil(along)), len(ways) - 1) - 1
            target = ways[leg] + (along - leg) * (ways[leg + 1] - ways[leg])
            run.ctrl[:] = np.where(a.moving, target, a.squeeze)
            run.creep(p.substeps)
        # Whoever does not touch everything yet goes on, the same way.
        step = np.where(a.moving, a.squeeze - a.q, 0.0) / ramp
        for _ in range(round((p.reach - 1) * ramp)):
            apart = np.flatnonzero(~run.touching().all(axis=1))
            if not len(apart):
                break
            run.ctrl[apart] += step[apart]
            run.creep(p.substeps, apart)
        run.step(round(p.settle_s / p.step_s) * p.substeps)
        touching = run.touching()
        lost = ~touching.all(axis=1)
        self._fail(alive[lost], Reason.UNTOUCHED, np.argmin(touching[lost], axis=1))
        self._fail(alive[run.broken], Reason.UNSTABLE)
        unfair = strange.any(axis=1)
        self._fail(alive[unfair], Reason.STAND_IN, np.argmax(strange[unfair], axis=1))
        return run.state()

    def _test(self, alive: np.ndarray, settled: "State") -> None:
        """Pushes, one after the other, or the shake; only what held so far takes part."""
        for direction in self._tests():
            kept = np.flatnonzero(self.reason[alive] == Reason.HELD)
            if not len(kept):
                return
            self._try(alive[kept], {name: values[kept] for name, values in settled.items()}, direction)

    def _tests(self) -> range:
        """Places in DIRECTIONS, or -1 for the shake."""
        return range(len(DIRECTIONS)) if self.protocol.test == "pushes" else range(-1, 0)

    def _try(self, grasps: np.ndarray, settled: "State", direction: int) -> None:
        run = self._new_run(len(grasps))
        run.load(settled)
        if direction >= 0:
            weight = self.protocol.acceleration * self.scene.mass[:, None] * DIRECTIONS[direction]
            run.force[:, self.scene.bodies, :3] = weight
            self._wait(run, grasps)
        else:
            self._shake(run, grasps)
        self._judge(run, grasps, direction)

    def _new_run(self, count: int) -> "_Run":
        run = _Run(self.scene, count, self.threads)
        if self.reel is not None:
            run.frames, run.every = [], self.protocol.substeps
            self.reel.append(run.frames)
        return run

    def _wait(self, run: "_Run", grasps: np.ndarray) -> None:
        """All steps of the protocol with a hand that stays; simulations whose end is clear stop early."""
        p, going = self.protocol, np.arange(len(grasps))
        for k in range(CHECKS):
            steps = (p.steps * (k + 1)) // CHECKS - (p.steps * k) // CHECKS
            run.step(steps * p.substeps, going)
            drift = self._look(grasps[going], run.qpos[going])
            gone = np.any(drift > 1e3 * GONE, axis=1)
            going = going[~gone & ~run.broken[going]]
            if not len(going):
                break

    def _shake(self, run: "_Run", grasps: np.ndarray) -> None:
        """All steps of the protocol with a hand that moves. Seen from it, the objects are pulled about."""
        p, scene = self.protocol, self.scene
        down_H, along_H = palm_axes(scene.hand)
        steps, dt = p.steps * p.substeps, p.step_s / p.substeps
        for k in range(steps):
            moving = motion(k * dt, down_H, along_H, p.acceleration)
            p_HO, R_HO = scene.poses(run.qpos)
            v_H, w_O = scene.velocities(run.qvel)
            w_H, r_HC = apply(R_HO, w_O), apply(R_HO, scene.com_O)
            inertia_H = R_HO @ scene.inertia_O @ np.swapaxes(R_HO, -1, -2)
            v_H = v_H + np.cross(w_H, r_HC)
            wrench = inertial_wrench(moving, scene.mass, inertia_H, p_HO + r_HC, v_H, w_H)
            run.force[:, scene.bodies] = np.concatenate(wrench, axis=-1)
            run.step(1)
            if (k + 1) % max(1, steps // SHAKE_CHECKS) == 0:
                self._look(grasps, run.qpos)

    def _judge(self, run: "_Run", grasps: np.ndarray, direction: int) -> None:
        """Fail what is out of contact, has moved too far, or is not a number."""
        p, touching = self.protocol, run.touching()
        far = self.drift_mm[grasps] > (np.inf if p.max_drift_mm is None else p.max_drift_mm)
        far |= self.turn_deg[grasps] > (np.inf if p.max_turn_deg is None else p.max_turn_deg)
        for reason, guilty in ((Reason.MOVED, far), (Reason.LOST, ~touching)):
            failed = guilty.any(axis=1)
            self._fail(grasps[failed], reason, np.argmax(guilty[failed], axis=1), direction)
        self._fail(grasps[run.broken], Reason.UNSTABLE, -1, direction)

    def _look(self, grasps: np.ndarray, qpos: np.ndarray) -> np.ndarray:
        """Displacements (G, n), mm, from where the objects settled. The largest stay, as do rotations."""
        p_HO, R_HO = self.scene.poses(qpos)
        drift = 1e3 * np.linalg.norm(p_HO - self.p_HO[grasps], axis=-1)
        R = np.swapaxes(self.R_HO[grasps], -1, -2) @ R_HO
        turn = np.rad2deg(np.arccos(np.clip((np.trace(R, axis1=-2, axis2=-1) - 1) / 2, -1, 1)))
        self.drift_mm[grasps] = np.fmax(self.drift_mm[grasps], drift)
        self.turn_deg[grasps] = np.fmax(self.turn_deg[grasps], turn)
        return drift


class _Run:
    """A batch of simulations of one scene."""

    STATE = ("qpos", "qvel", "ctrl", "qacc_warmstart")

    def __init__(self, scene: Scene, count: int, threads: int):
        self.scene = scene
        self.batch = Batch(scene.model, nsim=count, nthread=threads)
        self.qpos, self.qvel = self.batch.bind("qpos"), self.batch.bind("qvel")
        self.ctrl, self.force = self.batch.bind("ctrl"), self.batch.bind("xfrc_applied")
        self.probe = Batch(scene.probe, nsim=count, nthread=threads)
        self.sensordata = self.probe.bind("sensordata")
        self.broken = np.zeros(count, dtype=bool)
        self.frames: list[np.ndarray] | None = None
        """States after every so many steps, if they are wanted."""
        self.every, self.steps = 1, 0

    def load(self, state: State) -> None:
        for name, values in state.items():
            self.batch.bind(name)[:] = values

    def state(self) -> State:
        return {name: self.batch.bind(name).copy() for name in self.STATE}

    def step(self, count: int, ids: np.ndarray | None = None) -> None:
        if self.frames is None:
            self._run(lambda: self.batch.step(ids=ids, nstep=count))
            return
        for _ in range(count):
            self._run(lambda: self.batch.step(ids=ids, nstep=1))
            self.steps += 1
            if self.steps % self.every == 0:
                self.frames.append(self.qpos.copy())

    def creep(self, count: int, ids: np.ndarray | None = None) -> None:
        """Steps without momentum: whatever moves an object does not throw it.

        With nothing that brakes it, the tenths of a millimetre that a grasp overlaps would shoot an object
        out before the hand can press.
        """
        resting = (self.scene.dofs[:, None] + np.arange(6)).ravel()
        for _ in range(count):
            self.step(1, ids)
            self.qvel[:, resting] = 0.0

    def touching(self) -> np.ndarray:
        """(N, n) bool. Which objects are in contact with the hand."""
        self.probe.bind("qpos")[:] = np.where(self.broken[:, None], self.scene.probe.qpos0, self.qpos)
        self._run(lambda: self.probe.forward(stage=int(mujoco.mjtStage.mjSTAGE_POS)))
        return self.sensordata[:, self.scene.sensors] > 0

    def depth_mm(self) -> np.ndarray:
        """(N, n) float. How deep the hand is in each object, as the simulator sees it."""
        return np.where(self.touching(), -1e3 * self.sensordata[:, self.scene.sensors + 1], 0.0)

    def _run(self, work: Callable[[], None]) -> None:
        """Simulations that raise, warn (not a number, no memory for contacts), or end nowhere are broken."""
        before = mujoco.get_mju_user_warning()
        # Unless somebody takes it, MuJoCo writes what it has to say into a file in the working directory.
        mujoco.set_mju_user_warning(lambda _: None)
        try:
            work()
        except SimulationError as error:
            self.broken[error.ids] = True
        finally:
            mujoco.set_mju_user_warning(before)
        self.broken |= self.batch.warning.any(axis=(1, 2)) | ~np.isfinite(self.qpos).all(axis=1)
