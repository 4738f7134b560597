"""Web archives, one record of which is damaged: before or after it is compressed, or in its page."""

import gzip
import random
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.fuzz.child import WrongRead
from benchmarks.fuzz.mutate import mutated
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.warc.reader import read_warc, warc_schema
from interleaved_assets.io.warc.settings import WarcSettings
from interleaved_assets.model import InterleavedBatch
from interleaved_assets.model.errors import NOT_IN_SOURCE, InterleavedError, error_code
from interleaved_assets_tests.io.warcs import PNG, http, image, record

_PIECES: Final = (
    "<div>", "</div>", "<p>text of a paragraph", "</p>", "<table><tr><td>", "</table>", "<a href=/x>link</a>", "<b>",
    "<i>", "</b>", "<nav>", "</nav>", "<main>", "<article>", "<ul><li>", "<li>", "<svg>", "<template>", "<select>",
    "<pre>\n\n", "<!--", "-->", "<script>", "</script>", "<style>", "<noscript>", "<img src=a.png>",
    "<img srcset='a 1x,,b 2x,c'>", "<img src='data:image/png;base64,", "'>", "<base href='http://[x'>",
    "<base href=//b/>", "<figure>", "<figcaption>", "&#xD800;", "&#0;", "\0", "\ufffe", "<html hidden>",
    "<body style='display:none'>", "<p class='", "nav ad-", "<plaintext>", "<frameset>", "<math><mi>", "</p></br>",
    "<title>", "<x-y>", "<p hidden>", "<span class=share>", "<h1>", "<br>", "|",
)  # fmt: skip
_HEADERS: Final = (
    "", "", "Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n", "Content-Encoding: deflate, gzip\r\n",
    "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: gzip, chunked\r\n", "Content-Length: 5\r\n", ": x\r\n",
    "a" * 9000,
)  # fmt: skip
_TYPES: Final = (
    "text/html", "text/html; charset=utf-16", "text/html; charset=idna", "text/html;charset=x-sjis",
    "application/xhtml+xml", "text/html; charset=\xff", "text/html; charset=iso-2022-jp",
)  # fmt: skip


def check_warc(dice: random.Random, folder: Path) -> str:
    """Damage one record and read the archive: the pages of all other records are as in the sound archive."""
    count = dice.choice((1, 2, 4))
    sound = [part for number in range(count) for part in (_page(number, f"<p>Text {number}</p>"), _image(number))]
    damaged = dice.randrange(len(sound))
    compressed = dice.random() < 0.7
    others = {number for number in range(count) if number != damaged // 2}
    expected = _read(folder, _joined(sound, compressed=compressed))
    parts = list(sound)
    kind = dice.random()
    if kind < 0.4:
        parts[damaged] = _odd_page(dice, damaged // 2)
    elif kind < 0.7:
        parts[damaged] = mutated(dice, parts[damaged])
    stored = [gzip.compress(part, mtime=0) if compressed else part for part in parts]
    if kind >= 0.7:
        stored[damaged] = mutated(dice, stored[damaged])
    found = _read(folder, b"".join(stored), complete=dice.random() < 0.2)
    for number in others:
        if _rows_of(found, number) != _rows_of(expected, number):
            raise WrongRead(f"page {number} is not as it was, though record {damaged} is damaged")
    errors = [error for error in found["materialize_error"].to_pylist() if error is not None]
    codes = {error_code(error) for error in errors} - {*NOT_IN_SOURCE}
    return f"row error {', '.join(sorted(codes))}" if codes else "read"


def _page(number: int, html: str) -> bytes:
    body = f"<html><body><main><p>{number}</p>{html}<img src='/{number}.png'></main></body></html>".encode()
    return record(f"https://a.example/{number}", http(body))


def _image(number: int) -> bytes:
    return image(f"https://a.example/{number}.png", PNG + bytes([number]))


def _odd_page(dice: random.Random, number: int) -> bytes:
    pieces = dice.choices(_PIECES, k=dice.choice((5, 50, 500)))
    if dice.random() < 0.3:
        pieces = dice.choices(_PIECES, k=2) * dice.choice((100, 5000, 50_000))
    body = "".join(pieces).encode("utf-8", "surrogatepass")
    if dice.random() < 0.3:
        body = mutated(dice, body)
    if dice.random() < 0.2:
        body = gzip.compress(body, mtime=0)
    block = http(body, dice.choice(_TYPES), more=dice.choice(_HEADERS))
    url = dice.choice((f"https://a.example/{number}", "", "http://[x", "x" * 5000, "<urn:x>", "https://a.example/\xff"))
    return record(url, block, more=dice.choice(("", "WARC-Truncated: length\r\n", "Content-Length: 99\r\n")))


def _joined(parts: list[bytes], *, compressed: bool) -> bytes:
    return b"".join(gzip.compress(part, mtime=0) if compressed else part for part in parts)


def _read(folder: Path, content: bytes, *, complete: bool = False) -> pa.Table:
    path = folder / "case.warc"
    path.write_bytes(content)
    try:
        sections = {"warc": WarcSettings(max_page_bytes=2**20)}
        options = ReadOptions(max_batch_bytes=2**20, accept_incomplete=not complete, sections=sections)
        tables = list(read_warc(str(path), options))
    except InterleavedError as error:
        if "case.warc" not in str(error):
            raise WrongRead(f"the message does not name the archive: {error}") from error
        raise
    table = pa.concat_tables([warc_schema().empty_table(), *tables])
    table.validate(full=True)
    InterleavedBatch(table, (str(path),)).validate()
    apply_error_policy(table, "warn", shard="case.warc", stage="read")
    return table


def _rows_of(table: pa.Table, number: int) -> list[dict[str, Any]]:
    rows = table.drop_columns(["source_ref"]).to_pylist()
    return [row for row in rows if row["sample_id"] == f"https://a.example/{number}"]
