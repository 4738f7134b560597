import io
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydantic import ValidationError

from interleaved_assets.io.pdf import model as models
from interleaved_assets.io.pdf.settings import PdfSettings
from interleaved_assets_tests.io.pdf.test_reader import read
from interleaved_assets_tests.io.pdfs import jpeg, jpeg_image, shown, text, write_pdf


class Server(ThreadingHTTPServer):
    """A stand-in for a model: it gives the answers of a list, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, *blocks: dict[str, Any], status: int = 200) -> None:
        content = json.dumps({"blocks": blocks})
        self.answers.append((status, json.dumps({"choices": [{"message": {"content": content}}]}).encode()))


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.headers.append({"path": self.path, **dict(self.headers)})
        status, body = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # the pauses between requests
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def by_model(path: str, server: Server, **settings: Any) -> list[dict[str, Any]]:
    return read(path, model_url=server.url, model="reader", page_dpi=72, **settings)[1:]


def test_blocks_of_the_model_replace_those_of_the_parser(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = jpeg(1)
    page = text(50, 700, "Text layer.") + shown("Im", 50, 400, 200, 200)
    path = write_pdf(tmp_path / "a.pdf", [page], [("Im", jpeg_image(content))])
    server.answer(
        {"kind": "image", "box": [85, 250, 415, 500]},  # that of the file
        {"kind": "text", "text": "Read.", "box": [0, 0, 1000, 100]},
        {"kind": "table", "text": "| a |\n| --- |", "box": [0, 0, 1000, 100]},
        {"kind": "table", "text": "<table></table>", "box": [0, 0, 1000, 100]},
        {"kind": "image", "box": [500, 0, 1000, 500]},  # a part of the page
        {"kind": "image", "box": [500, 0, 500, 500]},  # empty
    )
    monkeypatch.setenv(models.KEY_VARIABLE, "secret")
    rows = by_model(path, server)
    assert [(row["modality"], row["content_type"], row["text_content"]) for row in rows] == [
        ("image", "image/jpeg", None),
        ("text", "text/plain", "Read."),
        ("table", "text/markdown", "| a |\n| --- |"),
        ("table", "text/html", "<table></table>"),
        ("image", "image/png", None),
    ]
    assert rows[0]["binary_content"] == content
    assert Image.open(io.BytesIO(rows[4]["binary_content"])).size == (300, 400)
    (asked,) = server.asked
    assert asked["model"] == "reader"
    assert asked["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert (server.headers[0]["path"], server.headers[0]["Authorization"]) == ("/v1/chat/completions", "Bearer secret")


def test_only_pages_without_text_are_asked_for_if_wished(tmp_path: Path, server: Server) -> None:
    path = write_pdf(
        tmp_path / "a.pdf", [text(50, 700, "Text."), shown("Im", 0, 0, 600, 800)], [("Im", jpeg_image(jpeg(1)))]
    )
    server.answer({"kind": "text", "text": "Scanned.", "box": [0, 0, 1000, 100]})
    rows = by_model(path, server, model_pages="without_text")
    assert [(row["page"], row["text_content"]) for row in rows] == [(1, "Text."), (2, "Scanned.")]


def test_a_request_is_repeated_while_that_may_help(tmp_path: Path, server: Server) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.")])
    server.answer(status=503)
    server.answer(status=429)
    server.answer({"kind": "text", "text": "Read.", "box": [0, 0, 1000, 100]})
    assert [row["text_content"] for row in by_model(path, server)] == ["Read."]
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("status", "body", "detail", "requests"),
    [
        (400, b"", "the model's server answered 400", 1),
        (302, b"", "the model's server answered 302", 1),
        (500, b"", "the model's server answered 500", 3),
        (200, b"no JSON", "the answer has not the form asked for: JSONDecodeError", 1),
        (200, b"x" * (2**24 + 1), "the answer has more than 16777216 bytes", 1),
        (200, b'{"choices": []}', "the answer has not the form asked for: IndexError", 1),
        (200, b'{"choices": [{"message": {"content": "{}"}}]}', "the answer has not the form asked for: ", 1),
    ],
)
def test_a_page_without_an_answer_is_an_error_of_its_own(
    tmp_path: Path, server: Server, status: int, body: bytes, detail: str, requests: int
) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.")])
    server.answers.append((status, body))
    (row,) = by_model(path, server)
    assert row["materialize_error"].startswith(f"model_failed: page 1: {detail}")
    assert (row["page"], row["text_content"], len(server.asked)) == (1, None, requests)


def test_a_model_that_fails_page_after_page_is_asked_no_more(tmp_path: Path, server: Server) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, f"Page {at}.") for at in range(5)])
    server.answers.append((400, b""))
    errors = [row["materialize_error"] for row in by_model(path, server)]
    assert len(server.asked) == 3
    assert errors[3:] == [f"model_failed: page {at} was not asked for, as 3 pages before it failed" for at in (4, 5)]


def test_a_model_needs_a_name_and_a_web_address() -> None:
    with pytest.raises(ValidationError, match="model_url needs model"):
        PdfSettings(model_url="http://127.0.0.1/v1")
    with pytest.raises(ValidationError, match="model_url"):
        PdfSettings(model_url="file:///etc/passwd", model="reader")


def test_a_model_that_does_not_answer_is_an_error_of_its_page(tmp_path: Path, server: Server) -> None:
    path = write_pdf(tmp_path / "a.pdf", [text(50, 700, "Text.")])
    server.url = "http://127.0.0.1:9/v1"
    (row,) = by_model(path, server)
    assert row["materialize_error"].startswith("model_failed: page 1: no answer of the model: ")
