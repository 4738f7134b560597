import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from interleaved_assets.io.warc import child, heavy_pages
from interleaved_assets.io.warc.heavy_pages import PageTooHeavyError, parse_within_limits
from interleaved_assets.io.warc.page import parse_page
from interleaved_assets.model.errors import ShardError
from interleaved_assets_tests.io.warc.test_bad_input import URLS, documents, sound, text
from interleaved_assets_tests.io.warcs import page, write_warc

URL = "https://a.example/"


def opened(elements: int, paragraphs: int) -> bytes:
    """Formatting elements that are left open, and so repeated in each paragraph."""
    return b"<div>" + b"".join(b"<b c=%d>" % at for at in range(elements)) + b"</div>" + b"<p>x</p>" * paragraphs


def attributes(name: str, separator: bytes) -> bytes:
    """A tag of more than 20,000 bytes, between two short ones."""
    return b"<p>x</p><div " + separator.join(b"%b%d" % (name.encode(), at) for at in range(4_000)) + b"><p>x</p>"


ORDINARY = b"<p id=a>" + b"A <b class=x>word</b>, <i class=y>another</i>. " * 200
HEAVY = {
    "many tags": b"<td>x" * 10_001,
    "large": b"<p>" + b"word " * 110_000,
    "open elements": opened(400, 1200),
    "bodies": b"<p>x" * 2_000 + b"<BODY a=1>" * 5,
    **{
        name: attributes(name, separator)
        for name, separator in (("a", b"=1 "), ("a<", b" "), ("<a", b"/"), ("b", b"=''"))
    },
}


@pytest.mark.parametrize("html", HEAVY.values(), ids=HEAVY)
def test_a_heavy_page_is_parsed_in_another_process_with_the_same_result(html: bytes) -> None:
    assert heavy_pages._is_heavy(html, html.count(b"<"))
    html = html + "<title>é\0</title><img src=a.png alt=b><nav>c</nav>".encode()
    assert parse_within_limits(html, URL) == parse_page(html, URL)
    with heavy_pages._Parser.lent() as first:
        pass
    parse_within_limits(html, URL)
    with heavy_pages._Parser.lent() as second:
        assert second is first


@pytest.mark.parametrize("html", [b"", ORDINARY, b"<p>" + b"word " * 90_000, b"<td>x" * 9_000, opened(20, 3000)])
def test_an_ordinary_page_is_parsed_in_this_process(html: bytes) -> None:
    assert not heavy_pages._is_heavy(html, html.count(b"<"))
    assert parse_within_limits(html, URL) == parse_page(html, URL)


def test_open_elements_that_take_too_much_memory_are_an_error_of_their_page(tmp_path: Path) -> None:
    parts = [page(URLS[0], opened(1500, 4000).decode()), page(URLS[1], f"<p>{text(1)}</p>")]
    found = documents(write_warc(tmp_path / "a.warc.gz", parts))
    assert found[URLS[0]][0] == "document_too_large: it took the parser more than 1024 MiB of memory"
    assert found[URLS[1]] == sound(1)


@pytest.mark.parametrize(
    ("ended_by", "error", "message"),
    [
        (signal.SIGPROF, PageTooHeavyError, "it took the parser more than 5 s of processor time"),  # as its timer does
        (signal.SIGSEGV, PageTooHeavyError, "it crashed the parser, which may take 1024 MiB of memory"),
        (signal.SIGKILL, ShardError, f"the parser of the page {URL} ended with code -9: "),
    ],
)
def test_a_page_whose_parser_ends_is_refused_and_the_next_is_read(
    ended_by: int, error: type[Exception], message: str
) -> None:
    html = HEAVY["many tags"]
    with heavy_pages._Parser.lent() as lent:
        os.kill(lent._process.pid, ended_by)
        with pytest.raises(error, match=message):
            lent.parse(html, URL)
    assert parse_within_limits(html, URL) == parse_page(html, URL)


def test_the_timer_of_a_page_ends_its_parser() -> None:
    """Stand in the least time, since a page for the real one would take ten seconds."""
    code = "from interleaved_assets.io.warc import child; child.LEAST_SECONDS = 0.05; child.main()"
    html = opened(400, 4000)
    request = json.dumps((URL, len(html))).encode() + b"\n" + html
    assert (
        subprocess.run([sys.executable, "-c", code], input=request, capture_output=True).returncode == -signal.SIGPROF
    )


def test_limits_grow_with_the_page() -> None:
    assert child.limits_of(8 * 2**20) == (2**30, 13)
    assert child.limits_of(64 * 2**20) == (2**32, 69)
