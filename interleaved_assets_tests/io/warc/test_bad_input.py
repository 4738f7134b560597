"""Damaged, cut and hostile web archives: rows, row errors or a refusal, and the rest of the archive is read."""

import errno
import gzip
import io
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.warc.archive import index_archive, read_body
from interleaved_assets.io.warc.reader import warc_shortfall
from interleaved_assets.io.warc.settings import WarcSettings
from interleaved_assets.model.errors import InterleavedError, StorageError
from interleaved_assets_tests.io.warcs import page, read, record, write_warc

URLS = [f"https://a.example/{number}" for number in range(3)]


def text(seed: int, words: int = 40) -> str:
    """Words that gzip cannot make much smaller."""
    dice = random.Random(seed)
    return " ".join(f"{dice.getrandbits(40):x}" for _ in range(words))


def documents(uri: str, **options: Any) -> dict[str, tuple[str | None, list[str]]]:
    """Error and texts of each document, by id."""
    rows = pa.concat_tables(read(uri, **options)).to_pylist()
    return {
        row["sample_id"]: (
            row["materialize_error"],
            [one["text_content"] for one in rows if one["sample_id"] == row["sample_id"] and one["text_content"]],
        )
        for row in rows
        if row["position"] == -1
    }


def sound(number: int, words: int = 40) -> tuple[None, list[str]]:
    return None, [text(number, words)]


@pytest.mark.parametrize("compressed", [True, pytest.param(False, marks=pytest.mark.system)])
def test_wherever_an_archive_is_cut_it_is_incomplete_or_ends_with_a_record(tmp_path: Path, compressed: bool) -> None:
    parts = [page(url, f"<p>{text(number)}</p>") for number, url in enumerate(URLS)]
    path = Path(write_warc(tmp_path / "a.warc", parts, compressed=compressed))
    whole = path.read_bytes()
    starts = [place.offset for place in index_archive(path, str(path)).pages]
    ends = [*starts[1:], len(whole)]
    for cut in range(1, len(whole), 13):
        path.write_bytes(whole[:cut])
        try:
            shortfall, found = warc_shortfall(str(path), ReadOptions()), documents(str(path))
        except (InterleavedError, pa.ArrowInvalid):
            assert cut < ends[0]  # not one record, or no page
            continue
        # a plain record is followed by two line ends, without which nothing is missing
        borders = ends if compressed else [at for end in ends for at in range(end - 4, end + 1)]
        assert (shortfall is None) == (cut in borders), cut
        for number, end in enumerate(ends):
            if end <= cut:
                assert found[URLS[number]] == sound(number)
            elif URLS[number] in found and shortfall is not None and cut < end - 8:
                error = found[URLS[number]][0]
                assert error is None or error.startswith("truncated_shard: ")


