"""A ledger of finished work: one line a unit, appended as it is done, read again after a crash."""

import json
import os
from pathlib import Path
from typing import IO, Any

from fistful.errors import JawsError

# Characters of a value that is still told in an error.
_LONG = 80


class Ledger:
    """Records by key in a file of JSON lines. The first line says what the work is.

    A line is written by one call and synced. A last line that was cut short by a kill is dropped when the
    file is opened again. The file is locked until the ledger is closed or its process ends, however it ends.
    """

    def __init__(self, path: Path, work: dict[str, Any]):
        """Open or begin a ledger. Raises JawsError if the file is of other work, or in use."""
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        self._file = _claimed(path)
        try:
            # As it will be read: tuples become lists.
            self._begin(json.loads(json.dumps(work)))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: str) -> bool:
        return key in self.records

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self.records[key]

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Keep a finished unit."""
        # Counted first: Ctrl-C comes while the disk is waited for, when the line is as good as there.
        self.records[key] = record
        try:
            self._append({"key": key, **record})
        except Exception:
            del self.records[key]
            raise

    def close(self) -> None:
        """Let others have the file."""
        self._file.close()

    def remove(self) -> None:
        """Close and delete the file: the work is finished, or never began."""
        if os.name == "nt":  # Nobody can delete an open file there.
            self.close()
        # While it is still ours: once it is closed, the file may be somebody else's.
        self.path.unlink(missing_ok=True)
        self.close()

    def _begin(self, work: dict[str, Any]) -> None:
        self._file.seek(0)
        raw = self._file.read()
        # What follows the last whole line is of somebody who was killed; so is a file without one.
        whole = raw[: raw.rfind(b"\n") + 1]
        if whole != raw:
            self._file.truncate(len(whole))
        if not whole:
            self._append(work)
            return
        try:
            lines = [dict(json.loads(line)) for line in whole.splitlines()]
            self.records = {r["key"]: {k: v for k, v in r.items() if k != "key"} for r in lines[1:]}
        except (ValueError, LookupError, TypeError) as error:
            raise JawsError(f"{self.path} is damaged ({error}); remove it, or name another --out") from error
        different = _difference(lines[0], work)
        if different:
            raise JawsError(f"{self.path} holds other work: {different}; name another --out, or remove it")

    def _append(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _claimed(path: Path) -> IO[bytes]:
    """The open file, for this process alone; made if it is not there."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
        try:
            if _lock(file, path):
                return file
        except BaseException:
            file.close()
            raise
        # Its owner removed it after we had opened it: nobody would ever see what we write there.
        file.close()


def _lock(file: IO[bytes], path: Path) -> bool:
    """Claim an open file until it is closed; whether it is still the one at the path.

    Nobody is kept out on Windows, and on file systems without locks.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JawsError(
            f"{path} is in use by another process; wait for it to end, or name another --out"
        ) from None
    except OSError:
        return True
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _difference(found: Any, work: Any, name: str = "") -> str:
    """The first value that differs, by its name; empty if none does."""
    if isinstance(found, dict) and isinstance(work, dict):
        inner = (
            _difference(found.get(k), work.get(k), f"{name}.{k}" if name else k) for k in {**work, **found}
        )
        return next(filter(None, inner), "")
    if found == work:
        return ""
    there, now = repr(found), repr(work)
    if max(len(there), len(now)) > _LONG:
        return f"{name} is another one now"
    return f"{name} is {there} there and {now} now"
