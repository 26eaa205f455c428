"""What a simulated grasp of soft jaws costs, and whether the simulator holds over hundreds of grasps.

    python benchmarks/jaws.py cost --data DIR [--faces MESH ...] [--count 6] [--out FILE]
    python benchmarks/jaws.py soak FOLDER [--grasps 500] [--objects 12] [--workers 1] [--out FILE]

cost: CPU seconds of a grasp. First all recorded poses of the physical trials in DIR (see
fistful.jaws.trials), closing at the default speed and at that of the trials' gripper; then, on --count of
them at the default speed, against the nodes of the pads and the time step; then, on planned grasps, against
faces: each mesh is simplified to several numbers of them, and the notes say how far its surface moved.
soak: planned grasps in up to four stable poses of every mesh of a folder, half of them shifted sideways, with
three grippers in turn, until --objects of them have been simulated: intersections, inversions, unconverged
steps. The same command goes on from its output file.

Both print Markdown; --out is JSON.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # One thread for each simulation, also in this process.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from fistful import __version__
from fistful.errors import FistfulError, JawsError
from fistful.jaws.candidates import candidates
from fistful.jaws.contact_mesh import contact_mesh
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper, Pad, rectangle
from fistful.jaws.job import Job, simulate_all
from fistful.jaws.outcome import JawOutcome, Reason
from fistful.jaws.pad_mesh import mesh_pad
from fistful.jaws.simulation import Settings
from fistful.jaws.stable_poses import rest, stable_poses
from fistful.jaws.trials import GRIPPER, read_trials
from fistful.objects import Object, load_object

DENSITY = 300.0  # kg/m3. Household things are hollow, or of wood.
MESHES = (".obj", ".ply", ".stl")
FACES = (1000, 2000, 4000)
PADS = ((6e-3, 1), (4e-3, 2), (2.5e-3, 2), (2e-3, 3))  # m, edges; layers
STEPS = (5e-4, 1e-3, 4e-3)  # s
POSES = 4  # of each object of the soak
SIDEWAYS = 6e-3  # m, standard deviation: most of the shifted grasps meet an edge, or half a pad
SOAKED = (
    replace(GRIPPER, opening=0.1, closing_speed=Gripper().closing_speed),
    Gripper(pad=Pad(outline=rectangle(0.016, 0.022)), opening=0.1, stop="energy"),
    Gripper(pad=Pad(youngs_modulus=1e5), opening=0.1, friction=0.8),
)
"""The paper's pads; rectangular ones that stop by energy; soft ones that stick."""
FAILURES = ("intersections", "inverted_tets", "unconverged_steps")

Case = tuple[Resting, JawGrasp]


def lying(item: Object, most: int) -> Iterator[Resting]:
    """The object in its most likely stable poses."""
    mass = item.mass_properties.at_density(DENSITY).mass
    return (rest(item, pose, mass) for pose in stable_poses(item)[:most])


def shifted(grasp: JawGrasp, by: float) -> JawGrasp:
    """A grasp moved level and across its closing axis by so many m."""
    across = np.cross([0, 0, 1.0], grasp.axis_W)
    return grasp.moved(by * across / np.linalg.norm(across), np.zeros(3))


def summary(outcomes: Sequence[JawOutcome]) -> dict[str, Any]:
    """Cost and failures of grasps; those that could not start are only counted."""
    ran = [o for o in outcomes if o.reason is not Reason.BLOCKED]
    row: dict[str, Any] = {"grasps": len(ran), "blocked": len(outcomes) - len(ran)}
    if not ran:
        return row
    cpu, steps = np.array([o.cpu_s for o in ran]), sum(o.steps for o in ran)
    return row | {
        "cpu_mean_s": round(float(cpu.mean()), 3),
        "cpu_p95_s": round(float(np.quantile(cpu, 0.95)), 3),
        "cpu_max_s": round(float(cpu.max()), 3),
        "steps_mean": round(steps / len(ran), 1),
        "iterations_per_step": round(sum(o.newton_iterations for o in ran) / max(1, steps), 2),
        "success": round(float(np.mean([o.success for o in ran])), 3),
        **{name: sum(getattr(o, name) for o in ran) for name in FAILURES},
    }


