"""A ledger of finished work: one line a unit, appended as it is done, read again after a crash."""

import json
import os
from pathlib import Path
from typing import Any

from fistful.errors import JawsError


class Ledger:
    """Records by key in a file of JSON lines. The first line says what the work is.

    A line is written by one call and synced. A last line that was cut short by a kill is dropped when the
    file is opened again.
    """

    def __init__(self, path: Path, work: dict[str, Any]):
        """Open or begin a ledger. Raises JawsError if the file is of other work."""
        self.path = path
        self.records: dict[str, dict[str, Any]] = {}
        # As it will be read: tuples become lists.
        work = json.loads(json.dumps(work))
        # A file without one whole line is of somebody who was killed at once.
        if path.exists() and b"\n" in path.read_bytes():
            self._read(work)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self._append(work)

    def __contains__(self, key: str) -> bool:
        return key in self.records

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self.records[key]

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Keep a finished unit."""
        self._append({"key": key, **record})
        self.records[key] = record

    def _read(self, work: dict[str, Any]) -> None:
        raw = self.path.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if whole != raw:
            self.path.write_bytes(whole)
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
            found = lines[0]
            self.records = {r["key"]: {k: v for k, v in r.items() if k != "key"} for r in lines[1:]}
        except (ValueError, LookupError, TypeError) as error:
            raise JawsError(f"{self.path} is damaged ({error}); remove it, or name another --out") from error
        different = [k for k in {**work, **found} if work.get(k) != found.get(k)]
        if different:
            k = different[0]
            raise JawsError(
                f"{self.path} holds other work: {k} is {found.get(k)!r} there and {work.get(k)!r} now; name "
                "another --out, or remove it"
            )

    def _append(self, record: dict[str, Any]) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
