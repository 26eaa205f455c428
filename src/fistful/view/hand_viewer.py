"""The page of a hand: joint sliders, contact surfaces, opposition spaces with a ball that they hold."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fistful.hands.describing import verify_space
from fistful.hands.hand import Hand, OppositionSpace, Surface
from fistful.view.colours import ACTIVE, BLUE, FREE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW
from fistful.view.figure import direction, view_axes, view_of
from fistful.view.nodes import HandNodes, look_from, rgb255

if TYPE_CHECKING:
    import viser

ALL = "all surfaces"
BALLS_MM = (40, 30, 20)
_PALETTE = (ORANGE, SKY, GREEN, VERMILION, PURPLE, BLUE, YELLOW)


class HandViewer:
    """A hand on a page."""

    def __init__(self, server: "viser.ViserServer", hand: Hand):
        self.server, self.hand = server, hand
        self.q = hand.model.open_pose.copy()
        self._lock = threading.RLock()
        self._changer: int | None = None
        self.nodes = HandNodes(server, hand, FREE)
        self.dots = [
            server.scene.add_point_cloud(
                f"/surfaces/{surface.name}",
                np.zeros((len(surface.candidates.body), 3), np.float32),
                rgb255(_PALETTE[k % len(_PALETTE)]),
                point_size=0.0024,
                point_shape="circle",
                precision="float32",
                point_shading="flat",
            )
            for k, surface in enumerate(hand.surfaces)
        ]
        self.ball = server.scene.add_icosphere(
            "/ball", radius=1.0, subdivisions=4, color=rgb255(GREEN), visible=False
        )
        points = hand.poses(self.q).points(hand.skin.body, hand.skin.p_B)
        look_from(server, view_of(hand, points, direction(view_axes(hand), 0.5, 0.25)))
        self._build()
        self._draw()

    def _build(self) -> None:
        gui, hand = self.server.gui, self.hand
        gui.add_markdown(
            f"**{hand.name}**: {hand.summary}\n\n{len(hand.joints)} joints, "
            f"{len(hand.surfaces)} contact surfaces, "
            f"{len(hand.opposition_spaces)} opposition spaces"
        )
        names = (ALL, *(space.name for space in hand.opposition_spaces))
        self.space = gui.add_dropdown("opposition space", names)
        self.space.on_update(self._on(self._choose))
        self.told = gui.add_markdown("")
        self.show_surfaces = gui.add_checkbox("contact surfaces", True)
        self.show_surfaces.on_update(self._on(self._draw))
        gui.add_button("open pose").on_click(self._on(self._open))
        self.sliders: list[Any] = [None] * len(hand.joints)
        for finger in hand.fingers:
            with gui.add_folder(finger.name):
                self._add_sliders(np.flatnonzero(finger.joint_mask))
        rest = [k for k, slider in enumerate(self.sliders) if slider is None]
        if rest:
            with gui.add_folder("other joints"):
                self._add_sliders(np.array(rest))

    def _add_sliders(self, joints: np.ndarray) -> None:
        m = self.hand.model
        for k in joints:
            # Joints that move several fingers have one slider, at the first.
            if self.sliders[k] is None:
                low, high = float(m.lower[k]), float(m.upper[k])
                at = float(np.clip(self.q[k], low, high))
                slider = self.server.gui.add_slider(self.hand.joints[k], low, high, (high - low) / 200, at)
                slider.on_update(self._on(lambda k=k: self._move(k)))
                self.sliders[k] = slider

    def _on(self, action: Callable[[], None]) -> Callable[[Any], None]:
        def callback(_: Any) -> None:
            # What the page itself changes comes back on the same thread.
            if self._changer != threading.get_ident():
                with self._lock:
                    action()

        return callback

    def _move(self, joint: int) -> None:
        self.q[joint] = self.sliders[joint].value
        self.ball.visible = False
        self._draw()

    def _open(self) -> None:
        self.ball.visible = False
        self._take(self.hand.model.open_pose)

    def _take(self, q: np.ndarray) -> None:
        self.q = np.array(q, dtype=float)
        self._changer = threading.get_ident()
        try:
            for slider, value in zip(self.sliders, self.q, strict=True):
                slider.value = float(value)
        finally:
            self._changer = None
        self._draw()

    def _chosen(self) -> OppositionSpace | None:
        return None if self.space.value == ALL else self.hand.space(self.space.value)

    def _choose(self) -> None:
        """Show a space, holding a ball if it can hold one."""
        space = self._chosen()
        self.ball.visible = False
        if space is None:
            self.told.content = ""
            self._take(self.hand.model.open_pose)
            return
        a, b = (surface.candidates for surface in space.surfaces)
        tries = (verify_space(self.hand.model, a, b, space.joint_mask, mm) for mm in BALLS_MM)
        grasp = next((g for g in tries if g is not None), None)
        joints = ", ".join(np.array(self.hand.joints)[space.joint_mask])
        pair = " against ".join(surface.name for surface in space.surfaces)
        ball = (
            "no ball found that it holds" if grasp is None else f"holds a ball of {2e3 * grasp.radius:.0f} mm"
        )
        self.told.content = f"{pair}; {ball}. Joints: {joints}"
        self._take(self.hand.model.open_pose if grasp is None else grasp.q)
        if grasp is not None:
            self.ball.position, self.ball.radius, self.ball.visible = grasp.c_H, grasp.radius, True

    def _draw(self) -> None:
        poses, space = self.hand.poses(self.q), self._chosen()
        with self.server.atomic():
            self.nodes.pose(poses)
            self.nodes.paint(
                [ACTIVE if self._moves(b, space) else FREE for b in range(len(self.hand.model.bodies))]
            )
            for k, (surface, dots) in enumerate(zip(self.hand.surfaces, self.dots, strict=True)):
                dots.visible = self.show_surfaces.value and (space is None or surface in space.surfaces)
                if dots.visible:
                    dots.points = self._lifted(poses, surface)
                    first = space is not None and surface is space.surfaces[0]
                    colour = _PALETTE[k % len(_PALETTE)] if space is None else ORANGE if first else BLUE
                    dots.colors = np.array(rgb255(colour), np.uint8)

    def _lifted(self, poses: Any, surface: Surface) -> np.ndarray:
        """Candidates a little above the skin, where they are seen."""
        c = surface.candidates
        return poses.points(c.body, c.p_B + 1.3e-3 * c.n_B).astype(np.float32)

    def _moves(self, body: int, space: OppositionSpace | None) -> bool:
        if space is None:
            return False
        own = np.any(self.hand.model.coupling[self.hand.model.tree.joint_body == body] != 0, axis=0)
        return bool(np.any(own & space.joint_mask))
