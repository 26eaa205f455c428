"""The page of a plan: every stage and grasp, pre-grasp to squeeze, contacts, and what physics did to it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fistful.hands.kinematics import forward_kinematics
from fistful.physics.protocol import PAPER
from fistful.physics.trial import Film
from fistful.planning.plan import Plan
from fistful.planning.validation import Tester, attempts_of
from fistful.synthesis.weights import TERMS
from fistful.view.colours import BLUE, FREE
from fistful.view.figure import best_views, figure_of, view_of
from fistful.view.moment import PHASES, body_colours, joints_between, moment_of, overlapping_points
from fistful.view.nodes import ContactNodes, HandNodes, ObjectNodes, look_from
from fistful.view.selection import ANY_SPACE, ORDERS, Filter, Gallery

if TYPE_CHECKING:
    import viser

ROWS = 8
"""Lines of the list that are seen at once."""


class PlanViewer:
    """A plan on a page. The state is shared by all who look at it."""

    def __init__(self, server: "viser.ViserServer", plan: Plan, *, grasp: int | None = None):
        self.server, self.plan, self.gallery = server, plan, Gallery(plan)
        last = len(plan.stages) - 1
        self.stage, self.path = (
            last,
            self.gallery.path(last, self.gallery.best(last) if grasp is None else grasp),
        )
        self.first_row = 0
        self._lock, self._turn = threading.RLock(), 0
        self._changer: int | None = None
        """The thread that changes the page just now."""
        self._films: dict[tuple[int, int], Film] = {}
        friction = (PAPER if plan.validation is None else plan.validation.protocol).friction
        contacts = sum(s.grasps.contact_body.shape[1] for s in plan.stages)
        self.hand = HandNodes(server, plan.hand, FREE)
        self.objects = ObjectNodes(server, plan.objects[: len(plan.stages)])
        self.contacts = ContactNodes(server, contacts, friction)
        figure = figure_of(plan, last, self.path[-1])
        look_from(server, view_of(plan.hand, figure.points(figure.moment.q[1]), best_views(figure)[0]))
        self._build()
        self._refresh()

    @property
    def grasp(self) -> int:
        """The grasp that is looked at."""
        return self.path[self.stage]

    def select(self, stage: int, grasp: int) -> None:
        """Look at a grasp."""
        with self._lock:
            self.stop()
            self.stage, self.path = stage, self.gallery.path(stage, grasp)
            self._refresh()

    def go_to(self, stage: int) -> None:
        """Look at another stage of the same sequence, or at the stage's best if the sequence ends before."""
        with self._lock:
            self.stop()
            if stage >= len(self.path):
                self.path = self.gallery.path(stage, self.gallery.best(stage))
            self.stage, self.first_row = stage, 0
            self._refresh()

    def play(self) -> None:
        """Show what the chosen test does to the objects, in real time. Simulates it first."""
        with self._lock:
            self.stop()
            turn, stage, grasp, name = self._turn, self.stage, self.grasp, self.replay.value
        film = self.film(stage, grasp)
        leg = film.names.index(name)
        joints, p_HO, R_HO = film.joints[leg], film.p_HO[leg], film.R_HO[leg]
        begun = time.monotonic()
        for k in range(len(joints)):
            time.sleep(max(0.0, begun + k * film.step_s - time.monotonic()))
            with self._lock:
                if turn != self._turn:
                    return
                with self.server.atomic():
                    self.hand.pose(forward_kinematics(self.plan.hand.model.tree, joints[k]))
                    self.objects.pose(p_HO[k], R_HO[k])
                drift = 1e3 * np.linalg.norm(p_HO[k] - p_HO[0], axis=1)
                told = ", ".join(f"{o.name} {d:.1f}" for o, d in zip(self.plan.objects, drift, strict=False))
                if k % 5 == 0 or k == len(joints) - 1:
                    self.drift.content = f"{k * film.step_s:.2f} s: moved by {told} mm"

    def stop(self) -> None:
        """End the replay: whoever plays sees that it is not its turn any more."""
        self._turn += 1

    def film(self, stage: int, grasp: int) -> Film:
        """The simulation of a grasp; made once."""
        key = stage, grasp
        if key not in self._films:
            v = self.plan.validation
            protocol, parts = (PAPER, "parts") if v is None else (v.protocol, v.parts)
            tester = Tester(self.plan.hand, protocol, parts=parts)
            attempt = attempts_of(self.plan.stages[stage]).take(np.array([grasp]))
            self._films[key] = tester.film(self.plan.objects[: stage + 1], attempt)
        return self._films[key]

    def _build(self) -> None:
        """The panel."""
        gui, plan = self.server.gui, self.plan
        self.title = gui.add_markdown("")
        count = len(plan.stages)
        if count > 1:
            marks = tuple((n + 1, item.name) for n, item in enumerate(plan.objects[:count]))
            self.stage_slider = gui.add_slider("stage", 1, count, 1, count, marks=marks)
            self.stage_slider.on_update(self._on(lambda: self.go_to(int(self.stage_slider.value) - 1)))
        self.phase = gui.add_slider(
            "phase", 0.0, 2.0, 0.05, 1.0, marks=tuple(zip((0.0, 1.0, 2.0), PHASES, strict=True))
        )
        self.phase.on_update(self._on(self._draw))
        self.verdict = gui.add_markdown("")
        with gui.add_folder("Grasps"):
            self.order = gui.add_dropdown("sort by", ORDERS)
            self.kept = gui.add_dropdown("verdict", ("all", "holds", "fails"))
            self.space = gui.add_dropdown("space", (ANY_SPACE,))
            self.deepest = gui.add_slider("max mm", 0.1, 10.0, 0.1, 10.0, hint="Deepest overlap")
            for handle in (self.order, self.kept, self.space, self.deepest):
                handle.on_update(self._on(self._list_from_the_start))
            self.listed = gui.add_markdown("")
            self.rows = [gui.add_button("-") for _ in range(ROWS)]
            for k, button in enumerate(self.rows):
                button.on_click(self._on(lambda k=k: self._pick(k)))
            self.turn = gui.add_button_group("page", ("first", "back", "next"))
            self.turn.on_click(self._on(self._turn_page))
        with gui.add_folder("Show"):
            self.show_contacts = gui.add_checkbox("contacts, cones", True)
            self.show_deep = gui.add_checkbox("overlaps (red)", True)
            self.show_labels = gui.add_checkbox("names", True)
            self.opacity = gui.add_slider("opacity", 0.1, 1.0, 0.05, 0.6, hint="Of the objects")
            for handle in (self.show_contacts, self.show_deep, self.show_labels, self.opacity):
                handle.on_update(self._on(self._draw))
            gui.add_markdown(
                "Links: **blue** move in this stage, **grey** hold something already, **light** are free."
            )
        with gui.add_folder("Replay of the verdict", expand_by_default=False):
            pushes = plan.validation is None or plan.validation.protocol.test == "pushes"
            names = ("close", "+x", "-x", "+y", "-y", "+z", "-z") if pushes else ("close", "shake")
            self.replay = gui.add_dropdown("test", names)
            play, stop = gui.add_button("play"), gui.add_button("stop and go back")
            self.drift = gui.add_markdown("Pushes act along the axes of the hand, from the settled state.")
            play.on_click(lambda _: self.play())
            stop.on_click(self._on(self._draw))
        with gui.add_folder("Energy", expand_by_default=False):
            self.curve: Any = None
            self.terms = gui.add_markdown("")
            self.curve = self._curve()

    def _on(self, action: Callable[[], None]) -> Callable[[Any], None]:
        """A callback that does not answer to what the page itself changes."""

        def callback(_: Any) -> None:
            # What the page itself changes comes back on the same thread; what a user does, on another one.
            if self._changer == threading.get_ident():
                return
            with self._lock:
                action()

        return callback

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            before, self._changer = self._changer, threading.get_ident()
            try:
                with self.server.atomic():
                    yield
            finally:
                self._changer = before

    def _pick(self, place: int) -> None:
        grasps = self.gallery.listed(self.stage, self._filter())
        if self.first_row + place < len(grasps):
            self.select(self.stage, int(grasps[self.first_row + place]))

    def _turn_page(self) -> None:
        rows = len(self.gallery.listed(self.stage, self._filter()))
        step = {"first": -self.first_row, "back": -ROWS, "next": ROWS}[self.turn.value]
        last = max(0, (rows - 1) // ROWS * ROWS)
        self.first_row = int(np.clip(self.first_row + step, 0, last))
        with self._changing():
            self._list()

    def _list_from_the_start(self) -> None:
        self.first_row = 0
        with self._changing():
            self._list()

    def _filter(self) -> Filter:
        most = float(self.deepest.value)
        return Filter(
            order=self.order.value,
            verdict=self.kept.value,
            space=self.space.value,
            max_penetration_mm=np.inf if most >= self.deepest.max else most,
        )

    def _refresh(self) -> None:
        """All that depends on which grasp it is."""
        plan, stage = self.plan, self.plan.stages[self.stage]
        with self._changing():
            if len(plan.stages) > 1:
                self.stage_slider.value = self.stage + 1
            used = sorted({stage.spaces[t] for t in np.unique(stage.grasps.space)})
            if tuple(self.space.options) != (ANY_SPACE, *used):
                self.space.options = (ANY_SPACE, *used)
                self.space.value = ANY_SPACE
            self.title.content = self._heading()
            row = self.gallery.row(self.stage, self.grasp)
            physics = self.gallery.explanation(self.stage, self.grasp)
            self.verdict.content = (
                f"**Grasp {self.grasp}** of stage {self.stage + 1}: {row.space}, quality {row.quality:.2f}, "
                f"overlap {row.penetration_mm:.1f} mm. Physics: {physics}."
            )
            energy = stage.grasps.energy[self.grasp]
            terms = ", ".join(f"{name} {value:.3g}" for name, value in zip(TERMS, energy, strict=True))
            self.terms.content = f"Energy terms at the end: {terms}."
            self.curve.data = self._curve_data()
            self._list()
        self._draw()

    def _heading(self) -> str:
        plan, s = self.plan, self.plan.stages[self.stage]
        held = self.gallery.holding(self.stage)
        how = (
            "not tried in physics"
            if plan.validation is None
            else f"{held} of {len(s)} hold ({plan.validation.protocol.name})"
        )
        names = " → ".join(item.name for item in plan.objects)
        stage = f"Stage {self.stage + 1} of {len(plan.objects)}, **{s.object_name}**: {how}"
        return f"**{plan.hand.name}**: {names}\n\n{stage}"

    def _list(self) -> None:
        rows = self.gallery.listed(self.stage, self._filter())
        seen = [self.gallery.row(self.stage, int(g)) for g in rows[self.first_row : self.first_row + ROWS]]
        total = len(self.plan.stages[self.stage])
        self.listed.content = (
            f"{self.first_row + 1} to {self.first_row + len(seen)} of {len(rows)} ({total} in all)"
            if len(rows)
            else f"none of {total} grasps passes the filter"
        )
        for k, button in enumerate(self.rows):
            button.visible = k < len(seen)
            if k < len(seen):
                button.label = str(seen[k])
                button.color = (0, 90, 156) if seen[k].grasp == self.grasp else (95, 105, 115)

    def _draw(self) -> None:
        """The scene."""
        self.stop()
        plan, moment = self.plan, moment_of(self.plan, self.stage, self.grasp)
        q = joints_between(moment, float(self.phase.value))
        with self._changing():
            self.hand.pose(plan.hand.poses(q))
            self.hand.paint(body_colours(plan.hand, moment))
            self.objects.pose(moment.p_HO, moment.R_HO)
            self.objects.show(labels=self.show_labels.value, opacity=float(self.opacity.value))
            self.contacts.place(moment.contacts)
            self.contacts.show(self.show_contacts.value, self.show_deep.value)
            if self.show_deep.value:
                self.contacts.mark(overlapping_points(plan.hand, plan.objects, moment, q))

    def _curve_data(self) -> tuple[np.ndarray, np.ndarray]:
        curve = self.plan.stages[self.stage].grasps.curve[self.grasp]
        kept = curve[np.isfinite(curve) & (curve < 1e29)].astype(float)
        if not len(kept):
            return np.array([0.0, 1.0]), np.array([0.0, 0.0])
        return np.arange(len(kept), dtype=float), np.log10(np.maximum(kept, 1e-6))

    def _curve(self) -> Any:
        from viser import uplot

        blue = "#{:02x}{:02x}{:02x}".format(*(round(255 * c) for c in BLUE))
        unit = "cost, log10 mm²" if self.plan.settings.method == "fast" else "energy, log10"
        return self.server.gui.add_uplot(
            data=self._curve_data(),
            series=(uplot.Series(label="step"), uplot.Series(label=unit, stroke=blue, width=2)),
            title=f"{unit}, over the steps of the optimiser",
            scales={"x": uplot.Scale(time=False), "y": uplot.Scale()},
            aspect=1.6,
        )
