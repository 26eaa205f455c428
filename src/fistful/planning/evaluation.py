"""Table III of the SeqGrasp paper by one command: methods compared on random sequences of objects.

The work is cut into units, each a method on a sequence. A unit is on disk as soon as it is finished and is
never made twice, so whoever is killed whenever goes on from there, with the result of an uninterrupted run
but for the seconds.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fistful import __version__
from fistful.errors import PlanError
from fistful.hands.hand import Hand
from fistful.objects.object import Object
from fistful.physics.protocol import Protocol, find_protocol
from fistful.physics.trial import Attempts
from fistful.physics.verdict import Verdicts
from fistful.planning.plan import plan
from fistful.planning.validation import Tester, held_throughout, reason_counts
from fistful.storage import write_file
from fistful.synthesis.contact_set import contact_sets, usable_sets
from fistful.synthesis.multigrasp import multigrasp
from fistful.synthesis.settings import Settings

Method = Literal["seqgrasp", "seqgrasp-paper", "multigrasp"]
METHODS: tuple[Method, ...] = ("seqgrasp", "seqgrasp-paper", "multigrasp")
SEQUENCES_STREAM = 5
"""First number of the seed that draws the sequences; see synthesis.target.PAIRS_STREAM."""
RESAMPLES = 2000
"""Of the bootstrap over sequences that makes the intervals."""
PUBLISHED = {
    ("multigrasp", 1): ((66.84, 65.39), (1.14, 1.27), 0.284, 600),
    ("multigrasp", 2): ((22.46, 16.48), (2.30, 2.83), 0.347, 750),
    ("multigrasp", 3): ((10.78, 3.55), (3.39, 4.04), 0.340, 900),
    ("multigrasp", 4): ((0.90, 0.47), (5.17, 6.27), 0.329, 1000),
    ("seqgrasp", 1): ((50.04, 40.78), (1.73, 2.16), 0.332, 900),
    ("seqgrasp", 2): ((21.21, 32.03), (2.14, 1.78), 0.367, 900),
    ("seqgrasp", 3): ((19.49, 21.05), (2.23, 2.23), 0.349, 900),
    ("seqgrasp", 4): ((2.93, 5.04), (2.70, 2.62), 0.312, 900),
}
"""Table III as printed, by method and number of objects: success %, penetration mm (each on SeqDataset and on
Grasp'Em objects), diversity rad, seconds on an A100 for 256 grasps."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is compared, and on what. Two studies with equal records have equal results.

    Attributes:
      hand: Key of the hand.
      objects: Name and key of every object that sequences are drawn from.
      methods: Methods.
      sequences: Places in `objects`, in the order of grasping, for each sequence.
      count: Grasps a stage.
      seed: Seed of sequences and of all planning.
      protocol: What a grasp has to stand.
    """

    hand: str
    objects: tuple[tuple[str, str], ...]
    methods: tuple[Method, ...]
    sequences: tuple[tuple[int, ...], ...]
    count: int
    seed: int
    protocol: Protocol

    def record(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "format": "fistful evaluation",
            "fistful": __version__,
            "hand": self.hand,
            "objects": [list(entry) for entry in self.objects],
            "methods": list(self.methods),
            "count": self.count,
            "seed": self.seed,
            "protocol": json.loads(json.dumps(self.protocol.to_dict())),
            # After what decides them, which is then named as the difference from another study.
            "sequences": [list(s) for s in self.sequences],
        }


class Unit(NamedTuple):
    """A piece of work: a method on a sequence; of MultiGrasp, on its first `length` objects."""

    method: Method
    sequence: int
    length: int

    @property
    def file(self) -> str:
        """Name of the file that its result is in."""
        return f"{self.method}_{self.sequence:03d}_{self.length}.json"


def draw_sequences(objects: int, count: int, length: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Random sequences of different objects, each of places below `objects`."""
    rng = np.random.default_rng([SEQUENCES_STREAM, seed])
    return tuple(tuple(int(i) for i in rng.permutation(objects)[:length]) for _ in range(count))


def evaluate(
    hand: Hand,
    objects: Sequence[Object],
    *,
    methods: Sequence[str] = METHODS,
    sequences: int = 10,
    length: int = 4,
    count: int = 256,
    protocol: str | Protocol = "paper",
    seed: int = 0,
    threads: int | None = None,
    out: str | Path,
    progress: Callable[[str], None] = lambda _: None,
    on_unit: Callable[[int, int, str], None] = lambda done, of, name: None,
) -> dict[str, Any]:
    """Compare methods on random sequences of objects; returns the tables as JSON-able values.

    Goes on with the same study if `out` has it. docs/physics.md explains every figure.

    Args:
      hand: Hand.
      objects: Objects to draw sequences from.
      methods: Some of METHODS.
      sequences: How many sequences.
      length: Objects in each.
      count: Grasps a stage.
      protocol: A name of physics.protocol.PROTOCOLS, or a record.
      seed: Same seed, same sequences and grasps.
      threads: Threads that share the work; all cores by default. They do not change the result.
      out: Folder for units and result.
      progress: Called with a line now and then.
      on_unit: Called with the number of finished units, the number of all, and what comes next.

    Raises:
      PlanError: A value makes no sense, or `out` holds another study.
    """
    chosen = _checked(methods, len(objects), sequences, length, count)
    rules = find_protocol(protocol) if isinstance(protocol, str) else protocol
    study = Study(
        hand=hand.key,
        objects=tuple((item.name, item.key) for item in objects),
        methods=chosen,
        sequences=draw_sequences(len(objects), sequences, length, seed),
        count=count,
        seed=seed,
        protocol=rules,
    )
    folder = Path(out).expanduser()
    _open(folder, study)
    worker = _Worker(hand, objects, study, threads)
    units = list(_units(study, length))
    for done, unit in enumerate(units):
        path = folder / "units" / unit.file
        if path.is_file():
            continue
        names = ", ".join(study.objects[i][0] for i in study.sequences[unit.sequence][: unit.length])
        on_unit(done, len(units), f"{unit.method}: {names}")
        record = worker.work(unit, lambda line, unit=unit: progress(f"{unit.method}: {line}"))
        _write_json(path, record)
    records = [_read_unit(folder / "units" / unit.file) for unit in units]
    tables = summary(study, records, length)
    _write_json(folder / "tables.json", tables)
    return tables


def _checked(
    methods: Sequence[str], objects: int, sequences: int, length: int, count: int
) -> tuple[Method, ...]:
    for name in methods:
        if name not in METHODS:
            raise PlanError(f"no method called {name!r}; there are {', '.join(METHODS)}")
    if not methods:
        raise PlanError(f"name at least one method: {', '.join(METHODS)}")
    for name, value in (("sequences", sequences), ("length", length), ("count", count)):
        if value < 1:
            raise PlanError(f"{name} = {value}: use at least 1")
    if objects < length:
        raise PlanError(f"{objects} objects are too few for sequences of {length} different ones")
    return tuple(m for m in METHODS if m in methods)


def _open(folder: Path, study: Study) -> None:
    """Begin a study in a folder, or see that it is the one that was begun there."""
    head = folder / "study.json"
    if folder.exists() and not folder.is_dir():
        raise PlanError(f"{folder} is a file; --out names a folder")
    if not head.exists():
        if folder.exists() and any(not _begun(path) for path in folder.iterdir()):
            raise PlanError(f"{folder} holds something else; name a new folder with --out")
        (folder / "units").mkdir(parents=True, exist_ok=True)
        _write_json(head, study.record())
        return
    try:
        found = json.loads(head.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"{head} is damaged: {error}; name a new folder with --out") from error
    wanted = study.record()
    for name, value in wanted.items():
        if found.get(name) != value:
            raise PlanError(
                f"{folder} holds another study: {name!r} is not the same; name a new folder with --out"
            )
    (folder / "units").mkdir(exist_ok=True)


def _begun(path: Path) -> bool:
    """Whether a file is all that a run leaves behind that was killed before its first word was on disk."""
    return path.suffix == ".tmp" or (path.name == "units" and path.is_dir() and not any(path.iterdir()))


def _read_unit(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PlanError(f"{path} is damaged: {error}; remove it, and it is made again") from error


def _write_json(path: Path, record: dict[str, Any]) -> None:
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    write_file(path, lambda file: file.write(text.encode()))


def _units(study: Study, length: int) -> Iterator[Unit]:
    """All units, a sequence at a time, so that a table of half the work compares the same sequences."""
    for sequence in range(len(study.sequences)):
        for method in study.methods:
            lengths = range(1, length + 1) if method == "multigrasp" else (length,)
            yield from (Unit(method, sequence, n) for n in lengths)


class _Worker:
    """Does units."""

    def __init__(self, hand: Hand, objects: Sequence[Object], study: Study, threads: int | None):
        self.hand, self.objects, self.study, self.threads = hand, objects, study, threads
        self.tester = Tester(hand, study.protocol, threads=threads)
        self.sets = contact_sets(hand, 1)

    def work(self, unit: Unit, progress: Callable[[str], None]) -> dict[str, Any]:
        """The record of a unit: one row for each number of objects that it got to."""
        places = self.study.sequences[unit.sequence][: unit.length]
        objects = [self.objects[i] for i in places]
        # Another seed for every sequence, or the same grasps of an object would come again and again.
        seed = int(np.random.SeedSequence([self.study.seed, unit.sequence]).generate_state(1)[0] >> 1)
        rows = (self._together if unit.method == "multigrasp" else self._one_by_one)(
            unit, objects, seed, progress
        )
        return {"method": unit.method, "sequence": unit.sequence, "length": unit.length, "rows": rows}

    def _one_by_one(
        self, unit: Unit, objects: list[Object], seed: int, progress: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """SeqGrasp, validated stage by stage."""
        settings = Settings(count=self.study.count, seed=seed)
        if unit.method == "seqgrasp-paper":
            settings = replace(settings, method="paper", uniform=True)
        try:
            done = plan(
                self.hand,
                objects,
                settings=settings,
                protocol=self.study.protocol,
                threads=self.threads,
                progress=progress,
            )
        except PlanError as error:
            # Not even the first object: the hand can not span it. That is a result, too.
            return [_empty(self.study.count, self.hand, str(error))]
        assert done.validation is not None
        rows = []
        for n, held in enumerate(held_throughout(done.stages, done.validation)):
            stage, verdicts = done.stages[n], done.validation.verdicts[n]
            row = _row(stage.grasps.q, held, verdicts, stage.measures.penetration_mm)
            spaces = np.array(stage.spaces)[stage.grasps.space]
            row["spaces"] = {
                name: [int(held[spaces == name].sum()), int((spaces == name).sum())]
                for name in np.unique(spaces).tolist()
            }
            row["consumed"] = int(
                sum(not usable_sets(self.sets, f, 0).any() for f in stage.grasps.free[held])
            )
            row["cpu_s"], row["test_cpu_s"] = stage.cpu_s, done.validation.cpu_s[n]
            rows.append(row)
        if len(rows) < len(objects) and held_throughout(done.stages, done.validation)[-1].any():
            # Something held, but the hand has no room or can not span the next: all of these grasps fail.
            rows.append(_empty(self.study.count, self.hand, done.stopped or ""))
        return rows

    def _together(
        self, unit: Unit, objects: list[Object], seed: int, progress: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """MultiGrasp of all objects at once."""
        cpu = time.process_time()
        try:
            grasps = multigrasp(
                self.hand,
                objects,
                count=self.study.count,
                seed=seed,
                threads=self.threads,
                progress=progress,
            )
        except PlanError as error:
            return [_empty(self.study.count, self.hand, str(error))]
        made = time.process_time()
        overlap = np.maximum(grasps.penetration_mm, grasps.object_penetration_mm)
        attempts = Attempts(
            q=grasps.q,
            pre_grasp=grasps.pre_grasp,
            squeeze=grasps.squeeze,
            moving=grasps.joint_mask,
            p_HO=grasps.p_HO,
            R_HO=grasps.R_HO,
            penetration_mm=np.nan_to_num(overlap, nan=np.inf),
        )
        verdicts = self.tester.test(objects, attempts)
        row = _row(grasps.q, verdicts.success, verdicts, grasps.penetration_mm)
        row["cpu_s"], row["test_cpu_s"] = made - cpu, time.process_time() - made
        return [row]


def _row(q: np.ndarray, held: np.ndarray, verdicts: Verdicts, penetration_mm: np.ndarray) -> dict[str, Any]:
    """What the tables need to know of a batch of grasps: counts and sums, so that units add up."""
    known = penetration_mm[np.isfinite(penetration_mm)]
    return {
        "generated": len(q),
        "valid": int(held.sum()),
        "penetration_mm": [float(known.sum()), len(known)],
        "q_sum": q[held].sum(axis=0).tolist(),
        "q_square_sum": (q[held] ** 2).sum(axis=0).tolist(),
        "reasons": reason_counts(verdicts),
    }


def _empty(count: int, hand: Hand, why: str) -> dict[str, Any]:
    """A batch that could not be made at all: everything in it fails."""
    zeros = [0.0] * len(hand.joints)
    return {
        "generated": count,
        "valid": 0,
        "penetration_mm": [0.0, 0],
        "q_sum": zeros,
        "q_square_sum": zeros,
        "reasons": {},
        "why": why,
        "cpu_s": 0.0,
        "test_cpu_s": 0.0,
    }


def summary(study: Study, records: Sequence[dict[str, Any]], length: int) -> dict[str, Any]:
    """The tables of all units: by method and number of objects, and by opposition space. Rates in percent."""
    rows = []
    for method in study.methods:
        for n in range(1, length + 1):
            outcomes = [_outcome(records, method, k, n) for k in range(len(study.sequences))]
            rows.append({"method": method, "n": n} | _method_row(outcomes, study.seed))
    return {
        "protocol": study.record()["protocol"],
        "hand": study.hand,
        "seed": study.seed,
        "count": study.count,
        "sequences": [[study.objects[i][0] for i in s] for s in study.sequences],
        "rows": rows,
        "opposition_spaces": _space_rows(study, records),
        "consumed": _consumed_rows(study, records, length),
    }


class Outcome(NamedTuple):
    """What a method did on a sequence: the row of n objects, if it got there, and the chained rate."""

    row: dict[str, Any] | None
    chained: float


def _outcome(records: Sequence[dict[str, Any]], method: str, sequence: int, n: int) -> Outcome:
    mine = [r for r in records if r["method"] == method and r["sequence"] == sequence]
    if method == "multigrasp":
        row = next(r["rows"][0] for r in mine if r["length"] == n)
        return Outcome(row, row["valid"] / row["generated"])
    stages = mine[0]["rows"][:n]
    if len(stages) < n:  # Nothing held before: there was nothing to continue.
        return Outcome(None, 0.0)
    return Outcome(stages[-1], float(np.prod([row["valid"] / row["generated"] for row in stages])))


def _method_row(outcomes: Sequence[Outcome], seed: int) -> dict[str, Any]:
    rows = [o.row for o in outcomes if o.row is not None]
    made = sum(row["generated"] for row in rows if "why" not in row)
    overlap, measured = (sum(row["penetration_mm"][k] for row in rows) for k in (0, 1))
    valid, generated = (np.array([row[k] for row in rows], float) for k in ("valid", "generated"))
    chained = np.array([o.chained for o in outcomes])
    return {
        "generated": int(generated.sum()),
        "valid": int(valid.sum()),
        "sr": _percent(valid, generated),
        "sr_interval": _interval(valid, generated, seed),
        "sr_chained": _percent(chained, np.ones(len(chained))),
        "sr_chained_interval": _interval(chained, np.ones(len(chained)), seed),
        "penetration_mm": overlap / measured if measured else None,
        "diversity_rad": _diversity(rows),
        "seconds_per_256": 256 * sum(row["cpu_s"] for row in rows) / made if made else None,
        "test_seconds_per_256": 256 * sum(row["test_cpu_s"] for row in rows) / made if made else None,
        "sequences": len(rows),
    }


def _percent(part: np.ndarray, whole: np.ndarray) -> float:
    return 100 * float(part.sum() / max(whole.sum(), 1))


def _interval(part: np.ndarray, whole: np.ndarray, seed: int) -> list[float]:
    """95 % of a rate in percent, by a bootstrap over sequences: grasps of one sequence are too much alike."""
    if not len(part):
        return [0.0, 0.0]
    draws = np.random.default_rng([SEQUENCES_STREAM, seed]).integers(len(part), size=(RESAMPLES, len(part)))
    rates = part[draws].sum(axis=1) / np.maximum(whole[draws].sum(axis=1), 1)
    return [100 * float(v) for v in np.percentile(rates, [2.5, 97.5])]


def _diversity(rows: Sequence[dict[str, Any]]) -> float | None:
    """Standard deviation of the joints over all successful grasps, rad; the mean over joints."""
    count = sum(row["valid"] for row in rows)
    if count < 2:
        return None
    mean = np.sum([row["q_sum"] for row in rows], axis=0) / count
    square = np.sum([row["q_square_sum"] for row in rows], axis=0) / count
    return float(np.sqrt(np.maximum(square - mean**2, 0.0)).mean())


def _space_rows(study: Study, records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Success by opposition space, over all stages (the paper's Table II)."""
    totals: dict[tuple[str, str], np.ndarray] = {}
    for record in records:
        for row in record["rows"]:
            for name, counts in row.get("spaces", {}).items():
                key = (record["method"], name)
                totals[key] = totals.get(key, np.zeros(2)) + counts
    return [
        {
            "method": method,
            "opposition_space": name,
            "valid": int(valid),
            "generated": int(generated),
            "sr": 100 * valid / generated,
        }
        for method in study.methods
        for (owner, name), (valid, generated) in sorted(totals.items())
        if owner == method
    ]


def _consumed_rows(study: Study, records: Sequence[dict[str, Any]], length: int) -> list[dict[str, Any]]:
    """Of the grasps that hold n objects, those that leave no opposition space (the paper's Table II)."""
    table = []
    for method in study.methods:
        for n in range(1, length + 1):
            rows = [r["rows"][n - 1] for r in records if r["method"] == method and len(r["rows"]) >= n]
            rows = [row for row in rows if "consumed" in row]
            valid, consumed = (sum(row[k] for row in rows) for k in ("valid", "consumed"))
            if rows:
                rate = 100 * consumed / valid if valid else None
                table.append(
                    {"method": method, "n": n, "consumed": consumed, "valid": valid, "consumed_rate": rate}
                )
    return table
