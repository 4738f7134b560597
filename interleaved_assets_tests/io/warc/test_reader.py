"""Web archives as documents of texts and images."""

import base64
import gzip
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.io import materialize
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.warc.reader import warc_schema, warc_shortfall
from interleaved_assets.io.warc.settings import WarcSettings
from interleaved_assets.model.errors import IncompleteShard, ShardError, StorageError
from interleaved_assets.model.source_ref import build_source_ref, parse_source_ref
from interleaved_assets_tests.io.warcs import PNG, http, image, page, read, record, write_warc

WORDS = "Many words make a paragraph that is worth reading, and this is one of them. " * 5


def rows(uri: str, **options: Any) -> list[dict[str, Any]]:
    tables = list(read(uri, **options))
    assert {table.schema for table in tables} <= {warc_schema()}
    return pa.concat_tables(tables).to_pylist() if tables else []


def items(uri: str, **options: Any) -> list[tuple[str, Any]]:
    """Modality, and text, error or bytes, of the rows after the metadata row of the only document."""
    first, *others = rows(uri, **options)
    assert (first["position"], first["modality"]) == (-1, "metadata")
    assert [row["position"] for row in others] == [*range(len(others))]
    return [
        (row["modality"], row["text_content"] or row["materialize_error"] or row["binary_content"]) for row in others
    ]


@pytest.mark.parametrize("compressed", [True, False])
def test_a_page_is_a_document_with_its_images_in_place(tmp_path: Path, compressed: bool) -> None:
    html = (
        f'<html lang="en"><head><title> A  title </title></head><body><main><h1>Heading</h1><p>First. {WORDS}</p>'
        '<figure><img src="/a.png" alt=" An  a "><figcaption>Caption of it.</figcaption></figure>'
        f"<p>Second. {WORDS}</p><img src='https://other.example/b.png'></main></body></html>"
    )
    records = [
        record("", b"software: a test", kind="warcinfo"),
        page("https://a.example/page#part", html),
        record("https://a.example/page", b"GET / HTTP/1.1\r\n\r\n", kind="request"),
        image("https://a.example/a.png"),
    ]
    uri = write_warc(tmp_path / "a.warc", records, compressed=compressed)
    found = rows(uri)
    assert [(row["position"], row["modality"], row["content_type"]) for row in found] == [
        (-1, "metadata", "application/json"),
        (0, "text", "text/plain"),
        (1, "text", "text/plain"),
        (2, "image", "image/png"),
        (3, "text", "text/plain"),
        (4, "text", "text/plain"),
        (5, "image", None),
    ]
    texts = [row["text_content"] for row in found if row["modality"] == "text"]
    assert texts == ["Heading", f"First. {WORDS}".strip(), "Caption of it.", f"Second. {WORDS}".strip()]
    metadata, shown, absent = found[0], found[3], found[6]
    assert {row["sample_id"] for row in found} == {"https://a.example/page"}
    assert (metadata["url"], metadata["title"], metadata["language"]) == ("https://a.example/page", "A title", "en")
    assert metadata["fetched_at"] == "2026-01-02T03:04:05Z"
    assert (shown["binary_content"], shown["image_url"]) == (PNG, "https://a.example/a.png")
    assert (shown["image_alt"], shown["image_caption"]) == ("An a", "Caption of it.")
    assert (absent["binary_content"], absent["image_url"]) == (None, "https://other.example/b.png")
    assert absent["materialize_error"] == "image_not_in_archive: https://other.example/b.png"
    assert warc_shortfall(uri, ReadOptions()) is None


def test_images_are_found_wherever_they_are_in_the_archive(tmp_path: Path) -> None:
    def show(number: int) -> str:
        return f'<p>{WORDS}</p><img src="https://x.example/{number}.png">'

    contents = [PNG + bytes([number]) for number in range(3)]
    records = [
        image("https://x.example/0.png", contents[0]),
        *(page(f"https://a.example/{number}", show(number)) for number in range(3)),
        image("https://x.example/1.png", contents[1]),
        image("https://x.example/1.png", b"\x89PNG\r\n\x1a\nlater"),
        image("https://x.example/2.png", contents[2]),
    ]
    found = rows(write_warc(tmp_path / "a.warc.gz", records), max_batch_bytes=1)
    assert [row["binary_content"] for row in found if row["modality"] == "image"] == contents


