"""A page on this machine: a viser server on a port that is free, until Ctrl-C."""

import contextlib
import io
import socket
from typing import TYPE_CHECKING

from fistful.errors import ViewError

if TYPE_CHECKING:
    import viser


def open_server(host: str, port: int | None, title: str) -> "viser.ViserServer":
    """A running server with an empty page. Opens a port: the one that is asked for, or any free one.

    Raises:
      ViewError: The port is in use or not allowed, or the host is not one of this machine's.
    """
    import viser

    port = _checked_port(host, port)
    with contextlib.redirect_stdout(io.StringIO()):
        server = viser.ViserServer(host=host, port=port, label=title, verbose=False)
    server.gui.configure_theme(control_width="large", show_share_button=False)
    server.gui.main_panel.dock_right()
    return server


def close_server(server: "viser.ViserServer") -> None:
    """Close its port and end its threads."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


def url_of(server: "viser.ViserServer") -> str:
    """The address to open in a browser."""
    host = server.get_host()
    shown = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{server.get_port()}"


def _checked_port(host: str, port: int | None) -> int:
    """The port, or a free one. viser itself would quietly take the next one."""
    if port is not None and not 1 <= port <= 65535:
        raise ViewError(f"port {port} is none: ports are 1 to 65535")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return int(probe.getsockname()[1])
    except (OSError, UnicodeError) as error:
        where = f"port {port} of {host}" if port else f"a port of {host}"
        why = getattr(error, "strerror", None) or str(error)
        raise ViewError(
            f"{where} can not be had: {why}. Leave --port out to get one that is free, and --host to stay on "
            "this machine"
        ) from error
