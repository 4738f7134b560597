import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interleaved_assets.io.rows.parser_process import _idle, close_parsers
from interleaved_assets.io.warc import child, parser
from interleaved_assets.io.warc.main_content import page_content
from interleaved_assets.io.warc.parser import PageTooHeavyError, parse_within_limits
from interleaved_assets.model.errors import ShardError
from interleaved_assets_tests.io.warc.test_bad_input import URLS, documents, sound, text
from interleaved_assets_tests.io.warcs import page, write_warc

URL = "https://a.example/"


def opened(elements: int, paragraphs: int) -> bytes:
    """Formatting elements that are left open, and so repeated in each paragraph."""
    return b"<div>" + b"".join(b"<b c=%d>" % at for at in range(elements)) + b"</div>" + b"<p>x</p>" * paragraphs


def attributes(name: str, separator: bytes) -> bytes:
    """A tag with very many attributes, between two without."""
    return b"<p>x</p><div " + separator.join(b"%b%d" % (name.encode(), at) for at in range(4_000)) + b"><p>x</p>"


MANY_TAGS = b"<td>x" * 10_001
PAGES = {
    "empty": b"",
    "ordinary": b"<p id=a>" + b"A <b class=x>word</b>, <i class=y>another</i>. " * 200,
    "many tags": MANY_TAGS,
    "large": b"<p>" + b"word " * 110_000,
    "open elements": pytest.param(opened(400, 1200), marks=pytest.mark.system),
    "bodies": b"<p>x" * 2_000 + b"<BODY a=1>" * 5,
    "attributes": attributes("a", b"='>' "),
}


@pytest.mark.parametrize("html", PAGES.values(), ids=PAGES)
def test_a_page_is_parsed_in_another_process_with_the_same_result(html: bytes) -> None:
    html = html + "<title>é\0</title><img src=a.png alt=b><nav>c</nav>".encode()
    close_parsers()
    assert parse_within_limits(html, URL, True) == page_content(html, URL, True)
    (first,) = _idle[parser._Parser]
    parse_within_limits(html, URL, True)
    assert _idle[parser._Parser] == [first]


@pytest.mark.parametrize(
    ("url", "html"),
    [
        (URLS[0], "<figure>" + "<img src=a.png>" * 900 + "<figcaption>" + "word " * 20_000),
        (URLS[0], f"<base href='https://a.example/{'b' * 80_000}/'>" + "<img src=a.png>" * 900),
        (URLS[0] + "b" * 20_000, "<p>x" * 4000),
    ],
    ids=["caption", "base", "address"],
)
def test_what_the_rows_of_a_page_repeat_is_bounded(tmp_path: Path, url: str, html: str) -> None:
    found = documents(write_warc(tmp_path / "a.warc.gz", [page(url, html), page(URLS[1], f"<p>{text(1)}</p>")]))
    too_large = "document_too_large: its rows repeat more than 64 MiB of captions and addresses"
    assert found == {url: (too_large, []), URLS[1]: sound(1)}


@pytest.mark.system
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
    html = MANY_TAGS
    with parser._Parser.lent() as lent:
        os.kill(lent._process.pid, ended_by)
        with pytest.raises(error, match=message):
            lent.parse(html, URL, True)
    assert parse_within_limits(html, URL, True) == page_content(html, URL, True)


def test_an_unbuffered_parser_that_is_stopped_and_continued_answers_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write to a pipe that is interrupted so ends early; a container that is paused does the same."""
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    html = b"<p>" + b"word " * 3_000_000
    close_parsers()
    with parser._Parser.lent() as lent, ThreadPoolExecutor() as pool:
        parsing = pool.submit(lent.parse, html, URL, False)
        for _ in range(4_000):
            if parsing.done():
                break
            for number, seconds in ((signal.SIGSTOP, 0.001), (signal.SIGCONT, 0.004)):
                os.kill(lent._process.pid, number)
                time.sleep(seconds)
        else:
            lent.close()  # so that the test fails and does not wait
        assert len(parsing.result().blocks[0].text) == len(html) - len("<p> ")


def test_the_timer_of_a_page_ends_its_parser() -> None:
    """Stand in the least time, since a page for the real one would take five seconds."""
    code = "from interleaved_assets.io.warc import child; child.LEAST_SECONDS = 0.05; child.main()"
    html = opened(400, 4000)
    request = json.dumps((URL, len(html), True)).encode() + b"\n" + html
    assert (
        subprocess.run([sys.executable, "-c", code], input=request, capture_output=True).returncode == -signal.SIGPROF
    )


def test_limits_grow_with_the_page() -> None:
    assert child.limits_of(8 * 2**20) == (2**30, 13)
    assert child.limits_of(64 * 2**20) == (2**32, 69)