def test_what_is_not_main_content_is_one_row_that_says_how_much_of_what(tmp_path: Path) -> None:
    html = (
        "<body><nav><a href='/'>Home page</a></nav><main><p>" + WORDS + "</p><div class='share-links'>Tell others</div>"
        "<p hidden>Not shown</p></main><footer><img src='/logo.png'>All rights reserved</footer></body>"
    )
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", html)])
    assert items(uri) == [
        ("text", WORDS.strip()),
        (
            "text",
            "boilerplate: 48 characters and 1 images are not in the main content; characters: footer 19, share 11, "
            "navigation 9, hidden 9; images: footer 1",
        ),
    ]
    everything = items(uri, settings=WarcSettings(only_main_content=False))
    assert [text for _, text in everything] == [
        "Home page", WORDS.strip(), "Tell others", "Not shown", "image_not_in_archive: https://a.example/logo.png",
        "All rights reserved",
    ]  # fmt: skip


def test_only_successful_html_responses_are_documents(tmp_path: Path) -> None:
    identified = "WARC-Identified-Payload-Type: text/html\r\n"
    records = [
        page("https://a.example/1", f"<p>{WORDS}</p>", status="404 Not Found"),
        page("https://a.example/2", f"<p>{WORDS}</p>", content_type="application/xhtml+xml"),
        record("https://a.example/3", http(b"{}", "application/json")),
        record("https://a.example/4", f"<p>{WORDS}</p>".encode(), kind="resource"),
        page("https://a.example/2", f"<p>Again: {WORDS}</p>"),
        page("https://a.example/5", f"<p>{WORDS}</p>", content_type=""),
        record("https://a.example/6", http(f"<p>{WORDS}</p>".encode(), ""), more=identified),
    ]
    notes = Counter[str]()
    found = rows(write_warc(tmp_path / "a.warc.gz", records), notes=notes)
    assert [row["sample_id"] for row in found if row["position"] == -1] == [
        "https://a.example/2",
        "https://a.example/2~2",
        "https://a.example/6",
    ]
    assert notes == {"pages_without_success": 1, "repeated_sample_ids": 1, "records_left_out": 2}


def test_data_urls_give_their_bytes_and_fillers_are_left_out(tmp_path: Path) -> None:
    data = base64.b64encode(PNG).decode()
    html = (
        f"<p>{WORDS}</p><img src='data:image/png;base64,{data}'><img src='data:image/gif;base64,R0lGOD'>"
        f"<img src='data:image/png;base64,{'!' * 300}'><img src='data:image/svg+xml,{'x' * 300}'>"
        "<img src='https://count.example/' width=1 height=1>"
    )
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", html)])
    assert items(uri)[1:] == [
        ("image", PNG),
        (
            "image",
            f"image_not_in_archive: data:image/png;base64,{'!' * 18}…: it is there, and no bitmap of a known format",
        ),
    ]
    assert {row["image_url"] for row in rows(uri)} == {None}


def test_the_largest_image_of_a_set_is_shown_and_the_one_that_scripts_would_load(tmp_path: Path) -> None:
    html = (
        "<base href='https://cdn.example/x/'>"
        f"<p>{WORDS}</p><img src=s.png srcset='m.png 400w, l,arge.png 800w,s.png 200w, odd.png bigw'>"
        "<picture><source srcset='p.avif 2x, q.avif 3x'><img src=p.png></picture>"
        "<img src='data:image/gif;base64,R0lGOD' data-src=lazy.png><img srcset='only.png'><img src='ftp://a/b.png'>"
        "<img src='http://[broken/'><img alt=none><img src='//cdn2.example/y.png#f'>"
    )
    found = rows(write_warc(tmp_path / "a.warc", [page("https://a.example/", html)]))
    assert [row["image_url"] for row in found if row["modality"] == "image"] == [
        "https://cdn.example/x/l,arge.png",
        "https://cdn.example/x/q.avif",
        "https://cdn.example/x/lazy.png",
        "https://cdn.example/x/only.png",
        "https://cdn2.example/y.png",
    ]


