"""Make the pictures of the README and the docs, from built-in hands and objects only.

python docs/make_pictures.py
"""

from pathlib import Path

import fistful as ff
from fistful.objects.generators import GENERATORS
from fistful.view.picture import hand_sheet, object_sheet, plan_picture

FOLDER = Path(__file__).parent / "pictures"


def main() -> None:
    """Write docs/pictures/*.png."""
    FOLDER.mkdir(exist_ok=True)
    for name in ff.hand_names():
        hand_sheet(ff.load_hand(name)).quantize(256).save(FOLDER / f"hand_{name}.png", optimize=True)
        print(f"hand_{name}.png")
    meshes = {name: make() for name, make in GENERATORS.items()}
    objects = [(name, mesh.vertices, mesh.faces) for name, mesh in meshes.items()]
    object_sheet(objects).quantize(256).save(FOLDER / "objects.png", optimize=True)
    print("objects.png")
    # As `fistful plan mug pear cube --rescale --count 64` plans it.
    three = [ff.load_object(name, rescale=True) for name in ("mug", "pear", "cube")]
    plan = ff.plan(ff.load_hand("allegro"), three, count=64)
    plan_picture(plan).quantize(256).save(FOLDER / "plan_allegro.png", optimize=True)
    print("plan_allegro.png")


if __name__ == "__main__":
    main()
