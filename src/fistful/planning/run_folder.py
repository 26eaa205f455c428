"""A plan as a folder: JSON, arrays without pickle, the hand and the meshes. docs/planning.md has the format.

Invariant: `plan.json` names only files that are complete, each by its sha256. Every file is staged beside
its place, synced and moved there by one rename, and `plan.json` comes last; so whoever is killed
whenever, the folder holds the stages that were finished. The folder stands alone: it can be copied and
read elsewhere.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fistful import __version__
from fistful.errors import FistfulError, PlanError
from fistful.hands.description import read_description, write_description
from fistful.hands.files import read_self_contained_mjcf
from fistful.hands.hand import Hand, resolve_hand
from fistful.hands.model import Model
from fistful.objects.inspection import MeshReport
from fistful.objects.object import Object, restore_object
from fistful.objects.reading import read_mesh
from fistful.physics.protocol import Protocol
from fistful.physics.verdict import Verdicts
from fistful.planning.plan import Origin, Plan
from fistful.planning.validation import Validation
from fistful.storage import write_file
from fistful.synthesis.measure import Measures
from fistful.synthesis.settings import Settings
from fistful.synthesis.stage import Grasps, Stage

SCHEMA = 3
FORMAT = "fistful plan"
HEAD = "plan.json"
_HAND_MODEL, _HAND_DESCRIPTION, _MESHES = "hand.xml", "hand.toml", "objects"
_OURS = re.compile(
    r"plan\.json|(stage|verdicts|validation_[\w-]+)_\d+\.npz|validation_[\w-]+\.json|hand\.(xml|toml)|objects|(picture\.png|view\.html)|.*\.tmp"
)
_Record = TypeVar("_Record")


def load_plan(folder: str | Path, protocol: str | None = None) -> Plan:
    """The plan in a folder, bit for bit as it was saved. Reads files; prepares objects that are not cached.

    A plan that was interrupted has fewer stages than objects, and says so in `stopped`.

    Args:
      folder: Folder.
      protocol: Name of a protocol by which `fistful validate` tried the plan later; default: the validation
        that planning went by.

    Raises:
      PlanError: The folder holds no plan, one of a newer version, or a damaged one.
    """
    folder = Path(folder).expanduser()
    record = _read_head(folder)
    with _damage(folder / HEAD):
        hand = _read_hand(folder, record["hand"])
        objects = tuple(_read_object(folder, entry) for entry in record["objects"])
        plan = Plan(
            hand=hand,
            objects=objects,
            settings=_parsed(Settings, record["settings"]),
            order=tuple(int(i) for i in record["order"]),
            ordering=record["ordering"],
            order_explanation=record["order_explanation"],
            preference=_preference(record),
            device=record["device"],
            threads=record["threads"],
            stages=tuple(_read_stage(folder, n, entry) for n, entry in enumerate(record["stages"], 1)),
            validation=_read_validation(folder, _validation_record(folder, record, protocol)),
            stopped=record["stopped"],
            origin=_parsed(Origin, record["origin"]),
        )
        if len(plan.stages) < len(objects) and plan.stopped is None:
            after = f"interrupted after stage {len(plan.stages)} of {len(objects)}"
            return replace(plan, stopped=f"{after}; the same command with --out {folder} goes on")
        return plan


def save_validation(folder: str | Path, plan: Plan) -> Path:
    """Write a plan's validation into its folder, by the name of its protocol; returns the head's file."""
    folder = Path(folder).expanduser()
    if plan.validation is None:
        raise PlanError("there is no validation to save: validate the plan first")
    hulls = "" if plan.validation.parts == "parts" else f"-{plan.validation.parts}"
    name = f"validation_{plan.validation.protocol.name}{hulls}"
    stages = [
        _write_verdicts(folder / f"{name}_{n}.npz", plan.validation, n - 1)
        for n in range(1, len(plan.validation.verdicts) + 1)
    ]
    record = {"format": FORMAT, "schema": SCHEMA, **_rules(plan.validation), "stages": stages}
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    write_file(folder / f"{name}.json", lambda file: file.write(text.encode()))
    return folder / f"{name}.json"


class RunFolder:
    """A folder that a plan is saved to, stage by stage."""

    def __init__(self, path: Path, found: dict[str, Any] | None):
        self.path = path
        self.found = found
        """What `plan.json` says of the same plan, if it was begun here; None to start anew."""
        names = () if found is None else ("hand", "objects", "stages", "validation")
        self._entries: dict[str, Any] = {name: (found or {})[name] for name in names}

    @classmethod
    def open(cls, path: Path, plan: Plan, *, force: bool = False) -> "RunFolder":
        """The folder for a plan that has no stage yet. Reads only; it is made when something is saved.

        Raises:
          PlanError: The folder holds another plan, and not `force`; or something that is no plan.
        """
        if path.exists() and not path.is_dir():
            raise PlanError(f"{path} is a file; --out names a folder")
        inside = [f.name for f in path.iterdir()] if path.exists() else []
        strange = sorted(name for name in inside if not _OURS.fullmatch(name))
        if strange and not (path / HEAD).exists():
            raise PlanError(f"{path} holds something else ({strange[0]}); name a new folder with --out")
        if force or not (path / HEAD).exists():
            return cls(path, None)
        found = _read_head(path)
        with _damage(path / HEAD):
            difference = _difference(found, plan)
        if difference:
            raise PlanError(
                f"{path} holds another plan: {difference}. Name another folder with --out, or replace it "
                "with --force"
            )
        return cls(path, found)

    def resumed(self, plan: Plan) -> Plan:
        """The plan with the order and the stages that are in the folder already."""
        found = self.found
        if found is None:
            return plan
        with _damage(self.path / HEAD):
            order = tuple(int(i) for i in found["order"])
            return replace(
                plan,
                objects=tuple(plan.objects[i] for i in order),
                order=order,
                order_explanation=found["order_explanation"],
                preference=_preference(found),
                stages=tuple(_read_stage(self.path, n, e) for n, e in enumerate(found["stages"], 1)),
                validation=_read_validation(self.path, found["validation"]),
                origin=_parsed(Origin, found["origin"]),
            )

    def save(self, plan: Plan) -> None:
        """Write what is not in the folder yet: hand and objects, then stages, and `plan.json` last."""
        if not plan.stages:
            return
        if not self._entries:
            self._begin(plan)
        stages = self._entries["stages"]
        for n in range(len(stages) + 1, len(plan.stages) + 1):
            stages.append(_write_stage(self.path, n, plan.stages[n - 1]))
        if plan.validation is not None:
            tried = self._entries["validation"]["stages"]
            for n in range(len(tried) + 1, len(plan.validation.verdicts) + 1):
                path = self.path / f"verdicts_{n}.npz"
                tried.append(_write_verdicts(path, plan.validation, n - 1))
        text = json.dumps(self._head(plan), indent=1, allow_nan=False) + "\n"
        write_file(self.path / HEAD, lambda file: file.write(text.encode()))

    def _begin(self, plan: Plan) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        # First the head: without it, nothing here counts as a plan any more.
        (self.path / HEAD).unlink(missing_ok=True)
        for leftover in self.path.iterdir():
            if _OURS.fullmatch(leftover.name) and leftover.is_file():
                leftover.unlink()
        (self.path / _MESHES).mkdir(exist_ok=True)
        for leftover in (self.path / _MESHES).glob("*.ply"):
            leftover.unlink()
        self._entries = {
            "hand": _write_hand(self.path, plan),
            "objects": [_write_object(self.path, n, item) for n, item in enumerate(plan.objects, 1)],
            "stages": [],
            "validation": None if plan.validation is None else _rules(plan.validation) | {"stages": []},
        }

    def _head(self, plan: Plan) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "schema": SCHEMA,
            "fistful": __version__,
            **_identity(plan) | self._entries,
            "order": list(plan.order),
            "order_explanation": plan.order_explanation,
            "preference": [None if p is None else np.asarray(p).tolist() for p in plan.preference],
            "threads": plan.threads,
            "stopped": plan.stopped,
            "origin": asdict(plan.origin),
        }


def _identity(plan: Plan) -> dict[str, Any]:
    """What has to be the same for a plan to be continued, besides hand, objects and version."""
    settings = json.loads(json.dumps(asdict(plan.settings)))
    rules = None if plan.validation is None else _rules(plan.validation)
    return {"settings": settings, "ordering": plan.ordering, "device": plan.device, "validation": rules}


def _difference(found: dict[str, Any], plan: Plan) -> str | None:
    """In what a plan differs from one that was saved, one line; None if it is the same so far."""
    if found["fistful"] != __version__:
        return f"it was made by fistful {found['fistful']}, and this is {__version__}"
    if found["hand"]["key"] != plan.hand.key:
        before = found["hand"]["name"]
        return f"hand is {before} there and {plan.hand.name} now{', edited' * (before == plan.hand.name)}"
    entries = dict(zip(found["order"], found["objects"], strict=True))
    there = [entries[i] for i in sorted(entries)]
    if [entry["name"] for entry in there] != [item.name for item in plan.objects]:
        then = ", ".join(entry["name"] for entry in there)
        return f"objects are {then} there and {', '.join(item.name for item in plan.objects)} now"
    for entry, item in zip(there, plan.objects, strict=True):
        if entry["key"] != item.key:
            return f"{item.name} is another mesh now, or was scaled differently (--rescale, --units)"
    then, now = ("" if tried is not None else "not " for tried in (found["validation"], plan.validation))
    if then != now:
        return f"grasps were {then}tried in physics there and would {now}be now (--no-validate)"
    now = _flat(_identity(plan))
    then = _flat({name: found[name] for name in _identity(plan)})
    then.pop("validation.stages", None)
    for name in sorted(now.keys() | then.keys()):
        if now.get(name) != then.get(name):
            return f"{name} is {then.get(name)} there and {now.get(name)} now"
    return None


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested dicts as one, with names such as fast.tries."""
    flat = {}
    for name, value in tree.items():
        name = f"{prefix}{name}".removeprefix("settings.")
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat


def _read_head(folder: Path) -> dict[str, Any]:
    head = folder / HEAD
    if not head.is_file():
        what = "there is no such folder" if not folder.exists() else f"it has no {HEAD}"
        raise PlanError(f"{folder} holds no plan: {what}; `fistful plan OBJECT ... --out {folder}` makes one")
    with _damage(head):
        record = json.loads(head.read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise PlanError(f"{head} is not of a plan; `fistful plan OBJECT ... --out DIR` makes one")
        if record["schema"] < SCHEMA:
            raise PlanError(
                f"{folder} was written by fistful {record['fistful']} in format {record['schema']}; this one "
                f"reads format {SCHEMA}: plan anew with --force"
            )
        if record["schema"] > SCHEMA:
            raise PlanError(
                f"{folder} was written by fistful {record['fistful']} (format {record['schema']}), which is "
                f"newer than this one (format {SCHEMA}): upgrade fistful to read it"
            )
        return record


def _write_hand(folder: Path, plan: Plan) -> dict[str, Any]:
    hand = plan.hand
    digest = write_file(folder / _HAND_MODEL, lambda file: file.write(hand.model.mjcf.encode()))
    write_description(replace(hand.description, model=_HAND_MODEL), folder / _HAND_DESCRIPTION)
    return {
        "name": hand.name,
        "key": hand.key,
        "source": plan.origin.hand,
        "model": hand.description.model,
        "notes": list(hand.notes),
        "sha256": digest,
    }


def _read_hand(folder: Path, entry: dict[str, Any]) -> Hand:
    _intact(folder / _HAND_MODEL, entry["sha256"])
    model = read_self_contained_mjcf(folder / _HAND_MODEL)
    description = replace(read_description(folder / _HAND_DESCRIPTION), model=entry["model"])
    hand = resolve_hand(Model.from_mjcf(model), description, tuple(entry["notes"]))
    if hand.key != entry["key"]:
        raise PlanError(
            f"{folder / _HAND_DESCRIPTION} is not the hand of the plan any more: it was edited, or another "
            "version of fistful reads it differently"
        )
    return hand


def _write_object(folder: Path, number: int, item: Object) -> dict[str, Any]:
    name = f"{number}_{re.sub(r'[^A-Za-z0-9._-]+', '_', item.name)[:60]}.ply"
    digest = write_file(folder / _MESHES / name, lambda file: file.write(_ply(item.vertices, item.faces)))
    return {
        "name": item.name,
        "key": item.key,
        "scale": item.scale,
        "file": name,
        "sha256": digest,
        "grid_spacing_m": item.sdf.spacing,
        "report": item.report.to_dict(),
    }


def _read_object(folder: Path, entry: dict[str, Any]) -> Object:
    path = folder / _MESHES / Path(entry["file"]).name
    _intact(path, entry["sha256"])
    mesh, report = read_mesh(path), MeshReport.from_dict(entry["report"])
    faces = mesh.faces.astype(np.int32)
    return restore_object(entry["name"], entry["key"], mesh.vertices, faces, report, entry["grid_spacing_m"])


def _ply(vertices: np.ndarray, faces: np.ndarray) -> bytes:
    """A binary PLY file that keeps every bit of the vertices."""
    head = (
        "ply\nformat binary_little_endian 1.0\ncomment metres\n"
        f"element vertex {len(vertices)}\nproperty double x\nproperty double y\nproperty double z\n"
        f"element face {len(faces)}\nproperty list uchar int vertex_indices\nend_header\n"
    )
    rows = np.zeros(len(faces), dtype=[("count", "u1"), ("corners", "<i4", (3,))])
    rows["count"], rows["corners"] = 3, faces
    return head.encode() + vertices.astype("<f8").tobytes() + rows.tobytes()


def _write_stage(folder: Path, number: int, stage: Stage) -> dict[str, Any]:
    columns = {f.name: getattr(stage.grasps, f.name) for f in fields(Grasps)}
    columns |= {f.name: getattr(stage.measures, f.name) for f in fields(Measures)}
    name = f"stage_{number}.npz"
    digest = write_file(folder / name, lambda file: np.savez_compressed(file, allow_pickle=False, **columns))
    return {
        "object": stage.object_name,
        "object_key": stage.object_key,
        "file": name,
        "sha256": digest,
        "spaces": list(stage.spaces),
        "count": len(stage),
        "good": int(stage.good.sum()),
        "cpu_s": stage.cpu_s,
        "wall_s": stage.wall_s,
    }


def _read_stage(folder: Path, number: int, entry: dict[str, Any]) -> Stage:
    path = folder / f"stage_{number}.npz"
    _intact(path, entry["sha256"])
    with np.load(path, allow_pickle=False) as file:
        grasps = Grasps(**{f.name: file[f.name] for f in fields(Grasps)})
        measures = Measures(**{f.name: file[f.name] for f in fields(Measures)})
    return Stage(
        object_name=entry["object"],
        object_key=entry["object_key"],
        spaces=tuple(entry["spaces"]),
        grasps=grasps,
        measures=measures,
        cpu_s=entry["cpu_s"],
        wall_s=entry["wall_s"],
    )


def _rules(validation: Validation) -> dict[str, Any]:
    """What the grasps had to stand, as JSON-able values."""
    return json.loads(json.dumps({"protocol": validation.protocol.to_dict(), "parts": validation.parts}))


def _write_verdicts(path: Path, validation: Validation, stage: int) -> dict[str, Any]:
    verdicts = validation.verdicts[stage]
    columns = {f.name: getattr(verdicts, f.name) for f in fields(Verdicts)}
    digest = write_file(path, lambda file: np.savez_compressed(file, allow_pickle=False, **columns))
    return {
        "file": path.name,
        "sha256": digest,
        "valid": int(verdicts.success.sum()),
        "cpu_s": validation.cpu_s[stage],
        "wall_s": validation.wall_s[stage],
    }


def _validation_record(folder: Path, head: dict[str, Any], protocol: str | None) -> dict[str, Any] | None:
    """What the folder says of the validation that planning went by, or of a later one."""
    if protocol is None:
        return head["validation"]
    path = folder / f"validation_{protocol}.json"
    if not path.is_file():
        raise PlanError(
            f"{folder} has no verdicts by protocol {protocol!r}; `fistful validate {folder} --protocol "
            f"{protocol}` makes them"
        )
    with _damage(path):
        return json.loads(path.read_text(encoding="utf-8"))


def _read_validation(folder: Path, entry: dict[str, Any] | None) -> Validation | None:
    if entry is None:
        return None
    validation = Validation(protocol=Protocol.from_dict(entry["protocol"]), parts=entry["parts"])
    for stage in entry["stages"]:
        path = folder / Path(stage["file"]).name
        _intact(path, stage["sha256"])
        with np.load(path, allow_pickle=False) as file:
            verdicts = Verdicts(**{f.name: file[f.name] for f in fields(Verdicts)})
        validation = validation.with_stage(verdicts, stage["cpu_s"], stage["wall_s"])
    return validation


def _preference(record: dict[str, Any]) -> tuple[np.ndarray | None, ...]:
    return tuple(None if p is None else np.array(p, dtype=float) for p in record["preference"])


def _parsed(kind: type[_Record], values: dict[str, Any]) -> _Record:
    """A dataclass, all of whose fields have defaults, from what `asdict` and JSON made of it."""
    default, arguments = kind(), {}
    for f in fields(kind):  # pyright: ignore[reportArgumentType]
        example, value = getattr(default, f.name), values[f.name]
        if is_dataclass(example):
            value = _parsed(type(example), value)
        elif isinstance(example, tuple):
            value = tuple(value)
        arguments[f.name] = value
    unknown = values.keys() - arguments.keys()
    if unknown:
        raise ValueError(f"unknown setting {min(unknown)!r}")
    return kind(**arguments)


def _intact(path: Path, sha256: str) -> bytes:
    """The content of a file; PlanError if it is not what was saved."""
    if not path.is_file():
        raise PlanError(f"{path} is missing: the plan can not be read; plan anew with --force")
    body = path.read_bytes()
    if hashlib.sha256(body).hexdigest() != sha256:
        raise PlanError(f"{path} is damaged: its checksum is not that of plan.json; plan anew with --force")
    return body


@contextlib.contextmanager
def _damage(path: Path) -> Iterator[None]:
    """Whatever a damaged file makes its reader raise becomes one PlanError."""
    try:
        yield
    except FistfulError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"misses {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise PlanError(f"{path} is damaged: {what}; plan anew with --force") from error
