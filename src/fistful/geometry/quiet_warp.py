"""Warp without its chatter: `from fistful.geometry.quiet_warp import wp` instead of `import warp as wp`.

On a machine without an NVIDIA driver Warp's native library writes a warning straight to file descriptor 2,
and offers no switch for it. A CPU is a normal place to run this package, so that line alone is taken out;
whatever else is written while Warp starts still reaches stderr.
"""

import os
import sys
import tempfile

import warp as wp

_EXPECTED = b"Could not find or load the NVIDIA CUDA driver"


def _start() -> None:
    """Initialise Warp once; only warnings and errors are printed from then on."""
    wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)
    try:
        saved = os.dup(2)
    except OSError:  # No stderr to keep clean (a daemon, pythonw).
        wp.init()
        return
    with tempfile.TemporaryFile() as captured:
        try:
            os.dup2(captured.fileno(), 2)
            wp.init()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        captured.seek(0)
        kept = b"".join(line for line in captured.readlines() if _EXPECTED not in line)
    if kept and sys.stderr is not None:
        sys.stderr.write(kept.decode(errors="replace"))


_start()