@pytest.mark.parametrize(
    ("charset", "codec", "meta"),
    [
        ("; charset=ISO-8859-1", "cp1252", ""),
        ("; charset=shift_jis", "cp932", ""),
        ("", "utf-8", ""),
        ("", "cp1252", ""),
        ("", "gb18030", "<meta charset=gb2312>"),
        ("; charset=rot13", "koi8-r", "<meta http-equiv=Content-Type content='text/html; charset=KOI8-R'>"),
        ("; charset=iso8859-1", "cp1252", ""),
        ("; charset=x-cp1251", "cp1251", ""),
        ("; charset=ISO-8859-8-I", "iso8859-8", ""),
        ("; charset=ms_kanji", "cp932", ""),
        ("; charset=windows-949", "cp949", ""),
        ("; charset=utf-32", "koi8-r", "<meta charset=koi8-r>"),
        ("; charset=utf-8", "utf-16", ""),
        ("", "utf-8", "<meta charset=utf-16>"),
        ("", "utf-8", "<meta charset=ibm500>"),
    ],
)
def test_the_encoding_is_that_of_mark_server_or_page(tmp_path: Path, charset: str, codec: str, meta: str) -> None:
    letters = {"cp1251": "слово", "iso8859-8": "שלום", "cp949": "똠"}
    text = {"cp932": "日本語", "gb18030": "汉语", "koi8-r": "слово", **letters}.get(
        codec, "für € “x”" if codec != "utf-8" else "für 汉语"
    )
    body = f"{meta}<p>{text} {WORDS}</p>".encode(codec)
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", body, content_type=f"text/html{charset}")])
    assert items(uri) == [("text", f"{text} {WORDS}".strip())]


