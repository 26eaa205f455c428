"""A folder of prepared arrays, each under the hash of what it was made from.

Invariant: an entry under its final name is complete and checked, whoever writes, however many at once, and
whenever they are killed. A writer stages the entry in a file of its own in the same folder, syncs it to disk
and moves it to its name by one rename; a reader trusts an entry only if its checksum and schema version
hold, and treats anything else as absent. Two writers of one key write the same content, so the last one may
win. No pickle is ever read.
"""

import contextlib
import hashlib
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from fistful.errors import CacheError

SCHEMA = 1
_META = "__metadata__"
_STALE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What was found under a key."""

    arrays: dict[str, np.ndarray]
    metadata: dict


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The answer to `load`: an entry, or none, and what was wrong if something was."""

    entry: Entry | None
    problem: str | None = None
    """One line about a damaged or unreadable entry; None if it was fine or simply absent."""


def content_key(*parts: object) -> str:
    """The sha256 (64 hex digits) of arrays and JSON-able values, in order. No I/O."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            part = np.ascontiguousarray(part)
            digest.update(f"array {part.dtype.str} {part.shape}\n".encode())
            digest.update(part.tobytes())
        else:
            digest.update(f"value {json.dumps(part, sort_keys=True)}\n".encode())
    return digest.hexdigest()


def write_file(path: Path, fill: Callable[[IO[bytes]], object]) -> str:
    """Fill a file, atomically: it is there complete, or not at all. Returns its sha256."""
    staged = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with staged.open("w+b") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)
    return digest


@dataclass(frozen=True, kw_only=True)
class Storage:
    """A content-addressed folder; created when first written to."""

    folder: Path

    def path(self, key: str) -> Path:
        """The file of a key. No I/O."""
        if len(key) != 64 or not set(key) <= set("0123456789abcdef"):
            raise ValueError(f"cache key {key!r} is not the sha256 that content_key() returns")
        return self.folder / f"{key}.npz"

    def store(self, key: str, arrays: dict[str, np.ndarray], metadata: dict) -> Path:
        """Write an entry atomically and return its file; CacheError if the folder can not be written."""
        body = _encode(key, arrays, metadata)
        final = self.path(key)
        staged = self.folder / f"{key}.{_host()}-{os.getpid()}-{os.urandom(4).hex()}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._sweep()
            try:
                with staged.open("xb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                staged.replace(final)
            finally:
                staged.unlink(missing_ok=True)
        except OSError as error:
            reason = error.strerror or error
            raise CacheError(
                f"can not write the cache folder {self.folder}: {reason}; set FISTFUL_CACHE"
            ) from error
        return final

    def load(self, key: str) -> Lookup:
        """Read the entry of a key. A damaged entry is reported, never returned, and never raised."""
        path = self.path(key)
        try:
            body = path.read_bytes()
        except FileNotFoundError:
            return Lookup(entry=None)
        except OSError as error:
            return Lookup(
                entry=None, problem=f"cache entry {path} can not be read: {error.strerror or error}"
            )
        try:
            return Lookup(entry=_decode(key, body))
        except Exception as error:  # Damaged bytes make zipfile, numpy and json raise nearly anything.
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return Lookup(entry=None, problem=f"cache entry {path} was damaged ({reason}) and is made again")

    def _sweep(self) -> None:
        """Delete the staging files of writers that have died; those of living ones are left alone."""
        for leftover in self.folder.glob("*.tmp"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                host, writer, _ = leftover.name.split(".")[1].split("-")
                # Process ids are reused, and a shared folder may hold those of another machine, where
                # only age tells whether the writer has died.
                old = time.time() - leftover.stat().st_mtime > _STALE_SECONDS
                if old or (host == _host() and not _alive(int(writer))):
                    leftover.unlink(missing_ok=True)


def default_storage(kind: str) -> Storage:
    """The storage of one kind: a subfolder of $FISTFUL_CACHE, $XDG_CACHE_HOME/fistful or ~/.cache/fistful."""
    root = os.environ.get("FISTFUL_CACHE")
    if root:
        return Storage(folder=Path(root).expanduser() / kind)
    base = os.environ.get("XDG_CACHE_HOME")
    # A relative XDG_CACHE_HOME is to be ignored, says the XDG base directory specification.
    folder = Path(base) if base and Path(base).is_absolute() else Path("~/.cache").expanduser()
    return Storage(folder=folder / "fistful" / kind)


def _encode(key: str, arrays: dict[str, np.ndarray], metadata: dict) -> bytes:
    """An .npz of the arrays and of the metadata as JSON, closed by the sha256 of all before it."""
    head = json.dumps({"schema": SCHEMA, "key": key, "metadata": metadata}, sort_keys=True, allow_nan=False)
    buffer = BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays, **{_META: np.frombuffer(head.encode(), np.uint8)})
    body = buffer.getvalue()
    # A zip file may carry a trailing comment, but the checksum simply follows: readers strip it first.
    return body + hashlib.sha256(body).digest()


def _decode(key: str, stored: bytes) -> Entry:
    body, checksum = stored[:-32], stored[-32:]
    if hashlib.sha256(body).digest() != checksum:
        raise ValueError("checksum differs")
    with np.load(BytesIO(body), allow_pickle=False) as file:
        head = json.loads(bytes(file[_META]))
        if head.get("schema") != SCHEMA:
            raise ValueError(f"schema version {head.get('schema')}, expected {SCHEMA}")
        if head.get("key") != key:
            raise ValueError("it belongs to another key")
        arrays = {name: file[name] for name in file.files if name != _META}
    return Entry(arrays=arrays, metadata=head["metadata"])


def _host() -> str:
    """Eight hex digits for this machine (or container): process ids mean nothing beyond it."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    if os.name == "nt":  # There, signal 0 would end the process instead of asking for it.
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # It exists and is someone else's.
        return True
    return True
