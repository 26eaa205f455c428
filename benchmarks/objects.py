"""What it costs to make a mesh ready, and how accurate its distance field is.

python benchmarks/objects.py --objects DIR --json OUT

Per mesh of the folder, at true scale and rescaled to 0.06-0.10 m: CPU seconds, growth of peak memory, grid,
and the error of the field against the exact distance at 20,000 points within 5 mm of the surface (drawn here,
not by the package). Then the CPU seconds of one shape subdivided from 2,000 to 200,000 faces. Kernels are
compiled before the clock starts; the cache is a temporary folder.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import trimesh

from fistful.geometry.mesh_distance import signed_distance
from fistful.objects import Object, load_object

BARS = {"mean_mm": 0.3, "max_mm": 1.5, "cpu_s": 3.0}


def field_error(thing: Object, count: int = 20_000) -> dict[str, float]:
    points, face = trimesh.sample.sample_surface(thing.mesh, count, seed=1)
    offset = np.random.default_rng(2).uniform(-0.005, 0.005, (count, 1))
    points = points + offset * thing.mesh.face_normals[face]
    exact = signed_distance(thing.vertices, thing.faces, points).values
    error_mm = 1e3 * np.abs(thing.sdf.query(points)[0] - exact)
    return {
        "mean_mm": float(error_mm.mean()),
        "p99_mm": float(np.quantile(error_mm, 0.99)),
        "max_mm": float(error_mm.max()),
    }


def measure(task: tuple[str, bool]) -> dict:
    """One mesh in a fresh process, so that its peak memory is its own."""
    path, rescale = task
    warm_up()
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    thing = load_object(path, rescale=rescale)
    cpu = time.process_time() - start
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb
    start = time.process_time()
    load_object(path, rescale=rescale)
    cached = time.process_time() - start
    return {
        "name": Path(path).stem,
        "rescaled": rescale,
        "faces": len(thing.faces),
        "longest_mm": 1e3 * float(thing.mesh.extents.max()),
        "cpu_s": cpu,
        "cached_cpu_s": cached,
        "peak_mb": peak_mb,
        "grid": list(thing.sdf.shape),
        "spacing_mm": 1e3 * thing.sdf.spacing,
        **field_error(thing),
        "reported_mean_mm": thing.sdf_error.mean_mm,
        "reported_max_mm": thing.sdf_error.max_mm,
        "found": list(thing.report.found),
        "mended": list(thing.report.mended),
    }


def warm_up() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm.obj"
        trimesh.creation.icosphere(1, 0.03).export(path)
        load_object(path, voxels=1000, use_cache=False)


def scale_with_faces() -> list[dict]:
    """A knobbly torus, meshed finer and finer."""
    rows = []
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        for faces in (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000):
            around = round((faces / 4) ** 0.5)
            mesh = trimesh.creation.torus(0.035, 0.015, 2 * around, around)
            x, y, z = mesh.vertices.T
            mesh.vertices *= (1 + 0.05 * np.sin(150 * x) * np.cos(130 * y) * np.cos(170 * z))[:, None]
            path = Path(folder) / f"torus{faces}.ply"
            mesh.export(path)
            start = time.process_time()
            thing = load_object(path, use_cache=False)
            cpu = time.process_time() - start
            rows.append(
                {"faces": len(thing.faces), "cpu_s": cpu, "us_per_face": 1e6 * cpu / len(thing.faces)}
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=Path, required=True, help="folder of .obj meshes")
    parser.add_argument("--json", type=Path, required=True, help="where to write the results")
    options = parser.parse_args()
    paths = sorted(options.objects.glob("*.obj"))
    if not paths:
        parser.error(f"no .obj files in {options.objects}")
    rows = []
    head = f"{'object':44} {'mm':>6} {'grid':>13} {'h mm':>5} {'mean':>6} {'max':>6} {'CPU s':>6}"
    print(f"{head} {'cached':>6} {'MB':>5}")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FISTFUL_CACHE"] = cache
        context = multiprocessing.get_context("spawn")
        with context.Pool(1, maxtasksperchild=1) as pool:
            tasks = [(str(path), rescale) for rescale in (False, True) for path in paths]
            for row in pool.imap(measure, tasks, chunksize=1):
                rows.append(row)
                grid = "x".join(map(str, row["grid"]))
                name = row["name"][:36] + (" (scaled)" if row["rescaled"] else "")
                print(
                    f"{name:44} {row['longest_mm']:6.0f} {grid:>13} {row['spacing_mm']:5.2f} "
                    f"{row['mean_mm']:6.3f} {row['max_mm']:6.3f} {row['cpu_s']:6.2f} "
                    f"{row['cached_cpu_s']:6.3f} {row['peak_mb']:5.0f}",
                    flush=True,
                )
    summary = {}
    for rescaled in (False, True):
        some = [row for row in rows if row["rescaled"] == rescaled]
        summary["rescaled" if rescaled else "true_scale"] = {
            "objects": len(some),
            "worst_mean_mm": max(row["mean_mm"] for row in some),
            "worst_max_mm": max(row["max_mm"] for row in some),
            "median_cpu_s": statistics.median(row["cpu_s"] for row in some),
            "worst_cpu_s": max(row["cpu_s"] for row in some),
            "median_cached_cpu_s": statistics.median(row["cached_cpu_s"] for row in some),
            "worst_peak_mb": max(row["peak_mb"] for row in some),
        }
    scaling = scale_with_faces()
    for name, values in summary.items():
        print(name, ", ".join(f"{k} {v:.4g}" for k, v in values.items()))
    for row in scaling:
        print(f"{row['faces']:8,} faces {row['cpu_s']:6.2f} s CPU {row['us_per_face']:8.1f} us per face")
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
    result = {"bars": BARS, "machine": machine, "summary": summary, "scaling": scaling, "objects": rows}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
