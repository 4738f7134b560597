"""Requests to ``interleaved serve`` over HTTP."""

import http.client
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from interleaved_assets.cli import main
from interleaved_assets.model.errors import OptionError
from interleaved_assets.reporting.served.pages import PAGE_ROWS
from interleaved_assets.reporting.served.server import OutputServer
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, write_shard
from interleaved_assets_tests.ports import free_port

ROWS = PAGE_ROWS + 20
"""Dropped rows of the shard with many."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


@contextmanager
def running(settings: Settings) -> Iterator[int]:
    """A server of these outputs; gives its port."""
    with OutputServer(settings, free_port()) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def ask(port: int, path: str, method: str = "GET", host: str = "") -> Answer:
    """Send one request as it is given, since clients tidy up paths."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{port}")
    connection.endheaders()
    answer = connection.getresponse()
    found = Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
    connection.close()
    return found


def make(settings_file: Path) -> None:
    """Take shards through all stages: one with many drops, one good, and one that is no tar."""
    raw = settings_file.parent / "raw"
    good_shard(raw / "web/caf\u00e9, 1.tar")
    images = [blurred_image(level) for level in range(ROWS)]
    write_shard(raw / "many.tar", {f"doc-{n:03d}": document("words " * 9, image) for n, image in enumerate(images)})
    (raw / "bad.tar").write_bytes(b"<b>no tar</b>")
    assert main(["--settings", str(settings_file), "run"]) == 2
    assert main(["--settings", str(settings_file), "report"]) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    project(folder)
    make(folder / "interleaved.toml")
    return folder


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    with running(load_settings(folder / "interleaved.toml")) as port:
        yield port


def test_the_first_page_has_the_state_of_every_shard_and_its_links(port: int, folder: Path) -> None:
    page = ask(port, "/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    for part in (
        '<a href="/dataset_report.html">Report on the data set</a>',
        '<a href="/pages/web/caf%25C3%25A9%252C%25201.html"><bdi>web/caf%C3%A9%2C%201</bdi></a>',
        '<a href="/dropped/filtered/many.parquet">filtered</a>',
        f"normalized failed: {folder}/raw/bad.tar is not a tar",
    ):
        assert part in page.text
    assert page.text.index("<bdi>bad</bdi>") < page.text.index("<bdi>many</bdi>")  # the most urgent first


def test_report_and_pages_are_as_they_were_written_below_links_and_records_are_json(port: int, folder: Path) -> None:
    out = folder / "out"
    links = '<a href="/">All shards</a><a href="/dataset_report.html">Report on the data set</a>'
    added = f'<body>\n<nav class="served">{links}</nav>'
    report = (out / "dataset_report.html").read_text()
    assert ask(port, "/dataset_report.html").text == report.replace("<body>", added, 1)
    shown = ask(port, "/pages/web/caf%25C3%25A9%252C%25201.html")
    assert shown.text == (out / "pages/web/caf%C3%A9%2C%201.html").read_text().replace("<body>", added, 1)
    for name in ("records/filtered/many.json", "failures/normalized/bad.json"):
        shown = ask(port, f"/{name}")
        assert (shown.text, shown.headers["Content-Type"]) == ((out / name).read_text(), "application/json")


def test_a_ledger_is_a_table_in_parts(port: int) -> None:
    first, second, third = (ask(port, f"/dropped/filtered/many.parquet?page={number}") for number in (1, 2, 3))
    assert first.text.count('<td class="text whole">sharpness_below</td>') == PAGE_ROWS
    assert second.text.count('<td class="text whole">sharpness_below</td>') == ROWS - PAGE_ROWS
    assert f"{ROWS} dropped rows" in first.text
    assert '<th>measured</th><th>threshold</th><th class="text">sample</th>' in first.text
    assert "detail" not in first.text[first.text.index("<thead>") :]  # no row has one
    assert '<a href="/pages/many.html#d0"><bdi>doc-000</bdi></a>' in first.text
    assert "doc-000" in first.text
    assert f"doc-{ROWS - 1}" in second.text
    assert '<a href="?page=2">next →</a>' in first.text
    assert "no rows here" in third.text


def test_a_stored_page_has_an_origin_of_its_own(port: int) -> None:
    policies = {path: ask(port, path).headers["Content-Security-Policy"] for path in ("/", "/dataset_report.html")}
    assert policies["/dataset_report.html"] == f"{policies['/']}; sandbox allow-scripts"
    assert ask(port, "/pages/many.html").headers["Content-Security-Policy"] == policies["/dataset_report.html"]


