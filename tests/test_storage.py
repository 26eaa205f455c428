"""The cache: atomic, checked, and sound whatever happens to its writers."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from fistful.errors import CacheError
from fistful.storage import Storage, _host, content_key, default_storage

ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.array([1, 2], np.int32), "none": np.zeros((0, 3))}
META = {"name": "thing", "list": [1, 2.5, None], "nested": {"x": True}}


@pytest.fixture
def storage(tmp_path):
    return Storage(folder=tmp_path / "cache")


def key(*parts) -> str:
    return content_key("test", *parts)


def test_round_trip(storage):
    storage.store(key(), ARRAYS, META)
    entry = storage.load(key()).entry
    assert entry is not None
    assert entry.metadata == META
    assert entry.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(entry.arrays[name], array)
        assert entry.arrays[name].dtype == array.dtype


def test_absent_entry_is_no_problem(storage):
    found = storage.load(key())
    assert found.entry is None
    assert found.problem is None


def test_key_depends_on_everything():
    a = np.arange(6)
    keys = {
        content_key(a),
        content_key(a.reshape(2, 3)),
        content_key(a.astype(np.int32)),
        content_key(a.astype(float)),
        content_key(a, 1),
        content_key(a, "1"),
        content_key(1, a),
        content_key(a[::-1]),
        content_key(a[:3], a[3:]),
    }
    assert len(keys) == 9
    assert content_key(a, {"x": 1, "y": 2}) == content_key(a.copy(), {"y": 2, "x": 1})
    assert content_key(np.asfortranarray(np.eye(3) + a[:3])) == content_key(np.eye(3) + a[:3])


@pytest.mark.parametrize("bad", ["../../etc/passwd", "", "A" * 64, "0" * 63, "0" * 63 + "/"])
def test_key_can_not_name_another_file(storage, bad):
    with pytest.raises(ValueError, match="sha256"):
        storage.path(bad)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_truncated_entry_is_reported_and_not_trusted(storage, share):
    path = storage.store(key(), ARRAYS, META)
    body = path.read_bytes()
    path.write_bytes(body[: int(share * len(body))])
    found = storage.load(key())
    assert found.entry is None
    assert "damaged" in found.problem
    assert "\n" not in found.problem
    storage.store(key(), ARRAYS, META)
    assert storage.load(key()).entry is not None


def test_every_flipped_bit_is_noticed(storage):
    path = storage.store(key(), ARRAYS, META)
    body = path.read_bytes()
    for at in range(0, len(body), 7):
        broken = bytearray(body)
        broken[at] ^= 1 << (at % 8)
        path.write_bytes(broken)
        assert storage.load(key()).entry is None, f"byte {at}"


def test_entry_of_another_key_or_version_is_not_trusted(storage, monkeypatch):
    path = storage.store(key(), ARRAYS, META)
    path.rename(storage.path(key("other")))
    assert "another key" in storage.load(key("other")).problem
    monkeypatch.setattr("fistful.storage.SCHEMA", 2)
    storage.store(key(), ARRAYS, META)
    monkeypatch.undo()
    assert "schema version 2, expected 1" in storage.load(key()).problem


def test_pickle_is_neither_written_nor_read(storage):
    with pytest.raises(ValueError, match="allow_pickle"):
        storage.store(key(), {"a": np.array([{}], dtype=object)}, {})
    assert not storage.folder.exists()


def test_failed_write_leaves_nothing(storage, monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CacheError, match="No space left on device; set FISTFUL_CACHE"):
        storage.store(key(), ARRAYS, META)
    assert list(storage.folder.iterdir()) == []


def test_folder_that_is_a_file_is_an_error_of_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    storage = Storage(folder=tmp_path / "file" / "cache")
    with pytest.raises(CacheError) as caught:
        storage.store(key(), ARRAYS, META)
    assert "\n" not in str(caught.value)
    assert storage.load(key()).entry is None


def test_leftovers_of_dead_writers_are_cleaned_and_of_living_ones_kept(storage):
    storage.folder.mkdir()
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    gone = storage.folder / f"{key()}.{_host()}-{dead.pid}-abcd.tmp"
    mine = storage.folder / f"{key()}.{_host()}-{os.getpid()}-abcd.tmp"
    elsewhere = storage.folder / f"{key()}.0badcafe-{dead.pid}-abcd.tmp"
    old = storage.folder / f"{key()}.0badcafe-{os.getpid()}-old.tmp"
    for leftover in (gone, mine, elsewhere, old):
        leftover.write_bytes(b"half")
    os.utime(old, (time.time() - 3e5,) * 2)
    storage.store(key("x"), ARRAYS, META)
    assert not gone.exists()
    assert elsewhere.exists()  # Its process may well live, on another machine.
    assert not old.exists()
    assert mine.exists()


def test_folder_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("FISTFUL_CACHE", str(tmp_path / "a"))
    assert default_storage("k").folder == tmp_path / "a" / "k"
    monkeypatch.delenv("FISTFUL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert default_storage("k").folder == tmp_path / "b" / "fistful" / "k"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert default_storage("k").folder == tmp_path / "c" / ".cache" / "fistful" / "k"


WRITER = """
import sys, numpy as np
from pathlib import Path
from fistful.storage import Storage, content_key
storage = Storage(folder=Path(sys.argv[1]))
arrays = {"a": np.arange(3_000_000.0)}
print("ready", flush=True)
for n in range(int(sys.argv[2])):
    storage.store(content_key("shared", n % 3), arrays, {"n": n % 3})
"""


def sound(storage: Storage) -> int:
    """The number of entries; every one of them must be whole."""
    entries = list(storage.folder.glob("*.npz"))
    for path in entries:
        found = storage.load(path.stem)
        assert found.problem is None
        assert len(found.entry.arrays["a"]) == 3_000_000
    return len(entries)


# A writer that halts once the staged file is complete but neither synced nor renamed.
HALTED = """
import os, time
def halt(file):
    print("midway", flush=True)
    time.sleep(600)
os.fsync = halt
"""


@pytest.mark.skipif(os.name == "nt", reason="needs kill -9")
def test_killed_and_concurrent_writers_leave_a_sound_cache(storage):
    """kill -9 just before the rename and at arbitrary moments of writing; then two writers at once."""
    halted = subprocess.Popen(
        [sys.executable, "-c", HALTED + WRITER, str(storage.folder), "1"], stdout=subprocess.PIPE
    )
    assert [halted.stdout.readline(), halted.stdout.readline()] == [b"ready\n", b"midway\n"]
    halted.send_signal(signal.SIGKILL)
    halted.communicate()
    assert len(list(storage.folder.glob("*.tmp"))) == 1
    assert sound(storage) == 0
    command = [sys.executable, "-c", WRITER, str(storage.folder)]
    for delay in (0.01, 0.03, 0.05, 0.08, 0.13):
        writer = subprocess.Popen([*command, "1000"], stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"ready\n"
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        sound(storage)
    writers = [subprocess.Popen([*command, "6"], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [w.wait() for w in writers] == [0, 0]
    assert sound(storage) == 3
    assert list(storage.folder.glob("*.tmp")) == []
