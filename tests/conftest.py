"""Where the shared assets are, and a cache folder of the tests' own."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    """Tests neither read nor fill the user's cache."""
    previous = os.environ.get("FISTFUL_CACHE")
    os.environ["FISTFUL_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if previous is None:
        del os.environ["FISTFUL_CACHE"]
    else:
        os.environ["FISTFUL_CACHE"] = previous


@pytest.fixture(scope="session")
def assets() -> Path:
    """Real meshes and vendor robots, which are not part of the project."""
    folder = Path(os.environ.get("FISTFUL_ASSETS", ROOT.parent / "shared" / "assets"))
    if not folder.is_dir():
        pytest.skip(f"no shared assets in {folder.name!r} beside the project; set FISTFUL_ASSETS")
    return folder
