"""A simulated grasp as a folder: what was asked, what came of it, and every frame to look at again."""

import json
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from fistful import __version__
from fistful.errors import JawsError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper
from fistful.jaws.outcome import Frame, JawOutcome, Recording
from fistful.storage import write_file

HEAD, ARRAYS = "jaws.json", "recording.npz"
FILES = (HEAD, ARRAYS, "grasps.json", "picture.png", "animation.gif")
"""All that a run may hold, the head first."""
LIFTS = "lifts.jsonl"
"""The ledger of a `grasp` that is not finished."""
FORMAT, SCHEMA = "fistful jaws", 1


@dataclass(frozen=True, kw_only=True, eq=False)
class JawRun:
    """A saved grasp, ready to be drawn.

    Attributes:
      record: What `jaws.json` holds.
      vertices_O, faces: (V, 3) float, m, and (F, 3) int. The object.
      recording: Frames.
      time_s, force_N, area_mm2, height_mm: As in JawOutcome.
    """

    record: dict[str, Any]
    vertices_O: np.ndarray
    faces: np.ndarray
    recording: Recording
    time_s: np.ndarray
    force_N: np.ndarray
    area_mm2: np.ndarray
    height_mm: np.ndarray

    @classmethod
    def of(cls, resting: Resting, grasp: JawGrasp, gripper: Gripper, outcome: JawOutcome) -> "JawRun":
        """The run of an outcome that was recorded. No I/O."""
        if outcome.recording is None:
            raise JawsError("the grasp was simulated without record=True: there are no frames to keep")
        record = {
            "format": FORMAT,
            "schema": SCHEMA,
            "fistful": __version__,
            "object": resting.item.name,
            "mass": resting.mass,
            "p_WO": resting.p_WO.tolist(),
            "R_WO": resting.R_WO.tolist(),
            "p_WG": grasp.p_WG.tolist(),
            "R_WG": grasp.R_WG.tolist(),
            "gripper": gripper.record(),
            "outcome": outcome_record(outcome),
        }
        return cls(
            record=json.loads(json.dumps(record)),
            vertices_O=resting.item.vertices,
            faces=resting.item.faces,
            recording=outcome.recording,
            time_s=outcome.time_s,
            force_N=outcome.force_N,
            area_mm2=outcome.area_mm2,
            height_mm=outcome.height_mm,
        )

    def save(self, folder: Path) -> None:
        """Write the folder: what was there goes; arrays come first, last the head that says all is there."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            if _ours(old.name):
                old.unlink(missing_ok=True)
        frames = self.recording.frames
        columns = {
            "vertices_O": self.vertices_O,
            "faces": self.faces,
            "tets": self.recording.tets,
            "pad_faces": self.recording.faces,
            "frame_time_s": np.array([f.time for f in frames]),
            "nodes_W": np.array([f.nodes_W for f in frames], np.float32),
            "energies": np.array([f.energies for f in frames], np.float32),
            "frame_p_WO": np.array([f.p_WO for f in frames]),
            "frame_R_WO": np.array([f.R_WO for f in frames]),
            "time_s": self.time_s,
            "force_N": self.force_N,
            "area_mm2": self.area_mm2,
            "height_mm": self.height_mm,
        }
        write_file(folder / ARRAYS, lambda file: np.savez_compressed(file, allow_pickle=False, **columns))
        text = json.dumps(self.record, indent=1) + "\n"
        write_file(folder / HEAD, lambda file: file.write(text.encode()))


def check_folder(folder: Path, *also: str) -> None:
    """Raise JawsError if the folder holds anything but a saved grasp of jaws, and what is named."""
    if folder.is_file():
        raise JawsError(f"{folder} is a file; --out names a folder")
    names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    strange = sorted(name for name in names if not _ours(name) and name not in also)
    if strange:
        raise JawsError(f"{folder} holds something else ({strange[0]}); name another folder with --out")


def _ours(name: str) -> bool:
    """Whether it is a file of a run, or what a killed process left of one (see `write_file`)."""
    return re.sub(r"\.\d+\.tmp$", "", name) in FILES


def is_jaw_run(folder: Path) -> bool:
    """Whether a folder holds a saved grasp of jaws."""
    return (folder / HEAD).is_file()


def load_jaw_run(folder: Path) -> JawRun:
    """The grasp in a folder. Raises JawsError if it is damaged or of another version."""
    try:
        record = json.loads((folder / HEAD).read_text(encoding="utf-8"))
        if record["format"] != FORMAT or record["schema"] != SCHEMA:
            raise JawsError(
                f"{folder / HEAD} is {record['format']} {record['schema']}; this one reads {FORMAT} {SCHEMA}"
            )
        with np.load(folder / ARRAYS, allow_pickle=False) as file:
            a = {name: file[name] for name in file.files}
        frames = tuple(
            Frame(time=float(t), nodes_W=x, energies=e, p_WO=p, R_WO=R)
            for t, x, e, p, R in zip(
                a["frame_time_s"], a["nodes_W"], a["energies"], a["frame_p_WO"], a["frame_R_WO"], strict=True
            )
        )
        return JawRun(
            record=record,
            vertices_O=a["vertices_O"],
            faces=a["faces"],
            recording=Recording(tets=a["tets"], faces=a["pad_faces"], frames=frames),
            **{name: a[name] for name in ("time_s", "force_N", "area_mm2", "height_mm")},
        )
    except JawsError:
        raise
    except (OSError, LookupError, TypeError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise JawsError(f"{folder} is damaged: {' '.join(str(error).split())}; simulate it again") from error


def outcome_record(outcome: JawOutcome) -> dict[str, Any]:
    """An outcome as JSON-able values, without its arrays."""
    return {
        "success": outcome.success,
        "reason": str(outcome.reason),
        "first_contact": outcome.first_contact,
        "first_contact_s": outcome.first_contact_s,
        "squeeze_displacement_mm": outcome.squeeze_displacement_mm,
        "squeeze_rotation_deg": outcome.squeeze_rotation_deg,
        "lift_displacement_mm": outcome.lift_displacement_mm,
        "lift_rotation_deg": outcome.lift_rotation_deg,
        "largest_force_N": outcome.force_N.max(axis=0).tolist() if len(outcome.force_N) else [0.0, 0.0],
        "largest_area_mm2": outcome.area_mm2.max(axis=0).tolist() if len(outcome.area_mm2) else [0.0, 0.0],
        "steps": outcome.steps,
        "newton_iterations": outcome.newton_iterations,
        "unconverged_steps": outcome.unconverged_steps,
        "min_gap_m": outcome.min_gap_m if np.isfinite(outcome.min_gap_m) else None,
        "intersections": outcome.intersections,
        "inverted_tets": outcome.inverted_tets,
        "cpu_s": outcome.cpu_s,
        "notes": list(outcome.notes),
    }
