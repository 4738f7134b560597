"""The HTTP server behind ``interleaved serve``: on the loopback interface, for reading only."""

import re
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

from interleaved_assets.io.storage import read_small
from interleaved_assets.model.errors import InterleavedError, OptionError, StorageError
from interleaved_assets.reporting.dataset import REPORT_FILE
from interleaved_assets.reporting.served.pages import (
    ServedDataset,
    ledger_html,
    look_at_dataset,
    message_html,
    shards_html,
)
from interleaved_assets.reporting.served.places import Place, PlaceKind, find_place
from interleaved_assets.settings import Settings

HOST: Final = "127.0.0.1"
_OWN_HOST: Final = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.ASCII | re.IGNORECASE)
_HTML: Final = "text/html; charset=utf-8"
_POLICY: Final = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_STORED_POLICY: Final = f"{_POLICY}; sandbox allow-scripts"
"""Limits a page of the output root in the browser, whoever wrote it. It loads nothing, and its origin is its own: its
script cannot read what this server shows in other windows. It may lead to another site, with what the page says itself.
"""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NAVIGATION: Final = (
    f'<nav class="served"><a href="/">All shards</a><a href="/{REPORT_FILE}">Report on the data set</a></nav>'
)
"""Links that a report or a page of a shard has at its top when it is served."""
_TIMES_AS_LONG: Final = 10
"""A comparison of all shards is shown for this many times the seconds that it took."""
_IDLE_SECONDS: Final = 30


class OutputServer(ThreadingHTTPServer):
    """A server that shows the outputs of one project in the browser.

    It answers GET and HEAD only, on 127.0.0.1 only, without a log-in.
    """

    daemon_threads = True

    def __init__(self, settings: Settings, port: int) -> None:
        """Listen on ``port``. Call ``serve_forever`` then, and ``server_close`` at the end.

        Raises:
            OptionError: the port is taken, or only root may listen on it.
        """
        self.settings = settings
        self._lock = threading.Lock()
        self._dataset: ServedDataset | None = None
        self._look_again = 0.0
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise OptionError(
                f"port {port} cannot be used: {error.strerror}. Perhaps another interleaved serve has it. Take another "
                f"with --port, and set serve.url to it for the links in Dagster"
            ) from error

    def server_bind(self) -> None:
        """Bind the socket without asking for the name of the host, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]

    def dataset(self) -> ServedDataset:
        """Return all shards, from a comparison that is recent relative to the time that it took."""
        with self._lock:
            if self._dataset is None or time.monotonic() > self._look_again:
                self._dataset = look_at_dataset(self.settings)
                self._look_again = time.monotonic() + _TIMES_AS_LONG * self._dataset.seconds
            return self._dataset


class _Handler(BaseHTTPRequestHandler):
    server: OutputServer
    server_version = "interleaved"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not _OWN_HOST.fullmatch(hosts[0]):
            # another site may have a name for this address (DNS rebinding)
            text = f"This server answers to {HOST} and localhost only: open http://{HOST}:{self.server.server_port}/"
            self._answer(HTTPStatus.FORBIDDEN, message_html("Not this host", text))
            return
        try:
            self._show()
        except InterleavedError as error:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, message_html("This cannot be read", str(error)))
        except ConnectionError:
            self.close_connection = True  # the browser has gone

    do_HEAD = do_GET  # noqa: N815  names of the library

    def _show(self) -> None:
        target = urlsplit(self.path)
        query = parse_qs(target.query)
        number = _page_number(query.get("page", ["1"])[-1])
        settings = self.server.settings
        if target.path == "/":
            search = query.get("search", [""])[-1].strip()
            page = shards_html(self.server.dataset(), settings.storage, search=search, number=number)
            self._answer(HTTPStatus.OK, page)
            return
        place = find_place(target.path, settings.storage)
        content = _content(place, settings, number) if place else None
        if content is None:
            text = (
                f"{place.uri} has not been written."
                if place
                else "Only the report, pages, ledgers and records are shown."
            )
            self._answer(HTTPStatus.NOT_FOUND, message_html("There is nothing here", text))
        else:
            kind = place.kind if place else None
            self._answer(
                HTTPStatus.OK,
                content,
                "application/json" if kind is PlaceKind.JSON else _HTML,
                _STORED_POLICY if kind is PlaceKind.PAGE else _POLICY,
            )

    def _answer(self, status: HTTPStatus, body: str | bytes, content_type: str = _HTML, policy: str = _POLICY) -> None:
        content = body.encode(errors="replace") if isinstance(body, str) else body
        of_content = {
            "Content-Security-Policy": policy,
            "Content-Type": content_type,
            "Content-Length": str(len(content)),
        }
        self.send_response(status)
        for name, value in {**_HEADERS, **of_content}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the library names it
        """Print nothing for each request."""


def _content(place: Place, settings: Settings, number: int) -> str | bytes | None:
    """Return the content shown for a file; None if the file does not exist."""
    if place.kind is not PlaceKind.LEDGER:
        content = read_small(place.uri, settings.storage.options)
        if content is None or place.kind is PlaceKind.JSON:
            return content
        return content.replace(b"<body>", f"<body>\n{_NAVIGATION}".encode(), 1)
    try:
        return ledger_html(place, settings, number=number)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


def _page_number(text: str) -> int:
    return int(text) if re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII) else 1
