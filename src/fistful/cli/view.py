"""`fistful view`."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from fistful.cli.console import check_picture, note, save_picture, say, say_where, steps
from fistful.errors import FistfulError

if TYPE_CHECKING:
    import viser

    from fistful.planning.plan import Plan


@dataclass(frozen=True, kw_only=True)
class View:
    """Look at a plan, a hand, an object or a grasp of jaws in the browser, or make pictures of a plan.

    Without --html, --png or --gif, a page is served on this machine until Ctrl-C.
    """

    run_folder: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RUN]")] = None
    """Folder of a plan, or of `fistful jaws grasp` or `simulate`."""
    hand: Annotated[str | None, tyro.conf.arg(metavar="HAND")] = None
    """Look at a hand instead: a built-in one, or a path to .xml, .urdf or .toml."""
    object: Annotated[str | None, tyro.conf.arg(metavar="OBJECT")] = None
    """Look at an object instead: a built-in one, or a path to a mesh."""
    grasp: int | None = None
    """A grasp of the last finished stage (its number in tables and lists). Default: the best one."""
    protocol: str | None = None
    """Show the verdicts of a later `fistful validate RUN --protocol NAME`."""
    html: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None
    """Write one page that stands alone and opens from disk."""
    png: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None
    """Write a picture of every stage. Needs neither browser nor display."""
    gif: Annotated[Path | None, tyro.conf.arg(metavar="OUT")] = None
    """Write an animation: pre-grasp to squeeze, stage by stage, and a look around."""
    host: str = "127.0.0.1"
    """Address to serve on; 0.0.0.0 lets other machines in."""
    port: int | None = None
    """Port to serve on. Default: any that is free."""
    open: bool = False
    """Open the page in the default browser."""

    def run(self) -> None:
        """Serve until Ctrl-C, or write files."""
        given = [name for name in ("RUN", "--hand", "--object") if self._given(name) is not None]
        if len(given) != 1:
            what = "nothing to look at" if not given else f"{' and '.join(given)} at once"
            raise FistfulError(f"{what}: name one of RUN, --hand NAME, --object NAME")
        check_picture(self.png)
        for path, suffix in ((self.html, ".html"), (self.gif, ".gif")):
            if path is not None and path.suffix.lower() != suffix:
                raise FistfulError(f"--{suffix[1:]} writes a {suffix} file; {path.name!r} is not")
        files = [p for p in (self.html, self.png, self.gif) if p is not None]
        if self.run_folder is not None and _is_jaw_run(self.run_folder):
            self._jaws(self.run_folder)
            return
        if self.run_folder is not None:
            plan = self._plan(self.run_folder)
            if files:
                self._write(plan)
            else:
                self._serve_plan(plan)
            return
        if files or self.grasp is not None or self.protocol is not None:
            raise FistfulError(
                "--html, --png, --gif, --grasp and --protocol are for a RUN; `fistful hands NAME` and "
                "`fistful objects NAME` make pictures of those"
            )
        if self.hand is not None:
            self._serve_hand(self.hand)
        else:
            assert self.object is not None
            self._serve_object(self.object)

    def _given(self, name: str) -> "Path | str | None":
        return {"RUN": self.run_folder, "--hand": self.hand, "--object": self.object}[name]

    def _plan(self, folder: Path) -> "Plan":
        from fistful.planning.run_folder import load_plan

        with steps(f"reading {folder}"):
            plan = load_plan(folder, self.protocol)
        if not plan.stages:
            raise FistfulError(
                f"{folder} has no finished stage yet: {plan.stopped or 'there is nothing to see'}"
            )
        if self.grasp is not None and not 0 <= self.grasp < len(plan.stages[-1]):
            raise FistfulError(
                f"stage {len(plan.stages)} of {folder} has grasps 0 to {len(plan.stages[-1]) - 1}; "
                f"not {self.grasp}"
            )
        valid = [s.good if plan.validation is None else plan.held(n) for n, s in enumerate(plan.stages)]
        if self.grasp is None and not any(v.any() for v in valid):
            what = "is good" if plan.validation is None else f"holds under {plan.validation.protocol.name}"
            raise FistfulError(
                f"no grasp in {folder} {what}: {plan.stopped}; --grasp 0 shows one all the same, and from "
                "there all others"
            )
        if plan.stopped:
            note(f"note: {plan.stopped}")
        return plan

    def _write(self, plan: "Plan") -> None:
        from fistful.storage import write_file
        from fistful.view.animation import plan_animation, save_gif
        from fistful.view.page import plan_page
        from fistful.view.picture import plan_picture

        if self.html is not None:
            with steps("writing the page"):
                text = plan_page(plan, grasp=self.grasp).encode()
                self.html.parent.mkdir(parents=True, exist_ok=True)
                write_file(self.html, lambda file: file.write(text))
            say_where("page", self.html)
        if self.png is not None:
            with steps("drawing"):
                save_picture(plan_picture(plan, grasp=self.grasp), self.png)
            say_where("picture", self.png)
        if self.gif is not None:
            with steps("drawing") as step:
                save_gif(plan_animation(plan, grasp=self.grasp, progress=step), self.gif)
            say_where("animation", self.gif)

    def _jaws(self, folder: Path) -> None:
        from fistful.jaws.jaw_run import load_jaw_run
        from fistful.view.animation import save_gif
        from fistful.view.jaw_picture import jaw_animation, jaw_picture
        from fistful.view.jaw_viewer import JawViewer
        from fistful.view.serving import open_server

        if self.html is not None or self.grasp is not None or self.protocol is not None:
            raise FistfulError(f"{folder} is of jaws: --html, --grasp and --protocol are for plans")
        run = load_jaw_run(folder)
        if not run.recording.frames:
            raise FistfulError(f"{folder} has no frame: {run.record['outcome']['reason']}")
        if self.png is not None:
            save_picture(jaw_picture(run), self.png)
            say_where("picture", self.png)
        if self.gif is not None:
            save_gif(jaw_animation(run), self.gif)
            say_where("animation", self.gif)
        if self.png is None and self.gif is None:
            server = open_server(self.host, self.port, f"fistful jaws: {run.record['object']}")
            JawViewer(server, run)
            self._wait(server)

    def _serve_plan(self, plan: "Plan") -> None:
        from fistful.view.plan_viewer import PlanViewer
        from fistful.view.serving import open_server

        server = open_server(self.host, self.port, f"fistful: {plan.hand.name}")
        with steps("building the page"):
            PlanViewer(server, plan, grasp=self.grasp)
        self._wait(server)

    def _serve_hand(self, name: str) -> None:
        from fistful.hands import load_hand
        from fistful.view.hand_viewer import HandViewer
        from fistful.view.serving import open_server

        with steps(f"describing {name}") as step:
            hand = load_hand(name, progress=step)
        server = open_server(self.host, self.port, f"fistful: {hand.name}")
        HandViewer(server, hand)
        self._wait(server)

    def _serve_object(self, name: str) -> None:
        from fistful.objects import load_object
        from fistful.view.object_viewer import ObjectViewer
        from fistful.view.serving import open_server

        with steps(f"preparing {name}"):
            item = load_object(name)
        server = open_server(self.host, self.port, f"fistful: {item.name}")
        ObjectViewer(server, item)
        self._wait(server)

    def _wait(self, server: "viser.ViserServer") -> None:
        """Until Ctrl-C, which is how this is meant to end."""
        import webbrowser

        from fistful.view.serving import close_server, url_of

        say(f"open {url_of(server)} in a browser; Ctrl-C ends it")
        if self.open:
            webbrowser.open(url_of(server))
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            say("closed")
        finally:
            close_server(server)


def _is_jaw_run(folder: Path) -> bool:
    from fistful.jaws.jaw_run import is_jaw_run

    return is_jaw_run(folder)
