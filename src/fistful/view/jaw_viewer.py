"""The page of a simulated grasp of soft jaws: pads coloured by strain energy, forces over time, replay."""

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from fistful.geometry.pose import quaternion_from_rotation
from fistful.jaws.jaw_run import JawRun
from fistful.view.camera import framing
from fistful.view.colours import BLUE, VERMILION
from fistful.view.fingers import FINGER, fingers
from fistful.view.nodes import creased, look_from, rgb255
from fistful.view.strain import OBJECT, largest_energy, patches

if TYPE_CHECKING:
    import viser

SLOW = 0.25
"""The replay runs at this part of real time: a squeeze takes a tenth of a second."""


class JawViewer:
    """A grasp on a page."""

    def __init__(self, server: "viser.ViserServer", run: JawRun):
        self.server, self.run, self.largest = server, run, largest_energy(run)
        self._lock, self._turn = threading.RLock(), 0
        v, f = creased(run.vertices_O, run.faces)
        self.object = server.scene.add_mesh_simple("/object", v, f, color=rgb255(OBJECT))
        server.scene.add_grid("/plane", 0.3, 0.3, cell_size=0.01, section_size=0.05)
        first, last = run.recording.frames[0], run.recording.frames[-1]
        seen = [f.p_WO + run.vertices_O @ np.asarray(f.R_WO).T for f in (first, last)]
        seen = np.concatenate([*seen, first.nodes_W.reshape(-1, 3), last.nodes_W.reshape(-1, 3)])
        axis = np.asarray(run.record["R_WG"])[:, 0]
        towards = 0.7 * axis + np.cross(axis, [0.0, 0.0, 1.0]) + np.array([0, 0, 0.45])
        look_from(server, framing(seen, towards, np.array([0.0, 0.0, 1.0])))
        self.pads: dict[str, Any] = {}
        self._build()
        self.show(len(run.recording.frames) - 1)

    def show(self, number: int) -> None:
        """One frame. The pads are small: they are sent anew."""
        run, frame = self.run, self.run.recording.frames[number]
        with self._lock, self.server.atomic():
            self.object.position, self.object.wxyz = frame.p_WO, quaternion_from_rotation(frame.R_WO)
            shown = {}
            for jaw in range(2):
                for patch in patches(run, frame, jaw, self.largest):
                    name = f"/pads/{jaw}/{patch.shade}"
                    vertices, faces = patch.vertices_W.astype(np.float32), patch.faces.astype(np.uint32)
                    colour = rgb255(patch.colour)
                    shown[name] = self.server.scene.add_mesh_simple(name, vertices, faces, color=colour)
            for k, box in enumerate(fingers(run, frame)):
                name, turn = f"/fingers/{k}", quaternion_from_rotation(box.R_WG)
                sides, colour = tuple(2 * box.half), rgb255(FINGER)
                shown[name] = self.server.scene.add_box(
                    name, color=colour, dimensions=sides, position=box.centre_W, wxyz=turn
                )
            for name in self.pads.keys() - shown.keys():
                self.pads[name].remove()
            self.pads = shown
            place = min(number, len(run.time_s) - 1)
            force = run.force_N[place] if place >= 0 else np.zeros(2)
            area = run.area_mm2[place] if place >= 0 else np.zeros(2)
            self.told.content = (
                f"{1e3 * frame.time:.0f} ms: forces {force[0]:.1f} and {force[1]:.1f} N, contact areas "
                f"{area[0]:.0f} and {area[1]:.0f} mm²"
            )

    def play(self) -> None:
        """Everything from the start, slowly."""
        frames = self.run.recording.frames
        with self._lock:
            self._turn += 1
            turn = self._turn
        begun = time.monotonic()
        while turn == self._turn:
            now = frames[0].time + SLOW * (time.monotonic() - begun)
            number = int(np.searchsorted([f.time for f in frames], now))
            if number >= len(frames):
                break
            self.slider.value = number
            time.sleep(0.04)

    def stop(self) -> None:
        """End the replay."""
        self._turn += 1

    def _build(self) -> None:
        gui, record = self.server.gui, self.run.record
        o, pad = record["outcome"], record["gripper"]["pad"]
        gui.add_markdown(
            f"**{record['object']}**, {1e3 * record['mass']:.0f} g: **{o['reason']}**\n\nMoved by "
            f"{o['squeeze_displacement_mm']:.1f} mm and {o['squeeze_rotation_deg']:.1f} deg while squeezed, "
            f"{o['lift_displacement_mm']:.1f} mm and {o['lift_rotation_deg']:.1f} deg while lifted. "
            f"E {pad['youngs_modulus']:.0e} Pa, friction {record['gripper']['friction']:g}."
        )
        last = len(self.run.recording.frames) - 1
        self.slider = gui.add_slider("frame", 0, max(last, 1), 1, last)
        self.slider.on_update(lambda _: self.show(min(int(self.slider.value), last)))
        gui.add_button("play slowly").on_click(lambda _: self.play())
        gui.add_button("stop").on_click(lambda _: self.stop())
        self.told = gui.add_markdown("")
        gui.add_markdown(
            f"Pads: light without strain, dark at {self.largest / 1e3:.1f} kJ/m³ of strain energy."
        )
        if len(self.run.time_s) > 1:
            self._add_plot("contact force, N", self.run.force_N)
            self._add_plot("contact area, mm²", self.run.area_mm2)

    def _add_plot(self, title: str, values: np.ndarray) -> None:
        from viser import uplot

        colours = ["#{:02x}{:02x}{:02x}".format(*rgb255(c)) for c in (BLUE, VERMILION)]
        series: list[Any] = [uplot.Series(label="ms")]
        series += [uplot.Series(label=f"jaw {k}", stroke=colours[k], width=2) for k in range(2)]
        data = (1e3 * self.run.time_s, *(np.ascontiguousarray(values[:, k], float) for k in range(2)))
        scales = {"x": uplot.Scale(time=False), "y": uplot.Scale()}
        self.server.gui.add_uplot(data=data, series=tuple(series), title=title, scales=scales, aspect=1.8)