def test_a_damaged_gzip_member_costs_its_page_the_rest_after_the_damage(tmp_path: Path) -> None:
    parts = [page(url, "".join(f"<p>{text(at, 2000)}</p>" for at in range(10))) for url in URLS]
    members = [gzip.compress(part, mtime=0) for part in parts]
    broken = bytearray(members[1])
    broken[len(broken) // 2] ^= 0xFF
    path = tmp_path / "a.warc.gz"
    path.write_bytes(members[0] + bytes(broken) + members[2])
    notes = Counter[str]()
    found = documents(str(path), notes=notes)
    assert notes == {"damaged_places": 1}
    assert list(found) == URLS
    complete = (None, [text(at, 2000) for at in range(10)])
    assert found[URLS[0]] == found[URLS[2]] == complete
    error, texts = found[URLS[1]]
    assert error == "truncated_shard: the archive has not all of this page"
    assert 2 < len(texts) < 8
    assert texts[:2] == complete[1][:2]


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(("length", "error"), [("99999", "truncated_shard"), ("300", None), ("-5", None), ("x", None)])
def test_a_wrong_length_costs_no_other_page(tmp_path: Path, compressed: bool, length: str, error: str | None) -> None:
    parts = [page(url, f"<p>{text(number)}</p>") for number, url in enumerate(URLS)]
    head, _, body = parts[1].partition(b"\r\n\r\n")
    kept = b"\r\n".join(line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length"))
    parts[1] = kept + f"\r\nContent-Length: {length}\r\n\r\n".encode() + body
    uri = write_warc(tmp_path / "a.warc", parts, compressed=compressed)
    found = documents(uri)
    assert (found[URLS[0]], found[URLS[2]]) == (sound(0), sound(2))
    if error is not None:
        assert (found[URLS[1]][0] or "").startswith(error)


def test_garbage_and_empty_members_between_records_are_read_over(tmp_path: Path) -> None:
    members = [gzip.compress(page(url, f"<p>{text(number)}</p>")) for number, url in enumerate(URLS)]
    path = tmp_path / "a.warc.gz"
    path.write_bytes(members[0] + gzip.compress(b"") + members[1])
    assert documents(str(path)) == {URLS[0]: sound(0), URLS[1]: sound(1)}
    assert warc_shortfall(str(path), ReadOptions()) is None
    path.write_bytes(members[0] + b"garbage \x1f\x8b\x08 and more of it" + members[1] + members[2])
    assert documents(str(path)) == {url: sound(number) for number, url in enumerate(URLS)}
    assert warc_shortfall(str(path), ReadOptions()) is not None


def test_a_file_of_damaged_places_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(gzip.compress(page(URLS[0], f"<p>{text(0)}</p>")) + b"\x1f\x8b\x08\x00" * 200_000)
    began = time.process_time()
    assert documents(str(path)) == {URLS[0]: sound(0)}
    assert time.process_time() - began < 10


def test_a_large_page_is_an_error_and_is_not_unpacked(tmp_path: Path) -> None:
    bomb = gzip.compress(b"<p>" + bytes(200 * 2**20), compresslevel=1)
    parts = [
        page(URLS[0], bomb, more="Content-Encoding: gzip\r\n"),
        page(URLS[1], "<p>" + "x" * 5000),
        page(URLS[2], f"<p>{text(2)}</p>"),
    ]
    uri = write_warc(tmp_path / "a.warc.gz", parts)
    found = documents(uri, settings=WarcSettings(max_page_bytes=4096))
    too_large = "document_too_large: the page has more than max_page_bytes 4096", []
    assert found == {URLS[0]: too_large, URLS[1]: too_large, URLS[2]: sound(2)}


def test_a_page_of_too_many_tags_is_an_error(tmp_path: Path) -> None:
    parts = [page(URLS[0], "<p>x" * 200_001), page(URLS[1], f"<p>{text(1)}</p>")]
    found = documents(write_warc(tmp_path / "a.warc.gz", parts))
    assert found == {URLS[0]: ("document_too_large: it has more than 200000 tags", []), URLS[1]: sound(1)}


@pytest.mark.parametrize(
    "part",
    [
        "<div><svg><path d='M0'/><use href='#a'/></svg>text</div>",
        "<p>para <font size=2>x</p>",
        "<div>x</div><!-- <div> -->",
    ],
)
def test_a_page_of_many_elements_that_are_not_nested_is_read(tmp_path: Path, part: str) -> None:
    ((error, texts),) = documents(write_warc(tmp_path / "a.warc", [page(URLS[0], part * 5_000)])).values()
    assert (error, len(texts)) == (None, 5_000)


def test_a_page_of_many_short_elements_is_read(tmp_path: Path) -> None:
    html = "".join(f"<tr><td>{at}<td>{at * at}" for at in range(10_000))
    (document,) = documents(write_warc(tmp_path / "a.warc", [page(URLS[0], f"<table>{html}</table>")])).values()
    assert document == (None, [f"{at} | {at * at}" for at in range(10_000)])


def test_a_broken_body_is_an_error_and_a_cut_one_has_what_could_be_decoded(tmp_path: Path) -> None:
    body = gzip.compress(f"<p>{text(0, 20_000)}</p>".encode())
    cut, broken = body[: len(body) // 2], b"\x1f\x8b\x08" + bytes(500)
    parts = [
        page(URLS[0], cut, more="Content-Encoding: gzip\r\n"),
        page(URLS[1], broken, more="Content-Encoding: gzip\r\n"),
        page(URLS[2], f"<p>{text(2)}</p>"),
    ]
    found = documents(write_warc(tmp_path / "a.warc.gz", parts))
    assert found[URLS[2]] == sound(2)
    assert (found[URLS[1]][0] or "").startswith("undecodable_page: ")
    assert found[URLS[1]][1] == []
    error, (begun,) = found[URLS[0]]
    assert error is None
    assert len(begun) > 10_000
    assert text(0, 20_000).startswith(begun[:10_000])


def test_odd_addresses_and_headers_give_documents_or_nothing(tmp_path: Path) -> None:
    html = f"<p>{text(0)}</p><img src='a.png'>"
    parts = [
        page("http://[broken", html),
        page("urn:x", html),
        page("", html),
        page(URLS[0] + "/\N{SNOWMAN}", html),
        record(URLS[1], b"no HTTP at all"),
        record(URLS[2], b"HTTP/1.1 abc\r\nContent-Type: text/html\r\n\r\n<p>x"),
    ]
    found = documents(write_warc(tmp_path / "a.warc", parts))
    assert list(found) == ["http://[broken", "urn:x", URLS[0] + "/\N{SNOWMAN}"]
    assert set(map(str, found.values())) == {str(sound(0))}


@pytest.mark.parametrize("compressed", [True, pytest.param(False, marks=pytest.mark.system)])
def test_a_record_whose_header_ends_too_early_costs_no_other_record(tmp_path: Path, compressed: bool) -> None:
    parts = [page(url, f"<p>{text(number)}</p>") for number, url in enumerate(URLS)]
    whole = parts[1].replace(b"WARC-Type", b"wARC-Type")  # fastwarc refuses a second type of the same spelling
    for cut in range(whole.index(b"\r\n\r\n") + 4):
        parts[1] = whole[:cut]
        path = write_warc(tmp_path / "a.warc", parts, compressed=compressed)
        found = documents(path, accept_incomplete=True)
        assert (cut, found[URLS[0]], found[URLS[2]]) == (cut, sound(0), sound(2))


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (lambda html: pa.compress(html, "brotli", asbytes=True)[:200], "br"),
        (lambda html: pa.compress(html, "zstd", asbytes=True)[:200], "zstd"),
        (lambda html: gzip.compress(gzip.compress(html)), "gzip"),
        (lambda html: gzip.compress(html)[:200], "x-gzip"),
        (lambda _: random.Random(0).randbytes(3000), "sdch"),
    ],
)
def test_a_page_that_cannot_be_unpacked_gives_no_text(
    tmp_path: Path, body: Callable[[bytes], bytes], encoding: str | None
) -> None:
    html = "".join(f"<p>{text(number)}</p>" for number in range(9)).encode()
    more = f"Content-Encoding: {encoding}\r\n" if encoding else ""
    uri = write_warc(tmp_path / "a.warc", [page(URLS[0], body(html), more=more), page(URLS[1], f"<p>{text(1)}</p>")])
    found = documents(uri)
    assert found[URLS[1]] == sound(1)
    error, texts = found[URLS[0]]
    assert (error or "").startswith("undecodable_page: ")
    assert not texts


def test_a_page_in_an_unknown_encoding_keeps_its_address(tmp_path: Path) -> None:
    html = f"<p>{text(0)}</p>".encode()
    more = "Content-Encoding: sdch, x-gzip\r\n"
    found = documents(write_warc(tmp_path / "a.warc", [page(URLS[0], gzip.compress(html)[:20], more=more)]))
    assert list(found) == [URLS[0]]
    assert (found[URLS[0]][0] or "").startswith("undecodable_page: ")


@pytest.mark.parametrize("html", ["<p>a\0b and more</p>", "<p>\x1b[1mwords\x1b[0m of a terminal</p>", "<p>\x0b</p>"])
def test_a_few_control_characters_are_no_binary_data(tmp_path: Path, html: str) -> None:
    uri = write_warc(tmp_path / "a.warc", [page(URLS[0], html + f"<p>{text(0)}</p>" * 3)])
    assert documents(uri)[URLS[0]][0] is None


def test_a_page_in_utf16_is_no_binary_data(tmp_path: Path) -> None:
    html = f"<p>{text(0)}</p>"
    pages = [
        page(URLS[0], html.encode("utf-16")),
        page(URLS[1], html.encode("utf-16-le"), content_type="text/html; charset=utf-16le"),
    ]
    assert documents(write_warc(tmp_path / "a.warc", pages)) == {URLS[0]: sound(0), URLS[1]: sound(0)}


class _FailingFile(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        if self.tell() >= 100_000:
            raise OSError(errno.EIO, "the disk is away")
        return super().read(size)


def test_a_disk_that_fails_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "a.warc.gz"
    write_warc(archive, [page(url, f"<p>{text(seed, 20_000)}</p>") for seed, url in enumerate(URLS)])
    content, last = archive.read_bytes(), index_archive(archive, "a").pages[-1].offset
    with pytest.raises(OSError, match="the disk is away"):
        read_body(_FailingFile(content), last, 2**20)
    monkeypatch.setattr(Path, "open", lambda *_: _FailingFile(content))
    with pytest.raises(StorageError, match=r"cannot read .*a\.warc\.gz: the disk is away"):
        list(read(str(archive), accept_incomplete=True))
