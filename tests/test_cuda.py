"""Every kernel compiles for CUDA. Neither a GPU nor a driver is needed: Warp carries NVIDIA's compiler."""

from importlib import import_module
from pathlib import Path

import pytest

import fistful
from fistful.geometry.quiet_warp import wp

SOURCE = Path(fistful.__file__).parent
FILES = sorted(SOURCE.rglob("*_kernels.py"))


def module_name(path: Path) -> str:
    return ".".join(("fistful", *path.relative_to(SOURCE).with_suffix("").parts))


def kernels(name: str) -> list[str]:
    import_module(name)
    return sorted(wp.get_module(name).kernels)


def test_the_kernels_are_found():
    """One file for functions alone is fine, as those who call them compile them; no kernels at all is not."""
    found = {path.stem: kernels(module_name(path)) for path in FILES}
    assert {"energy_kernels", "touch_kernels", "hand_kernels"} <= {
        stem for stem, names in found.items() if names
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kernels_compile_for_cuda(path: Path, tmp_path: Path):
    """To PTX for compute capability 8.0 (A100)."""
    name = module_name(path)
    if not kernels(name):
        assert "@wp.func" in path.read_text(encoding="utf-8")
        return
    wp.compile_aot_module(import_module(name), arch=80, module_dir=tmp_path, use_ptx=True)
    (code,) = tmp_path.glob("*.ptx")
    text = code.read_text(encoding="utf-8")
    assert ".target sm_80" in text
    for kernel in kernels(name):
        assert f"{kernel}_" in text