@pytest.mark.parametrize(
    "label",
    ["utf-7", "idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "charmap", "base64", "hex"],
)
def test_codecs_that_are_no_charsets_are_not_applied(tmp_path: Path, label: str) -> None:
    body = f"<p>2+AGE-3 \\u00e4 für {WORDS}"
    uri = write_warc(
        tmp_path / "a.warc", [page("https://a.example/", body, content_type=f"text/html; charset={label}")]
    )
    assert items(uri) == [("text", body.removeprefix("<p>").strip())]


def deflated(content: bytes) -> bytes:
    """Deflate without the header of zlib, as some servers send it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(content) + packer.flush()


def test_bodies_are_unpacked_as_browsers_do_whatever_the_server_says(tmp_path: Path) -> None:
    html = f"<p>{WORDS}</p>\n<script>".encode() + b"1;\n" * 30_000 + b"</script>\n"
    packed = gzip.compress(html)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    bodies = [
        (packed, "Content-Encoding: x-gzip\r\n"),
        (chunked, "Transfer-Encoding: chunked\r\nContent-Encoding: x-gzip\r\n"),
        (packed, "Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n"),
        (packed + b"\0junk", "Content-Encoding: gzip\r\n"),
        (packed + b"junk", "Content-Encoding: x-gzip\r\n"),
        (packed, ""),
        (gzip.compress(html[:99]) + gzip.compress(html[99:]), "Content-Encoding: x-gzip\r\n"),
        (deflated(html), "Content-Encoding: deflate\r\n"),
        (zlib.compress(html), "Content-Encoding: deflate\r\n"),
    ]
    records = [page(f"https://a.example/{at}", body, more=more) for at, (body, more) in enumerate(bodies)]
    found = rows(write_warc(tmp_path / "a.warc.gz", records))
    assert [(row["text_content"], row["materialize_error"]) for row in found if row["position"] == 0] == [
        (WORDS.strip(), None)
    ] * len(bodies)


def test_plain_text_that_begins_as_deflate_does_is_a_page(tmp_path: Path) -> None:
    body = f"[1] Home. {WORDS}"
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", body, more="Content-Encoding: gzip\r\n")])
    assert items(uri) == [("text", body.strip())]


def test_a_type_that_the_server_gave_twice_is_that_of_a_page(tmp_path: Path) -> None:
    kind = "text/html, text/html; charset=utf-8"
    assert items(write_warc(tmp_path / "a.warc", [page("https://a.example/", f"<p>ü {WORDS}</p>", content_type=kind)]))


@pytest.mark.parametrize("compressed", [True, False])
def test_answers_whose_lines_end_with_line_feeds_alone_are_read(tmp_path: Path, compressed: bool) -> None:
    address = "https://a.example/"
    html = f"<p>{WORDS}</p>\n<script>".encode() + b"1;\n" * 30_000 + b"</script>\n"
    heads = [
        b"HTTP/1.0 200 OK\nContent-Type: text/html\n\n",
        b"HTTP/1.0 200 OK\r\nServer: old\nContent-Type: text/html\n\n",
        b"HTTP/1.0 200 OK\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\n",  # as of a script whose empty line is its own
        b"HTTP/1.0 200 OK\r\nContent-Type: text/html\n\r\n",
        b"HTTP/1.0 200 OK\nContent-Type: text/html\nX: " + b"x" * 100_000 + b"\n\n",
    ]
    picture = b"HTTP/1.0 200 OK\nContent-Type: image/png\n\n" + PNG
    records = [record(f"{address}{number}", head + html) for number, head in enumerate(heads)]
    records += [record(f"{address}a.png", picture), page(f"{address}last", f"<p>{WORDS}</p><img src=a.png>")]
    found = rows(write_warc(tmp_path / "a.warc", records, compressed=compressed))
    assert [row["text_content"] for row in found if row["text_content"]] == [WORDS.strip()] * 7
    assert [row["binary_content"] for row in found if row["modality"] == "image"] == [PNG]


def test_bodies_are_decoded_as_the_server_says(tmp_path: Path) -> None:
    html = f"<p>{WORDS}</p>".encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(html), html)
    records = [
        page("https://a.example/gzip", gzip.compress(html), more="Content-Encoding: gzip\r\n"),
        page("https://a.example/chunked", chunked, more="Transfer-Encoding: chunked\r\n"),
        page("https://a.example/not-chunked", html, more="Transfer-Encoding: chunked\r\n"),
        page("https://a.example/not-gzip", html, more="Content-Encoding: gzip\r\n"),
    ]
    found = rows(write_warc(tmp_path / "a.warc.gz", records))
    assert [(row["text_content"], row["materialize_error"]) for row in found if row["position"] == 0] == [
        (WORDS.strip(), None)
    ] * 4


def test_an_image_above_the_limits_is_an_error_and_one_that_is_none_is_said(tmp_path: Path) -> None:
    html = "".join(f"<img src='/{name}.png'>" for name in ("large", "html", "small", "other"))
    records = [
        page("https://a.example/", f"<p>{WORDS}</p>{html}"),
        image("https://a.example/large.png", PNG * 20),
        image("https://a.example/html.png", b"<p>not found"),
        image("https://a.example/small.png"),
        image("https://a.example/other.png"),
    ]
    uri = write_warc(tmp_path / "a.warc.gz", records)
    limits = LIMITS._replace(max_member_bytes=1000, max_sample_bytes=500)
    too_large = "sample_too_large: https://a.example/{}.png: raise max_member_bytes or max_sample_bytes"
    assert items(uri, limits=limits)[1:] == [
        ("image", too_large.format("large")),
        ("image", "image_not_in_archive: https://a.example/html.png: it is there, and no bitmap of a known format"),
        ("image", PNG),
        ("image", too_large.format("other")),
    ]


def test_tables_hold_whole_pages_and_the_reading_is_repeatable(tmp_path: Path) -> None:
    records = [page(f"https://a.example/{number}", f"<p>{number} {WORDS}</p>") for number in range(20)]
    uri = write_warc(tmp_path / "a.warc.gz", records)
    tables = list(read(uri, max_batch_bytes=3000))
    assert len(tables) > 3
    assert pa.concat_tables(tables).equals(pa.concat_tables(read(uri)))


def test_what_is_no_web_archive_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"no archive", gzip.compress(b"no archive"), b"\x1f\x8b\x08", b"WARC/1.0"):
        path = tmp_path / "a.warc.gz"
        path.write_bytes(content)
        with pytest.raises(ShardError, match=r"a\.warc\.gz is not a web archive, or is damaged"):
            list(read(str(path)))
    with pytest.raises(StorageError, match=r"none\.warc"):
        list(read(str(tmp_path / "none.warc")))


def test_an_archive_without_pages_has_no_rows(tmp_path: Path) -> None:
    uri = write_warc(tmp_path / "a.warc.gz", [image("https://a.example/a.png")])
    assert rows(uri) == []


def test_an_archive_in_one_gzip_stream_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    first, *others = (page(f"https://a.example/{number}", "<p>1") for number in range(3))
    for members in ([first + others[0]], [first, *others[:1], others[1] + first], [first, b"".join(others)]):
        write_warc(path, members)
        with pytest.raises(ShardError, match=r"one gzip stream.*warcio recompress"):
            list(read(str(path)))


def test_a_cut_archive_is_incomplete(tmp_path: Path) -> None:
    uri = write_warc(
        tmp_path / "a.warc.gz", [page("https://a.example/1", f"<p>{WORDS}"), page("https://a.example/2", WORDS)]
    )
    path = Path(uri)
    path.write_bytes(path.read_bytes()[:-20])
    assert warc_shortfall(uri, ReadOptions()) is not None
    with pytest.raises(IncompleteShard, match=r"a\.warc\.gz: truncated_shard: .*publish\.accept_incomplete"):
        list(read(uri, accept_incomplete=False))
    assert [row["sample_id"] for row in rows(uri) if row["position"] == -1] == [
        "https://a.example/1",
        "https://a.example/2",
    ]


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp932", "この段落は日本語で書かれていて、文字コードはどこにも示されていません。"),
        ("cp1251", "Этот абзац написан по-русски, и кодировка страницы нигде не указана."),
        ("gb18030", "这一段是用中文写的，页面上没有任何地方说明它的字符编码。"),
        ("cp1252", "Déjà vu: « le café » naïf où l’été était très long, façade à côté."),
    ],
)
def test_a_page_that_nothing_labels_is_read_by_its_characters(tmp_path: Path, codec: str, text: str) -> None:
    notes = Counter[str]()
    body = f"<script>var latin = 'letters';</script><p>{text * 4}".encode(codec)
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", body, content_type="text/html")])
    assert items(uri, notes=notes) == [("text", text * 4)]
    assert notes == ({} if codec == "cp1252" else {"pages_of_guessed_charset": 1})


@pytest.mark.parametrize(
    "body",
    [
        b"<meta " * 80 + b"charset=" + b" " * 3600 + b">",
        b"<meta charset=" + b" " * 4000 + b"'",
        b"<script " * 7000 + b"\xe0\xe1" * 4000,
        b"<" * 50_000 + b"\xe0\xe1" * 4000,
    ],
    ids=["spaces", "quote", "script", "less-than"],
)
def test_the_charset_of_a_hostile_page_is_found_at_once(tmp_path: Path, body: bytes) -> None:
    """Thousands of such pages fit into an archive of some MB, and each took up to a minute."""
    uri = write_warc(tmp_path / "a.warc.gz", [page("https://a.example/", body, content_type="text/html")] * 60)
    assert len(rows(uri)) >= 60


def test_no_break_spaces_are_no_letters_of_another_script(tmp_path: Path) -> None:
    words = ["Price", "list", "of", "items", "now"] * 3
    body = b"<p>" + "\xa0\xa0\xa0\xa0\xa0\xa0".join(words).encode("cp1252")
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", body, content_type="text/html")])
    assert items(uri) == [("text", " ".join(words))]


def test_names_in_latin_letters_do_not_hide_the_script_of_a_page_that_nothing_labels(tmp_path: Path) -> None:
    text = "Эта страница называет много программ: " + "Microsoft Windows, Netscape Navigator, Internet Explorer. " * 2
    body = f"<p>{text}".encode("cp1251")
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", body, content_type="text/html")])
    assert items(uri) == [("text", text.strip())]


def test_bytes_that_the_stated_charset_does_not_have_are_noted(tmp_path: Path) -> None:
    notes = Counter[str]()
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", f"<p>{WORDS}".encode() + b"caf\xe9")])
    assert items(uri, notes=notes) == [("text", f"{WORDS}caf\ufffd")]
    assert notes == {"pages_with_replaced_characters": 1}


def test_the_whole_address_of_an_absent_image_is_in_its_error(tmp_path: Path) -> None:
    url = f"https://a.example/{'x' * 1000}.png?w=1"
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", f"<p>{WORDS}</p><img src='{url}'>")])
    assert items(uri)[1] == ("image", f"image_not_in_archive: {url}")


def test_documents_are_in_the_order_of_the_archive_whichever_page_is_parsed_first(tmp_path: Path) -> None:
    addresses = [f"https://a.example/{number}" for number in range(12)]
    pages = [page(url, f"<p>{url} {WORDS}" * (1 if number % 3 else 500)) for number, url in enumerate(addresses)]
    found = rows(write_warc(tmp_path / "a.warc.gz", pages))
    assert list(dict.fromkeys(row["sample_id"] for row in found)) == addresses
    assert all((row["text_content"] or row["sample_id"]).startswith(row["sample_id"]) for row in found)


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("", ""),
        ("x", "invalid_source_ref: part 'x' is no offset of a record in {uri}"),
        ("9" * 30, "invalid_source_ref: part '999999999999999999999999999999' is no offset of a record in {uri}"),
        ("9" * 5000, f"invalid_source_ref: part '{'9' * 40}' is no offset of a record in {{uri}}"),
        ("99999", "unreadable_source: record at 99999 of {uri}: it has no record"),
        ("7", "unreadable_source: record at 7 of {uri}: Invalid WARC header"),
    ],
)
def test_an_image_is_fetched_by_the_offset_of_its_record(tmp_path: Path, part: str, error: str) -> None:
    html = f"<main><p>{WORDS}</p><img src='/a.png'></main>"
    uri = write_warc(tmp_path / "a.warc", [page("https://a.example/", html), image("https://a.example/a.png")])
    (table,) = read(uri, by_reference=True)
    (shown,) = (row for row in table.to_pylist() if row["modality"] == "image")
    ref = parse_source_ref(shown["source_ref"])
    wanted = build_source_ref(ref.path, part=part or ref.part)
    rows = pa.table({"sample_id": ["a"], "position": [0], "modality": ["image"], "source_ref": [wanted]})
    (found,) = materialize(rows, allowed_roots=[str(tmp_path)]).to_pylist()
    assert found["materialize_error"] == (error.format(uri=uri) or None)
    assert found["binary_content"] == (None if error else PNG)
    if not error:
        (found,) = materialize(rows, allowed_roots=[str(tmp_path)], limits=TarLimits(max_member_bytes=9)).to_pylist()
        assert found["materialize_error"].startswith("member_too_large: record at ")


@pytest.mark.parametrize("damage", ["one character too many", "percent", "no comma"])
def test_a_data_url_that_is_no_base64_is_an_error_of_its_row(tmp_path: Path, damage: str) -> None:
    url = {
        "one character too many": f"data:image/png;base64,{'A' * 301}",
        "percent": f"data:image/png,{'%89' * 100}",
        "no comma": f"data:image/png;base64{'A' * 300}",
    }[damage]
    html = f"<main><p>{WORDS}</p><img src='{url}'></main>"
    _, image_row = items(write_warc(tmp_path / "a.warc", [page("https://a.example/", html)]))
    assert image_row == (
        "image", f"image_not_in_archive: {url[:40]}…: it is there, and no bitmap of a known format"
    )  # fmt: skip


@pytest.mark.parametrize("how", ["data:image/png;BASE64,", "DATA:image/png;charset=utf-8; base64,", "data:image/png,"])
def test_a_data_url_is_read_however_it_is_written(tmp_path: Path, how: str) -> None:
    content = PNG + bytes(300)
    body = base64.b64encode(content).decode() if "64" in how else "".join(f"%{byte:02x}" for byte in content)
    html = f"<main><p>{WORDS}</p><img src='{how}{body}'></main>"
    (table,) = read(write_warc(tmp_path / "a.warc", [page("https://a.example/", html)]))
    assert table["binary_content"].to_pylist()[-1] == content
