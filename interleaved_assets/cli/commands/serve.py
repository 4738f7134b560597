"""``interleaved serve``: show report, pages and ledgers in the browser, also those of a bucket."""

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from interleaved_assets.cli.terminal.options import as_json

if TYPE_CHECKING:
    from interleaved_assets.settings.sections import ServeSettings

SECTION: Final = "The shards of a project"
PORT: Final = 3010


@click.command("serve")
@click.option(
    "--port",
    type=click.IntRange(1, 65_535),
    metavar="N",
    help="Port of the loopback interface; default: that of serve.url, else 3010.",
)
@as_json
@click.pass_obj
def serve_command(file: str | None, *, port: int | None, as_json: bool) -> int:
    """Show report, pages and ledgers in the browser, also of a bucket.

    The pages are at http://127.0.0.1:3010/ until Ctrl-C, for this machine only, for reading only, without a log-in.
    The first page has the state of every shard. No other file of the output root is shown.

    \b
    interleaved serve
    interleaved serve --port 3011
    """
    from interleaved_assets.cli.terminal.console import console, print_json
    from interleaved_assets.reporting.served.server import HOST, OutputServer
    from interleaved_assets.settings import load_settings

    settings = load_settings(file)
    root = settings.storage.output_root
    with OutputServer(settings, port or port_of(settings.serve)) as server:
        url = f"http://{HOST}:{server.server_port}/"
        if as_json:
            print_json({"url": url, "output_root": root})
        else:
            console().print_line(f"{root} is at {url} for reading; Ctrl-C ends it")
        sys.stdout.flush()  # another process may wait for this line
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


def port_of(serve: "ServeSettings") -> int:
    """Return the port in ``serve.url`` if its host is this machine, else the default."""
    from interleaved_assets.reporting.served.server import HOST

    parts = urlsplit(serve.url)
    return (parts.port or PORT) if parts.hostname in (HOST, "localhost") else PORT
