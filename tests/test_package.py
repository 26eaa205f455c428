"""The package as a whole: what importing costs, who may import whom."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import fistful

SOURCE = Path(fistful.__file__).parent
ROOT = Path(__file__).resolve().parents[1]
# The rooms of the house in the order data walks through them (docs/architecture.md): a room sees only
# those before it. `view`, `doctor` and `cli` may see all; everyone stands on errors and storage.
ORDER = (
    ("errors",),
    ("storage",),
    ("geometry",),
    ("objects",),
    ("hands",),
    ("contact",),
    # The planner does not know the simulator, nor the simulator the optimiser.
    ("synthesis", "physics"),
    ("planning",),
    ("jaws", "arms", "collect", "dataset", "learn"),
    ("view",),
    ("doctor",),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def imports_of(path: Path) -> set[str]:
    """Rooms of fistful that a file imports, wherever in the file the import stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    parts = {tuple(name.split(".")) for name in names}
    return {p[1] for p in parts if p[0] == "fistful" and len(p) > 1 and p[1] in LEVEL}


def files() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_downwards_only(path: Path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert room in LEVEL, f"{room} is a new room: put it in its place in ORDER and in docs/architecture.md"
    for other in imports_of(path) - {room}:
        assert LEVEL[other] < LEVEL[room], f"{path.name} in {room} must not import {other}"


def test_the_import_rule_can_fail(tmp_path: Path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from fistful.hands.hand import Hand\n")
    assert imports_of(bad) == {"hands"}
    bad.write_text("from fistful import errors, storage\nimport fistful.geometry.pose\n")
    assert imports_of(bad) == {"errors", "storage", "geometry"}


@pytest.mark.parametrize("room", ["contact", "synthesis"])
def test_the_planner_does_not_know_the_simulator(room: str):
    for path in (SOURCE / room).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(import|from) mujoco", text, re.MULTILINE), path


def test_import_is_light():
    """Importing loads nothing heavy, so that it stays far below half a second."""
    code = "import sys, json, fistful; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert not {"torch", "numpy", "scipy", "mujoco", "trimesh", "warp", "rich", "tyro"} & set(loaded)


def test_using_hands_and_objects_needs_no_torch():
    use = "import sys, fistful as ff; ff.load_hand('allegro'); ff.load_object('cube')"
    code = f"{use}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_public_names_exist():
    for name in fistful.__all__:
        assert getattr(fistful, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = fistful.nonsense


def test_the_wheel_holds_the_data(tmp_path: Path):
    """What is installed from the wheel, not from this folder, has hands and types."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("fistful-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"fistful/hands/builtin/{hand}.toml" for hand in fistful.hand_names()} <= names
    assert {"fistful/py.typed", "fistful/hands/builtin/allegro_right.xml"} <= names


def test_readme_has_no_placeholder():
    assert "FIGURES" not in (ROOT / "README.md").read_text(encoding="utf-8")


def test_no_machine_path_and_no_pickle():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"""["'](/[a-z]+){2,}""", text), f"{path} names a path of some machine"
        assert "import pickle" not in text and "allow_pickle=True" not in text, path
