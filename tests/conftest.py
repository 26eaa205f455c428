"""Where the shared assets are, a cache folder of the tests' own, and a browser."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

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


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Headless Chromium, drawing without a GPU. Skips if there is none, unless FISTFUL_NEED_BROWSER=1."""
    absent = pytest.fail if os.environ.get("FISTFUL_NEED_BROWSER") == "1" else pytest.skip
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("no playwright here; install the extra 'test'")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        absent("no Chromium here; scripts/browser installs it on Debian")
    drawing = ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *drawing])
        yield chromium
        chromium.close()


@pytest.fixture
def figure(record_property) -> Callable[[str, float, str], None]:
    """Report a measured figure. The run lists them at its end: the README quotes what a command made."""
    return lambda name, value, unit="": record_property(FIGURE + name, f"{value:.4g} {unit}".strip())


FIGURE = "figure: "


def pytest_terminal_summary(terminalreporter) -> None:
    reports = [r for outcome in ("passed", "failed") for r in terminalreporter.stats.get(outcome, [])]
    figures = [pair for report in reports for pair in report.user_properties if pair[0].startswith(FIGURE)]
    if figures:
        terminalreporter.section("figures measured by the tests")
        for name, value in sorted(figures):
            terminalreporter.write_line(f"{name.removeprefix(FIGURE)}: {value}")
