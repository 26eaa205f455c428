"""Work in processes: Ctrl-C, killed workers, the environment."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fistful.errors import JawsError
from fistful.jaws.processes import as_done

# Items say that they have begun, and wait until they may end; the handler says that the signal has come.
SCRIPT = """
import signal, sys, time
from pathlib import Path
from fistful.jaws.processes import as_done

def work(k):
    Path(f"begun {k}").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return k

def handler(number, frame):
    Path("seen").touch()
    raise KeyboardInterrupt

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN if sys.argv[1:] == ["ignore"] else handler)
    for index, out in as_done(work, range(6), 2):
        print(out, flush=True)
"""


def wait_for(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def begun(folder: Path) -> set[int]:
    return {int(path.name.split()[1]) for path in folder.glob("begun *")}


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The script in a group of its own, with two items under way."""
    (folder / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "script.py", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: len(begun(folder)) == 2 or process.poll() is not None)
    return process


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_to_the_parent_waits_for_what_is_under_way_only(tmp_path: Path):
    process = started(tmp_path)
    process.send_signal(signal.SIGINT)
    wait_for((tmp_path / "seen").exists)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=60)
    assert begun(tmp_path) == {0, 1}, "nothing else began"
    assert sorted(out.split()) == ["0", "1"], "and what was under way is not lost"
    assert "KeyboardInterrupt" in err and process.returncode


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_ends_the_workers_too(tmp_path: Path):
    process = started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert not out and begun(tmp_path) == {0, 1}
    # One of the parent, none of workers.
    assert err.rstrip().endswith("KeyboardInterrupt") and err.count("\nKeyboardInterrupt") == 1, err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_who_ignores_ctrl_c_has_workers_that_do_so(tmp_path: Path):
    process = started(tmp_path, "ignore")
    os.killpg(process.pid, signal.SIGINT)
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "") and sorted(out.split()) == list("012345")


def crash_at_3(k: int) -> int:
    if k == 3:
        os._exit(1)
    return k


def test_a_worker_that_ends_is_said():
    found = []
    with pytest.raises(JawsError, match="a worker was ended from outside"):
        found.extend(index for index, _ in as_done(crash_at_3, range(8), 2))
    assert len(found) >= 2 and 3 not in found, "two ended before it began"


def threads(_: int) -> str | None:
    return os.environ.get("OMP_NUM_THREADS")


def test_workers_have_one_thread_and_the_caller_what_it_wants(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    before = dict(os.environ)
    for _, seen in as_done(threads, range(4), 2):
        assert seen == "1" and dict(os.environ) == before
