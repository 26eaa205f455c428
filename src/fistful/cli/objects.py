"""`fistful objects`."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fistful.cli.console import (
    RUNS,
    check_picture,
    complain,
    print_json,
    save_picture,
    say_where,
    show,
    steps,
    table,
)
from fistful.errors import FistfulError
from fistful.objects import Units

if TYPE_CHECKING:
    from fistful.objects import Object


@dataclass(frozen=True, kw_only=True)
class Objects:
    """List the built-in objects, or make some ready and say what was found and mended.

    A mesh file (obj, stl, ply, off, glb, gltf; 3mf and dae with fistful[formats]) works like a name.
    Prepared objects are cached by content.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[OBJECT ...]")] = ()
    """Built-in objects, or paths to meshes. Without any, all built-in objects are listed."""
    units: Units = "auto"
    """Unit of the files' coordinates; auto takes metres or millimetres where that is unambiguous."""
    rescale: bool = False
    """Scale the longest side into 0.06-0.10 m, as the SeqGrasp paper does."""
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File for a picture (.png). Default: runs/objects.png; none for the list of built-in objects."""
    no_picture: bool = False
    """Draw no picture."""
    json: bool = False
    """Print one JSON document instead of a table."""

    def run(self) -> None:
        """Print to standard output; write the picture. A bad mesh does not stop the others."""
        check_picture(self.picture)
        if not self.names:
            self._list()
            return
        from fistful.geometry.mesh_distance import compile_kernels
        from fistful.objects import load_object

        with steps("compiling kernels"):
            compile_kernels()
        ready: list[Object] = []
        records: list[dict[str, Any]] = []
        with steps("preparing") as step:
            for k, name in enumerate(self.names):
                step(f"{name} ({k + 1} of {len(self.names)})")
                start = time.process_time()
                try:
                    item = load_object(name, units=self.units, rescale=self.rescale)
                except FistfulError as error:
                    records.append({"name": name, "error": str(error)})
                    complain(str(error))
                    continue
                ready.append(item)
                records.append(_object_record(item, time.process_time() - start))
        path = self._draw([(item.name, item.vertices, item.faces) for item in ready])
        if self.json:
            print_json({"objects": records, "picture": path})
        else:
            _print_objects(ready, [r["cpu_s"] for r in records if "error" not in r])
            say_where("picture", path)
        if len(ready) < len(records):
            raise SystemExit(2)

    def _list(self) -> None:
        """The built-in objects, generated but not prepared."""
        from fistful.objects.generators import GENERATORS

        meshes = {name: make() for name, make in GENERATORS.items()}
        path = self._draw([(name, mesh.vertices, mesh.faces) for name, mesh in meshes.items()])
        if self.json:
            extents = {name: {"extents_m": mesh.extents.tolist()} for name, mesh in meshes.items()}
            print_json({"objects": [{"name": n} | e for n, e in extents.items()], "picture": path})
            return
        rows = table("object", "size mm>>", "cm3>>", "faces>>", "about")
        for name, mesh in meshes.items():
            size = " x ".join(f"{1e3 * e:.0f}" for e in mesh.extents)
            about = (GENERATORS[name].__doc__ or "").splitlines()[0]
            rows.add_row(name, size, f"{1e6 * mesh.volume:.0f}", f"{len(mesh.faces):,}", about)
        show(rows)
        say_where("picture", path)

    def _draw(self, meshes: "list[tuple[str, Any, Any]]") -> Path | None:
        if self.no_picture or not meshes or (self.picture is None and not self.names):
            return None
        from fistful.view.picture import object_sheet

        path = self.picture or RUNS / "objects.png"
        with steps("drawing"):
            sheet = object_sheet(meshes)
        save_picture(sheet, path)
        return path


def _print_objects(ready: "Sequence[Object]", cpu_s: Sequence[float]) -> None:
    rows = table(
        "object",
        "size mm>>",
        "cm3>>",
        "faces>>",
        "bodies>>",
        "grid mm>>",
        "SDF error mean/max mm>>",
        "CPU s>>",
    )
    for item, seconds in zip(ready, cpu_s, strict=True):
        report = item.report
        rows.add_row(
            item.name,
            " x ".join(f"{1e3 * e:.0f}" for e in report.extents_m),
            f"{1e6 * report.volume_m3:.0f}",
            f"{report.faces:,}",
            str(report.bodies),
            f"{1e3 * item.sdf.spacing:.2f}",
            f"{item.sdf_error.mean_mm:.3f} / {item.sdf_error.max_mm:.2f}",
            f"{seconds:.2f}",
        )
    if ready:
        show(rows)
    for item in ready:
        for kind, lines in (("found", item.report.found), ("mended", item.report.mended)):
            for line in lines:
                print(f"{item.name}: {kind}: {line}")


def _object_record(item: "Object", cpu_s: float) -> dict[str, Any]:
    mass = item.mass_properties
    return {
        "name": item.name,
        "report": item.report.to_dict(),
        "scale": item.scale,
        "sdf": {"shape": item.sdf.values.shape, "spacing_mm": 1e3 * item.sdf.spacing},
        "sdf_error_mm": {"mean": item.sdf_error.mean_mm, "max": item.sdf_error.max_mm},
        "volume_m3": mass.volume_m3,
        "com_O": mass.com_O.tolist(),
        "cpu_s": round(cpu_s, 3),
    }
