"""The work of ``interleaved serve``: show report, pages and ledgers in the browser, also those of a bucket."""

import sys
from typing import Final
from urllib.parse import urlsplit

from interleaved_assets.cli.terminal.console import console, print_json
from interleaved_assets.reporting.served.server import HOST, OutputServer
from interleaved_assets.settings import load_settings
from interleaved_assets.settings.sections import ServeSettings

PORT: Final = 3010


def show_outputs(file: str | None, *, port: int | None, as_json: bool) -> int:
    """Serve the outputs until Ctrl-C, and return the exit code."""
    settings = load_settings(file)
    root = settings.storage.output_root
    with OutputServer(settings, port or port_of(settings.serve)) as server:
        url = f"http://{HOST}:{server.server_port}/"
        if as_json:
            print_json({"url": url, "output_root": root})
        else:
            console().print_line(f"{root} is at {url} for reading; Ctrl-C ends it")
        sys.stdout.flush()  # another process may wait for this line
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
    return 0


def port_of(serve: ServeSettings) -> int:
    """Return the port in ``serve.url`` if its host is this machine, else the default."""
    parts = urlsplit(serve.url)
    return (parts.port or PORT) if parts.hostname in (HOST, "localhost") else PORT
