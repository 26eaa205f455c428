"""The page of an object: its mesh, a slice through its distance field, surface points, convex parts."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fistful.geometry.pose import quaternion_from_rotation
from fistful.objects.object import Object
from fistful.objects.parts import convex_parts
from fistful.view.camera import framing
from fistful.view.colours import BLUE, ORANGE, SEQUENCE, SKY
from fistful.view.nodes import creased, look_from, rgb255

if TYPE_CHECKING:
    import viser

SLICE_PIXELS = 256
_GOLDEN = 0.618034
_AXES = {"x": (1, 2, 0), "y": (2, 0, 1), "z": (0, 1, 2)}


class ObjectViewer:
    """An object on a page."""

    def __init__(self, server: "viser.ViserServer", item: Object):
        self.server, self.item = server, item
        self._lock = threading.RLock()
        v, f = creased(item.vertices, item.faces)
        self.mesh = server.scene.add_mesh_simple("/mesh", v, f, color=rgb255(SEQUENCE[0]), opacity=1.0)
        self.parts: list[Any] | None = None
        self.points = server.scene.add_point_cloud(
            "/points",
            item.surface_points.astype(np.float32),
            rgb255(BLUE),
            point_size=0.0012,
            point_shape="circle",
            precision="float32",
            visible=False,
        )
        self.slice: Any = None
        look_from(server, framing(item.vertices, np.array([0.6, -1.0, 0.55]), np.array([0.0, 0.0, 1.0])))
        self._build()

    def _build(self) -> None:
        gui, item, report = self.server.gui, self.item, self.item.report
        size = " x ".join(f"{1e3 * e:.0f}" for e in report.extents_m)
        mass = item.mass_properties.at_density(500.0).mass
        told = [*report.found, *report.mended] or ["nothing to mend"]
        gui.add_markdown(
            f"**{item.name}**: {size} mm, {len(item.faces):,} faces, {1e3 * mass:.0f} g at 500 kg/m³\n\n"
            + "\n".join(f"- {line}" for line in told)
        )
        self.show_mesh = gui.add_checkbox("mesh", True)
        self.opacity = gui.add_slider("opacity", 0.05, 1.0, 0.05, 1.0)
        self.show_points = gui.add_checkbox("surface points", False)
        with gui.add_folder("Distance field"):
            self.axis = gui.add_dropdown("slice along", ("none", "x", "y", "z"))
            self.place = gui.add_slider("at", 0.0, 1.0, 0.01, 0.5)
            error = item.sdf_error
            gui.add_markdown(
                "Blue inside, orange outside, a line every 5 mm. Error near the surface: "
                f"{error.mean_mm:.2f} mm on average, {error.max_mm:.2f} at most."
            )
        with gui.add_folder("Convex parts"):
            self.show_parts = gui.add_checkbox("as physics sees it", False)
            self.apart = gui.add_slider("pulled apart", 0.0, 1.0, 0.02, 0.0)
            self.told = gui.add_markdown("")
        handles = (
            self.show_mesh,
            self.opacity,
            self.show_points,
            self.axis,
            self.place,
            self.show_parts,
            self.apart,
        )
        for handle in handles:
            handle.on_update(self._on(self._draw))

    def _on(self, action: Callable[[], None]) -> Callable[[Any], None]:
        def callback(_: Any) -> None:
            with self._lock:
                action()

        return callback

    def _draw(self) -> None:
        if self.show_parts.value and self.parts is None:
            self._cut()
        with self.server.atomic():
            self.mesh.visible, self.mesh.opacity = self.show_mesh.value, self.opacity.value
            self.points.visible = self.show_points.value
            for node, way in self.parts or ():
                node.visible, node.position = self.show_parts.value, self.apart.value * way
            self._slice()

    def _cut(self) -> None:
        """Convex parts, some seconds if nobody asked for them before."""
        import trimesh

        self.told.content = "cutting ..."
        found = convex_parts(self.item)
        middle = self.item.hull_vertices.mean(axis=0)
        self.parts = []
        for k, corners in enumerate(found.vertices):
            hull = trimesh.Trimesh(corners, process=False).convex_hull
            # Neighbours differ in how light they are, too.
            light = (k * _GOLDEN) % 1.0
            colour = tuple(a + light * (b - a) for a, b in zip(BLUE, SKY if k % 2 else ORANGE, strict=True))
            node = self.server.scene.add_mesh_simple(
                f"/parts/{k}",
                np.asarray(hull.vertices, np.float32),
                np.asarray(hull.faces, np.uint32),
                color=rgb255((colour[0], colour[1], colour[2])),
                flat_shading=True,
            )
            self.parts.append((node, corners.mean(axis=0) - middle))
        self.told.content = f"{len(self.parts)} convex part(s)"

    def _slice(self) -> None:
        if self.axis.value == "none":
            if self.slice is not None:
                self.slice.visible = False
            return
        picture, centre, size, R = slice_picture(self.item, self.axis.value, float(self.place.value))
        self.slice = self.server.scene.add_image(
            "/slice", picture, *size, position=centre, wxyz=quaternion_from_rotation(R), cast_shadow=False
        )


def slice_picture(
    item: Object, axis: str, place: float
) -> tuple[np.ndarray, np.ndarray, tuple[float, float], np.ndarray]:
    """A slice through the distance field: (H, W, 3) uint8, its centre, width and height in m, orientation.

    The picture's right and up are the next two axes in turn; a line every 5 mm, a dark one at the surface.
    """
    u, v, w = _AXES[axis]
    low, high = item.vertices.min(axis=0) - 0.01, item.vertices.max(axis=0) + 0.01
    at = low[w] + place * (high[w] - low[w])
    longest = max(high[u] - low[u], high[v] - low[v])
    across = max(2, round(SLICE_PIXELS * (high[u] - low[u]) / longest))
    down = max(2, round(SLICE_PIXELS * (high[v] - low[v]) / longest))
    a, b = np.meshgrid(np.linspace(low[u], high[u], across), np.linspace(high[v], low[v], down))
    points = np.empty((down, across, 3))
    points[..., u], points[..., v], points[..., w] = a, b, at
    d = item.sdf.query(points.reshape(-1, 3))[0].reshape(down, across)
    strength = np.clip(np.abs(d) / 0.02, 0, 1)[..., None]
    tint = np.where(d[..., None] < 0, np.array(BLUE), np.array(ORANGE))
    colour = 1 + (0.15 + 0.75 * strength) * (tint - 1)
    pixel = longest / SLICE_PIXELS
    colour[np.abs((d + 0.0025) % 0.005 - 0.0025) < 0.6 * pixel] *= 0.8
    colour[np.abs(d) < 1.2 * pixel] = 0.1
    # viser draws a picture with its y axis down.
    R = np.zeros((3, 3))
    R[u, 0], R[v, 1], R[w, 2] = 1.0, -1.0, -1.0
    centre = np.empty(3)
    centre[u], centre[v], centre[w] = (low[u] + high[u]) / 2, (low[v] + high[v]) / 2, at
    return (255 * colour).astype(np.uint8), centre, (high[u] - low[u], high[v] - low[v]), R
