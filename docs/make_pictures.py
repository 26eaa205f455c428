"""Make the pictures of the README and the docs, from built-in hands and objects only.

python docs/make_pictures.py                # all of them, a few minutes
python docs/make_pictures.py --only grid    # those whose name begins so
"""

import argparse
from collections.abc import Callable
from functools import cache
from pathlib import Path

from PIL import Image

import fistful as ff
from fistful.jaws.candidates import candidates
from fistful.jaws.gripper import Gripper
from fistful.jaws.jaw_run import JawRun
from fistful.jaws.stable_poses import rest, stable_poses
from fistful.jaws.trial import simulate
from fistful.objects.generators import GENERATORS
from fistful.view.jaw_picture import jaw_picture
from fistful.view.picture import grasp_picture, hand_sheet, object_sheet, plan_picture, sheet

FOLDER = Path(__file__).parent / "pictures"
TITLES = {"allegro": "Allegro", "shadow": "Shadow", "leap": "LEAP", "human": "Human hand"}
FIRST = ("mug", "pear", "cube")
GRID = (
    ("allegro", FIRST),
    ("shadow", ("bottle", "egg", "cube")),
    ("leap", ("torus", "pear", "ball")),
    ("human", ("mug", "pear", "die")),
    ("allegro", ("wrench", "egg", "die")),
    ("shadow", ("mug", "banana", "die")),
    ("leap", ("goblet", "duck", "die")),
    ("human", ("duck", "marker", "egg")),
)


@cache
def planned(hand: str, objects: tuple[str, ...]) -> ff.Plan:
    """As `fistful plan OBJECTS --hand HAND --rescale --count 64` plans it; physics holds all objects."""
    ready = [ff.load_object(name, rescale=True) for name in objects]
    plan = ff.plan(ff.load_hand(hand), ready, count=64)
    if plan.stopped or not plan.held().any():
        raise RuntimeError(f"{hand} does not hold {', '.join(objects)}: {plan.stopped}; choose other objects")
    return plan


def grid() -> Image.Image:
    """Different hands that hold three objects each."""
    cells = []
    for hand, objects in GRID:
        picture = grasp_picture(planned(hand, objects), width=420, height=420)
        cells.append((f"{TITLES[hand]}: {', '.join(objects)}", picture))
    return sheet(cells, columns=4)


def objects() -> Image.Image:
    """All built-in objects."""
    meshes = {name: make() for name, make in GENERATORS.items()}
    return object_sheet([(name, mesh.vertices, mesh.faces) for name, mesh in meshes.items()])


def jaws() -> Image.Image:
    """The best planned grasp of a duck of 100 g by soft jaws."""
    item = ff.load_object("duck")
    resting, gripper = rest(item, stable_poses(item)[0], mass=0.1), Gripper(opening=0.06)
    grasp = candidates(resting, gripper, count=20)[0]
    outcome = simulate(resting, grasp, gripper, record=True)
    if not outcome.success:
        raise RuntimeError(f"soft jaws do not hold the duck: {outcome.reason}; choose another object")
    return jaw_picture(JawRun.of(resting, grasp, gripper, outcome))


def pictures() -> dict[str, Callable[[], Image.Image]]:
    """What makes each picture, by its name."""
    hands = {f"hand_{name}": lambda name=name: hand_sheet(ff.load_hand(name)) for name in ff.hand_names()}
    return hands | {
        "objects": objects,
        "plan_allegro": lambda: plan_picture(planned("allegro", FIRST)),
        "grid": grid,
        "jaws": jaws,
    }


def main() -> None:
    """Write docs/pictures/*.png."""
    parser = argparse.ArgumentParser(description="Make the pictures of the README and the docs.")
    parser.add_argument("--only", metavar="NAME", default="", help="pictures whose name begins so")
    only = parser.parse_args().only
    chosen = {name: make for name, make in pictures().items() if name.startswith(only)}
    if not chosen:
        parser.error(f"no picture called {only!r}; there are {', '.join(pictures())}")
    FOLDER.mkdir(exist_ok=True)
    for name, make in chosen.items():
        path = FOLDER / f"{name}.png"
        # 256 colours make a third of the size; k-means keeps shades smooth.
        make().quantize(256, kmeans=3).save(path, optimize=True)
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
