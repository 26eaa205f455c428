"""The examples run as they are, and say what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
SAYS = {
    "01_hand": "thumb-index: thumb_pad",
    "02_object": "at 500 kg/m3: 63 g",
    "03_your_own_hand": "left-right: left_pad - right_pad",
    "04_plan": "from three chosen grasps: ",
    "05_validate": "strict: ",
    "06_soft_jaws": "0 intersections",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_example_runs(path: Path, tmp_path: Path):
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert SAYS[path.stem] in done.stdout
