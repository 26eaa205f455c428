"""What a simulated grasp of soft jaws costs, and whether the simulator holds over hundreds of grasps.

    python benchmarks/jaws.py cost MESH [--trials FILE] [--out FILE]
    python benchmarks/jaws.py soak FOLDER [--grasps 500] [--objects 12] [--workers 2] [--out FILE]

`cost`: CPU seconds of a grasp against pad nodes, time step and faces of the object. With `--trials` (a JSON
file of gripper poses, as released with the paper) the grasps are those poses, otherwise antipodal ones.
`soak`: antipodal grasps, half of them shifted sideways, of every mesh in a folder: intersections, inversions,
unconverged steps. Resumes from its output file.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # One thread for each simulation, also in this process.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from fistful.errors import FistfulError
from fistful.jaws.grasp import JawGrasp, Resting
from fistful.jaws.gripper import Gripper, Pad, rectangle, rounded
from fistful.jaws.outcome import JawOutcome
from fistful.jaws.pad_mesh import mesh_pad
from fistful.jaws.robustness import Job, simulate_all
from fistful.jaws.simulation import Settings
from fistful.objects.object import Object, load_object

DENSITY = 300.0
# The released pad is 0.8 of the real one, with the grasp's axis at the centre of its round end.
PAPER_PAD = Pad(outline=rounded(0.016, 0.022) - np.array([0.0, 0.003]))
# m. From the gripper's frame to that centre, in the gripper's description of the data set.
TIP = 0.160098


def lying(item: Object, turn: np.ndarray, mass: float | None = None) -> Resting:
    """The object on the plane after a rotation, over the origin."""
    vertices = item.vertices @ turn.T
    middle = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
    at = np.array([-middle[0], -middle[1], -vertices[:, 2].min()])
    weight = mass or item.mass_properties.volume_m3 * DENSITY
    return Resting(item=item, p_WO=at, R_WO=turn, mass=weight)


def stable_turns(item: Object, count: int) -> list[np.ndarray]:
    """Rotations that put the largest flat sides of the convex hull on the plane."""
    a, b, c = np.moveaxis(item.hull_vertices[item.hull_faces], 1, 0)
    normal = np.cross(b - a, c - a)
    area = np.linalg.norm(normal, axis=1)
    normal = normal / area[:, None]
    # Hull facets are triangulated: areas of (nearly) equal normals belong together.
    total = (np.where(normal @ normal.T > 0.999, area[None], 0.0)).sum(axis=1)
    com = item.mass_properties.com_O
    turns: list[np.ndarray] = []
    for k in np.argsort(-total, kind="stable"):
        turn = _to_down(normal[k])
        low = item.hull_vertices @ turn.T
        foot = low[low[:, 2] < low[:, 2].min() + 1e-3][:, :2]
        centre = (turn @ com)[:2]
        if not ((foot.min(axis=0) <= centre) & (centre <= foot.max(axis=0))).all():
            continue
        if all(np.abs(turn[2] @ other[2]) < 0.99 or turn[2] @ other[2] < 0 for other in turns):
            turns.append(turn)
        if len(turns) == count:
            break
    return turns or [np.eye(3)]


def _to_down(n: np.ndarray) -> np.ndarray:
    """A rotation that takes the unit vector n to -z."""
    x = np.cross(n, [1.0, 0, 0] if abs(n[0]) < 0.7 else [0, 1.0, 0])
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(-n, x), -n])


def antipodal(resting: Resting, gripper: Gripper, count: int, rng: np.random.Generator) -> list[JawGrasp]:
    """Grasps from above whose axis is roughly along a surface normal; some are shifted off the middle."""
    points = resting.item.surface_points @ resting.R_WO.T + resting.p_WO
    normals = resting.item.surface_normals @ resting.R_WO.T
    depth = gripper.pad.outline[:, 1].max()
    found: list[JawGrasp] = []
    for k in rng.permutation(len(points)):
        if len(found) == count:
            break
        n = normals[k]
        level = np.hypot(n[0], n[1])
        if level < 0.8:
            continue
        axis = np.array([n[0], n[1], 0]) / level
        local = points - points[k]
        side = np.abs(local - np.outer(local @ axis, axis))
        strip = (side[:, :2].max(axis=1) < 0.008) & (side[:, 2] < 0.008)
        width = float(np.ptp(local[strip] @ axis))
        if not 0.003 < width < gripper.opening - 0.006:
            continue
        middle = points[k] + axis * ((local[strip] @ axis).max() + (local[strip] @ axis).min()) / 2
        if len(found) % 2:
            middle = middle + np.cross([0, 0, 1.0], axis) * rng.normal() * 0.006
        middle[2] = max(middle[2], depth + 1e-3)
        R = np.stack([axis, np.cross([0, 0, -1.0], axis), [0, 0, -1.0]], axis=1)
        found.append(JawGrasp(p_WG=middle, R_WG=R))
    return found


def physical(path: Path, item: Object, mass: float = 0.003) -> list[tuple[Resting, JawGrasp]]:
    """Poses of the released trials, one for each attempt; nothing but poses is read."""
    cases = {}
    for record in json.loads(path.read_text()):
        cases.setdefault(record["attempt"], (np.array(record["grasp"]), np.array(record["pose"])))
    out = []
    for _, (X_WG, X_WO) in sorted(cases.items()):
        (R, p), (R_WO, at) = ((_rotation(X[:3, :3]), X[:3, 3]) for X in (X_WG, X_WO))
        down = np.array([0, 0, (item.vertices @ R_WO.T + at)[:, 2].min()])
        resting = Resting(item=item, p_WO=at - down, R_WO=R_WO, mass=mass)
        out.append((resting, JawGrasp(p_WG=p + TIP * R[:, 2] - down, R_WG=R)))
    return out


def _rotation(R: np.ndarray) -> np.ndarray:
    U, _, Vt = np.linalg.svd(R)
    return U @ Vt


def summary(outcomes: list[JawOutcome]) -> dict:
    ran = [o for o in outcomes if o.reason != "blocked"]
    cpu = np.array([o.cpu_s for o in ran])
    return {
        "grasps": len(ran),
        "blocked": len(outcomes) - len(ran),
        "cpu_mean_s": round(float(cpu.mean()), 3) if len(cpu) else None,
        "cpu_p95_s": round(float(np.quantile(cpu, 0.95)), 3) if len(cpu) else None,
        "cpu_max_s": round(float(cpu.max()), 3) if len(cpu) else None,
        "steps_mean": round(float(np.mean([o.steps for o in ran])), 1) if ran else None,
        "iterations_per_step": round(
            sum(o.newton_iterations for o in ran) / max(1, sum(o.steps for o in ran)), 2
        ),
        "success": round(float(np.mean([o.success for o in ran])), 3) if ran else None,
        "intersections": sum(o.intersections for o in ran),
        "inverted_tets": sum(o.inverted_tets for o in ran),
        "unconverged_steps": sum(o.unconverged_steps for o in ran),
    }


def cost(args: argparse.Namespace) -> dict:
    gripper = Gripper(pad=PAPER_PAD)
    item = load_object(args.mesh, units=args.units)
    rng = np.random.default_rng(0)
    if args.trials:
        cases = physical(args.trials, item)
    else:
        resting = lying(item, stable_turns(item, 1)[0])
        cases = [(resting, g) for g in antipodal(resting, gripper, args.count, rng)]
    few = cases[:: max(1, len(cases) // args.count)][: args.count]
    warm = [Job(*few[0], gripper, Settings())]
    list(simulate_all(warm))

    def measure(label: str, chosen: list, **changes: float) -> dict:
        settings = replace(Settings(), **changes)
        mesh = mesh_pad(gripper.pad.outline, gripper.pad.thickness, settings.pad_size, settings.pad_layers)
        jobs = [Job(resting, grasp, gripper, settings) for resting, grasp in chosen]
        row = {"label": label, "pad_nodes": len(mesh.nodes), "pad_tets": len(mesh.tets), **changes}
        row |= summary(list(simulate_all(jobs)))
        print(json.dumps(row), file=sys.stderr, flush=True)
        return row

    rows = [measure("default", cases)]
    for size, layers in ((6e-3, 1), (4e-3, 2), (2.5e-3, 2), (2e-3, 3)):
        rows.append(measure("pad", few, pad_size=size, pad_layers=layers))
    for dt in (5e-4, 1e-3, 4e-3):
        rows.append(measure("dt", few, dt=dt, lift_dt=2 * dt))
    for path in args.faces or ():
        other = load_object(path)
        cases = []
        for turn in stable_turns(other, 3):
            resting = lying(other, turn)
            cases += [(resting, g) for g in antipodal(resting, gripper, -(-args.count // 3), rng)]
        if cases:
            rows.append({"faces": len(other.faces)} | measure(other.name, cases))
    return {"rows": rows}


def soak(args: argparse.Namespace) -> dict:
    out: Path = args.out
    done = json.loads(out.read_text()) if out.exists() else {"objects": {}}
    paths = sorted(p for p in args.folder.iterdir() if p.suffix in (".obj", ".stl", ".ply"))
    grippers = (
        Gripper(pad=PAPER_PAD, opening=0.1),
        Gripper(pad=Pad(outline=rectangle(0.016, 0.022)), opening=0.1, stop="energy"),
        Gripper(pad=Pad(youngs_modulus=1e5), opening=0.1, friction=0.8),
    )
    want = -(-args.grasps // args.objects)
    for path in paths:
        if sum(v["grasps"] > 0 for v in done["objects"].values()) >= args.objects:
            break
        if path.name in done["objects"]:
            continue
        begun = time.time()
        try:
            item = load_object(path)
            jobs: list[Job] = []
            rng = np.random.default_rng(len(path.name))
            turns = stable_turns(item, 4)
            for i, turn in enumerate(turns):
                gripper = grippers[i % len(grippers)]
                resting = lying(item, turn)
                share = -(-want // len(turns))
                jobs += [
                    Job(resting, g, gripper, Settings()) for g in antipodal(resting, gripper, share, rng)
                ]
            outcomes = list(simulate_all(jobs, args.workers))
        except FistfulError as error:
            done["objects"][path.name] = {"grasps": 0, "error": str(error)}
        else:
            row: dict = {"faces": len(item.faces), **summary(outcomes)} if outcomes else {"grasps": 0}
            row["reasons"] = dict(Counter(str(o.reason) for o in outcomes))
            row["min_gap_m"] = min((o.min_gap_m for o in outcomes), default=None)
            row["notes"] = sorted({note for o in outcomes for note in o.notes if o.reason != "blocked"})
            done["objects"][path.name] = row
        row = done["objects"][path.name]
        print(path.name, f"{time.time() - begun:.0f} s", json.dumps(row), file=sys.stderr, flush=True)
        stage = out.with_suffix(".part")
        stage.write_text(json.dumps(done, indent=1))
        stage.replace(out)
    rows = [v for v in done["objects"].values() if v["grasps"]]
    done["total"] = {
        "objects": len(rows),
        **{
            k: sum(r[k] for r in rows)
            for k in ("grasps", "intersections", "inverted_tets", "unconverged_steps")
        },
        "cpu_mean_s": round(
            sum(r["cpu_mean_s"] * r["grasps"] for r in rows) / max(1, sum(r["grasps"] for r in rows)), 3
        ),
    }
    return done


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("cost")
    one.add_argument("mesh", type=Path)
    one.add_argument("--units", default="auto")
    one.add_argument("--trials", type=Path)
    one.add_argument("--faces", type=Path, nargs="*", help="further meshes: cost against their faces")
    one.add_argument("--count", type=int, default=6, help="grasps in each row but the first")
    one.add_argument("--out", type=Path)
    one.set_defaults(call=cost)
    two = commands.add_parser("soak")
    two.add_argument("folder", type=Path)
    two.add_argument("--grasps", type=int, default=500)
    two.add_argument("--objects", type=int, default=12)
    two.add_argument("--workers", type=int, default=1)
    two.add_argument("--out", type=Path, default=Path("jaws_soak.json"))
    two.set_defaults(call=soak)
    args = parser.parse_args()
    result = args.call(args)
    text = json.dumps(result, indent=1)
    if args.out:
        args.out.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