def measured(label: str, cases: Sequence[Case], gripper: Gripper, **changes: float) -> dict[str, Any]:
    """A row of `cost`; `changes` are of the settings."""
    settings = replace(Settings(), **changes)
    pad = mesh_pad(gripper.pad.outline, gripper.pad.thickness, settings.pad_size, settings.pad_layers)
    row: dict[str, Any] = {"label": label, "pad_nodes": len(pad.nodes), "dt_ms": 1e3 * settings.dt, **changes}
    try:
        # Beforehand, as it is kept: checking and simplifying a mesh is no cost of its first grasp.
        meshes = [contact_mesh(resting.item, settings.max_faces) for resting, _ in cases]
        row["faces"] = max(len(mesh.faces) for mesh in meshes)
        row["notes"] = sorted({note for mesh in meshes for note in mesh.notes})
        row |= summary(list(simulate_all(Job(*case, gripper, settings) for case in cases)))
    except FistfulError as error:
        row |= {"grasps": 0, "reason": str(error)}
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def cost(options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds of a grasp against pad nodes, time step and faces."""
    every = [(physical.resting, physical.grasp) for physical in read_trials(options.data)]
    few = every[:: max(1, len(every) // options.count)][: options.count]
    gripper = replace(GRIPPER, closing_speed=Gripper().closing_speed)
    list(simulate_all([Job(*few[0], gripper, Settings())]))  # Kernels are compiled.
    rows = [
        measured(f"recorded, {1e3 * gripper.closing_speed:.0f} mm/s", every, gripper),
        measured(f"recorded, {1e3 * GRIPPER.closing_speed:.0f} mm/s", every, GRIPPER),
        measured("some of them", few, gripper),
        *(measured("pad", few, gripper, pad_size=size, pad_layers=layers) for size, layers in PADS),
        *(measured("time step", few, gripper, dt=dt, lift_dt=2 * dt) for dt in STEPS),
    ]
    for name in options.faces:
        item = load_object(name)
        cases = [(lies, g) for lies in lying(item, 1) for g in candidates(lies, gripper, count=options.count)]
        if not cases:
            rows.append({"label": item.name, "grasps": 0, "reason": "no candidates"})
            continue
        fewer = [n for n in FACES if n < len(item.faces)] or [len(item.faces)]
        rows += [measured(item.name, cases, gripper, max_faces=n) for n in fewer]
    columns = ("label", "pad_nodes", "dt_ms", "faces", "grasps", "blocked", "cpu_mean_s", "cpu_max_s",
               "steps_mean", "iterations_per_step", "success", "unconverged_steps", "reason")  # fmt: skip
    print(markdown(rows, columns))
    return {"rows": rows}


def jobs_of(item: Object, wanted: int) -> list[Job]:
    """Planned grasps in several stable poses, every second one shifted sideways."""
    rng, jobs = np.random.default_rng(list(item.name.encode())), []
    places = list(lying(item, POSES))
    for k, lies in enumerate(places):
        gripper = SOAKED[k % len(SOAKED)]
        for grasp in candidates(lies, gripper, count=-(-wanted // len(places))):
            moved = shifted(grasp, SIDEWAYS * rng.normal()) if len(jobs) % 2 else grasp
            jobs.append(Job(lies, moved, gripper, Settings()))
    return jobs


def soaked(path: Path, wanted: int, workers: int) -> dict[str, Any]:
    """A row of `soak`; without grasps it has the reason."""
    try:
        item = load_object(path)
        faces = len(contact_mesh(item, Settings().max_faces).faces)
        jobs = jobs_of(item, wanted)
        if not jobs:
            raise JawsError(f"no candidates in {POSES} stable poses or fewer")
        outcomes = list(simulate_all(jobs, workers))
    except FistfulError as error:
        return {"grasps": 0, "reason": str(error)}
    row = {"faces": faces, **summary(outcomes)}
    row["reasons"] = dict(Counter(str(o.reason) for o in outcomes))
    if not row["grasps"]:
        return row | {"reason": f"all blocked; the first: {outcomes[0].notes[0]}"}
    ran = [o for o in outcomes if o.reason is not Reason.BLOCKED]
    gap = min(o.min_gap_m for o in ran)
    row["min_gap_m"] = gap if np.isfinite(gap) else None
    row["notes"] = sorted({note for o in ran for note in o.notes})
    return row


def soak(options: argparse.Namespace) -> dict[str, Any]:
    """Intersections, inversions and unconverged steps over many grasps of many meshes."""
    wanted = -(-options.grasps // options.objects)
    work = {
        "fistful": __version__,
        "folder": options.folder.name,
        "grasps_per_object": wanted,
        "grippers": [gripper.record() for gripper in SOAKED],
        "settings": asdict(Settings()),
    }
    done = json.loads(options.out.read_text()) if options.out.exists() else {**work, "objects": {}}
    if any(done.get(k) != v for k, v in json.loads(json.dumps(work)).items()):
        raise SystemExit(f"{options.out} is of other work; name another --out, or remove it")
    rows = done["objects"]
    paths = sorted(p for p in options.folder.iterdir() if p.suffix in MESHES)
    if not paths:
        raise SystemExit(f"{options.folder} holds no mesh; known are {', '.join(MESHES)}")
    for path in paths:
        if sum(row["grasps"] > 0 for row in rows.values()) >= options.objects:
            break
        if path.name in rows:
            continue
        begun = time.time()
        rows[path.name] = soaked(path, wanted, options.workers)
        said = f"{path.name}, {time.time() - begun:.0f} s: {json.dumps(rows[path.name])}"
        print(said, file=sys.stderr, flush=True)
        write(options.out, done)
    done["total"] = total([row for row in rows.values() if row["grasps"]])
    named = [{"object": name, **row} for name, row in rows.items()]
    columns = ("object", "faces", "grasps", "blocked", "cpu_mean_s", "cpu_max_s", "success", *FAILURES)
    print(markdown([row for row in named if row["grasps"]], columns), end="\n\n")
    print(markdown([{"total": k, "": v} for k, v in done["total"].items()], ("total", "")))
    if left_out := [row for row in named if not row["grasps"]]:
        print("\n" + markdown(left_out, ("object", "reason")))
    return done


def total(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Over all objects that were simulated."""
    sums = {name: sum(row[name] for row in rows) for name in ("grasps", "blocked", *FAILURES)}
    if not rows:
        return {"objects": 0, **sums}
    means = [row["cpu_mean_s"] for row in rows]
    return {
        "objects": len(rows),
        **sums,
        "cpu_mean_s": round(float(np.average(means, weights=[row["grasps"] for row in rows])), 3),
        "cpu_object_mean_min": min(means),
        "cpu_object_mean_max": max(means),
        "cpu_max_s": max(row["cpu_max_s"] for row in rows),
    }


def markdown(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """A table; columns that no row has are left out."""
    columns = [c for c in columns if any(c in row for row in rows)]
    cells = [columns, ["---"] * len(columns), *([str(row.get(c, "")) for c in columns] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def write(path: Path, result: dict[str, Any]) -> None:
    """All of it or nothing, so that a run that is killed can go on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stage = path.with_suffix(".part")
    stage.write_text(json.dumps(result, indent=1) + "\n")
    stage.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    studies = parser.add_subparsers(required=True)
    one = studies.add_parser("cost", help=cost.__doc__)
    one.set_defaults(run=cost)
    one.add_argument("--data", type=Path, required=True, help="folder of physical trials")
    one.add_argument(
        "--faces", nargs="+", default=["die"], metavar="MESH", help="files or names, default die"
    )
    one.add_argument("--count", type=int, default=6, help="grasps in all rows but the first two, default 6")
    one.add_argument("--out", type=Path, help="where to write the results")
    two = studies.add_parser("soak", help=soak.__doc__)
    two.set_defaults(run=soak)
    two.add_argument("folder", type=Path, help="of meshes")
    two.add_argument("--grasps", type=int, default=500, help="of all objects together, default 500")
    two.add_argument("--objects", type=int, default=12, help="to simulate, default 12")
    two.add_argument("--workers", type=int, default=1, help="default 1: CPU seconds are of grasps only")
    two.add_argument("--out", type=Path, default=Path("jaws_soak.json"), help="default jaws_soak.json")
    options = parser.parse_args()
    result = options.run(options)
    if options.out:
        write(options.out, result)


if __name__ == "__main__":
    main()
