"""``interleaved serve``: report, pages and ledgers in the browser, also of a bucket."""

from typing import Final
from urllib.parse import urlsplit

from interleaved_assets.cli.console import console
from interleaved_assets.reporting.served.server import HOST, OutputServer
from interleaved_assets.settings import load_settings
from interleaved_assets.settings.sections import ServeSettings

PORT: Final = 3001


def show_outputs(file: str | None, *, port: int | None) -> int:
    """Serve the outputs until Ctrl-C; returns the exit code."""
    settings = load_settings(file)
    with OutputServer(settings, port or port_of(settings.serve)) as server:
        console().print_line(
            f"{settings.storage.output_root} is at http://{HOST}:{server.server_port}/ for reading; Ctrl-C ends it"
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def port_of(serve: ServeSettings) -> int:
    """The port in ``serve.url`` where that is on this machine, else the default."""
    parts = urlsplit(serve.url)
    return (parts.port or PORT) if parts.hostname in (HOST, "localhost") else PORT
