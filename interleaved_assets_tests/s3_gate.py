"""A door before the S3 server: passes every request on, or refuses it as S3 does, from one moment to the next."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar, NamedTuple
from urllib.parse import urlsplit

from interleaved_assets_tests.s3 import S3Server


class Refusal(NamedTuple):
    """An answer of S3 that is none: HTTP status, code and message."""

    status: int
    code: str
    message: str


EXPIRED = Refusal(400, "ExpiredToken", "The provided token has expired.")
SKEWED = Refusal(403, "RequestTimeTooSkewed", "The difference between the request time and the server's is too large.")
BAD_GATEWAY = Refusal(502, "BadGateway", "Bad Gateway")


@dataclass
class S3Gate(S3Server):
    """The server behind the gate, at the gate's address. ``refuses`` looks at method and path of every request."""

    refuses: Callable[[str, str], Refusal | None] = lambda method, path: None
    refused: list[str] = field(default_factory=list)
    """Method and path of the requests that were refused."""
    breaks_off: Callable[[str, str], bool] = lambda method, path: False
    """Whether the connection ends in the middle of the answer to a request, or before an answer without content."""
    changes: Callable[[str, str, bytes], bytes] = lambda method, path, content: content
    """Returns another content of the answer to a request."""


@contextmanager
def s3_gate(server: S3Server) -> Iterator[S3Gate]:
    """A gate before ``server``, open at first."""
    behind = urlsplit(server.endpoint_url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # head and body are two packets: the second would wait until the client acknowledges the first, up to 0.04 s
        disable_nagle_algorithm = True
        gate: ClassVar[S3Gate]

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            refusal = self.gate.refuses(self.command, self.path)
            if refusal is None:
                # the host header stays as the client signed it
                connection = http.client.HTTPConnection(str(behind.hostname), behind.port, timeout=60)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
                self._send(answer.status, dict(answer.headers), content)
                connection.close()
            else:
                self.gate.refused.append(f"{self.command} {self.path}")
                text = f"<Error><Code>{refusal.code}</Code><Message>{refusal.message}</Message></Error>"
                self._send(refusal.status, {"Content-Type": "application/xml"}, text.encode())

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
            content = self.gate.changes(self.command, self.path, content)
            head = self.command == "HEAD"
            if not head and not content and self.gate.breaks_off(self.command, self.path):
                self.close_connection = True
                return
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            # the answer to a HEAD tells the length of what it does not send
            self.send_header("Content-Length", headers.get("Content-Length", "0") if head else str(len(content)))
            self.end_headers()
            if content and not head and self.gate.breaks_off(self.command, self.path):
                self.close_connection = True
                content = content[: len(content) // 2]
            if not head:
                self.wfile.write(content)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - names that the base class calls

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as door:
        Handler.gate = gate = S3Gate(f"http://127.0.0.1:{door.server_address[1]}")
        threading.Thread(target=door.serve_forever, args=(0.01,), daemon=True).start()
        yield gate
        door.shutdown()
