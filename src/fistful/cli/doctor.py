"""`fistful doctor`."""

from dataclasses import dataclass

from fistful.cli.console import print_json


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Check this machine: versions, cache folder, compiled kernels, rendering."""

    json: bool = False
    """Print one JSON document."""

    def run(self) -> None:
        """Print one line a check; exit code 1 if any of them fails."""
        from fistful.doctor import checks

        results = [check() for check in checks()]
        if self.json:
            print_json([{"check": r.name, "ok": r.ok, "detail": r.detail} for r in results])
        else:
            for result in results:
                print(f"{'ok  ' if result.ok else 'FAIL'}  {result.name}: {result.detail}")
        if not all(result.ok for result in results):
            raise SystemExit(1)