def test_shards_are_searched_by_their_keys(port: int) -> None:
    found = ask(port, "/?search=caf%25C3").text
    assert "<bdi>web/caf%C3%A9%2C%201</bdi>" in found
    assert "<bdi>many</bdi>" not in found
    assert "no shard with this in its key" in ask(port, "/?search=%3Cscript%3E").text
    assert "<script>" not in ask(port, "/?search=%3Cscript%3E").text


@pytest.mark.parametrize(
    "path",
    [
        "/interleaved.toml",
        "/../interleaved.toml",
        "/pages/../../interleaved.toml",
        "/pages/%2e%2e/%2e%2e/interleaved.toml",
        "/pages/..%2f..%2finterleaved.toml.html",
        "//etc/passwd",
        "/normalized/many.parquet",
        "/tars/many.tar",
        "/state/throughput/normalized.json",
        "/pages/none.html",
        "/dropped/final_tars/none.parquet",
    ],
)
def test_nothing_else_is_shown(port: int, path: str) -> None:
    answer = ask(port, path)
    assert answer.status == 404
    assert "There is nothing here" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT"])
def test_it_is_for_reading_only(port: int, method: str) -> None:
    assert ask(port, "/pages/many.html", method).status == 501


def test_head_has_the_headers_and_no_content(port: int) -> None:
    full, head = ask(port, "/pages/many.html"), ask(port, "/pages/many.html", "HEAD")
    assert (head.status, head.text) == (200, "")
    assert head.headers["Content-Length"] == full.headers["Content-Length"] == str(len(full.text.encode()))


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:3010", "127.0.0.1.evil.example", "0.0.0.0", "127.0.0.2"]
)
def test_a_name_that_another_site_has_for_it_is_refused(port: int, host: str) -> None:
    answer = ask(port, "/pages/many.html", host=host)
    assert answer.status == 403
    assert f"open http://127.0.0.1:{port}/" in answer.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:3010", "127.0.0.1:9", "[::1]:3010"])
def test_its_own_names_are_answered(port: int, host: str) -> None:
    assert ask(port, "/pages/many.html", host=host).status == 200


def test_it_listens_at_one_address_alone(port: int) -> None:
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", port), timeout=5)


def test_damaged_ledgers_and_unknown_pages_are_sentences(tmp_path: Path) -> None:
    settings = project(tmp_path)
    ledger = tmp_path / "out/dropped/filtered/a.parquet"
    ledger.parent.mkdir(parents=True)
    ledger.write_bytes(b"PAR1 no more")
    with running(settings) as port:
        answer = ask(port, "/dropped/filtered/a.parquet")
        assert answer.status == 500
        assert "Delete it and materialize filtered again." in answer.text
        (tmp_path / "raw").rmdir()
        assert "raw root" in ask(port, "/").text
        for number in ("0", "-1", "x", "9" * 40):
            assert ask(port, f"/?page={number}").status == 200


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = project(tmp_path)
    with running(settings) as port:
        with pytest.raises(OptionError, match=f"port {port} cannot be used: Address already in use"):
            OutputServer(settings, port)
        assert main(["--settings", str(tmp_path / "interleaved.toml"), "serve", "--port", str(port)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_report_on_other_states_of_the_shards_is_called_older(folder: Path) -> None:
    older = "older than the shards below"
    with running(load_settings(folder / "interleaved.toml")) as port:
        assert older not in ask(port, "/").text
    settings = load_settings(folder / "interleaved.toml")
    selection = settings.selection.model_copy(update={"min_sharpness": 90.0})
    with running(settings.model_copy(update={"selection": selection})) as port:
        assert older in ask(port, "/").text


@pytest.mark.system
@pytest.mark.usefixtures("s3_environment")
def test_outputs_in_a_bucket(tmp_path: Path, bucket: str) -> None:
    file = tmp_path / "interleaved.toml"
    (tmp_path / "raw").mkdir()
    file.write_text(f'[storage]\nraw_root = "raw"\noutput_root = "{bucket}/out"\n')
    make(file)
    with running(load_settings(file)) as port:
        assert "Report on the data set" in ask(port, "/").text
        assert ask(port, "/dataset_report.html").text.startswith("<!doctype html>")
        assert ask(port, "/dropped/filtered/many.parquet").text.count(">sharpness_below<") == PAGE_ROWS
        assert ask(port, "/dropped/normalized/none.parquet").status == 404
        assert ask(port, "/pages/%2e%2e/dataset_report.html").status == 404


def test_a_shard_with_a_damaged_record_is_shown_as_such(tmp_path: Path) -> None:
    settings = project(tmp_path)
    record = tmp_path / "out/records/normalized/a.json"
    record.parent.mkdir(parents=True)
    record.write_text("{")
    with running(settings) as port:
        page = ask(port, "/").text
        assert "unreadable" in page
        assert "a.json is not a stage record: " in page
