import html
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model.errors import MaterializeError, ScoreError, StorageError
from interleaved_assets.model.shown import (
    escaped,
    has_query,
    has_user,
    markdown_cell,
    markdown_table,
    shown,
    without_credentials,
)


@pytest.mark.parametrize(
    ("uri", "plain"),
    [
        ("https://user:pw@host/a.tar", "https://host/a.tar"),
        ("https://token@host:8080/a.tar?sig=x#y", "https://host:8080/a.tar"),
        ("HTTPS://host/a.tar?X-Amz-Signature=x", "HTTPS://host/a.tar"),
        ("s3://key:se/cr+et@bucket/a.tar", "s3://bucket/a.tar"),
        ("s3://key:se?cr#et@bucket/a.tar", "s3://bucket/a.tar"),
        ("simplecache::https://user:pw@host/a?b=c", "simplecache::https://host/a"),
        ("abfs://name:pw@account.dfs.core.windows.net/a", "abfs://account.dfs.core.windows.net/a"),
    ],
)
def test_credentials_are_removed_from_urls(uri: str, plain: str) -> None:
    assert without_credentials(uri) == plain
    assert has_user(uri) or has_query(uri)
    assert without_credentials(plain) == plain


@pytest.mark.parametrize(
    "uri",
    [
        "/data/a@b/what?.tar",
        "data/a:b@c#d.tar",
        "s3://bucket/a@b/what?a=b.tar",
        "s3://arn:aws:s3:eu-west-1:1234:accesspoint/mine/a@b.tar",
        "abfs://container@account.dfs.core.windows.net/a.tar",
        "http://[::1]:9000/a@b.tar",
        "https://host:8080/a@b.tar",
        "simplecache::s3://bucket/a.tar",
        "https://[::1]",
        "a::b",
        "://x@y",
    ],
)
def test_urls_without_credentials_are_unchanged(uri: str) -> None:
    assert without_credentials(uri) == uri
    assert not has_user(uri)


def test_messages_lose_only_credentials_and_control_characters() -> None:
    text = "cannot read 'https://u:pw@h/a?b=c': (https://h/x?sig=1). two\nlines, \x1b[2J\x85\u202e\udcff, é"
    assert shown(text) == r"cannot read 'https://h/a': (https://h/x). two" "\n" r"lines, \x1b[2J\x85\u202e\udcff, é"
    assert shown(shown(text)) == shown(text)
    assert escaped("a\nb\tc") == r"a\nb\tc"


def test_error_texts_have_no_credentials_or_control_characters() -> None:
    url = "https://u:CANARY@h/a.tar?sig=CANARY"
    errors = [
        StorageError(f"cannot read {url}\x1b"),
        ScoreError(url, "\x1b", 1, "qr", f"unscored: {url}"),
        MaterializeError(shard=url, sample_id="\x1b", position=0, member=url, error=f"short_read: {url}"),
    ]
    for error in errors:
        assert "CANARY" not in str(error)
        assert "\x1b" not in str(error)
        assert "https://h/a.tar" in str(error)


@pytest.mark.parametrize("piece", ["x", "x:", "::x", "x://", "@", "x://a:", "://", "\x1b"])
def test_time_is_linear_in_the_length_of_the_text(piece: str) -> None:
    started = time.process_time()
    shown(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 5


@given(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=40))
def test_a_cell_shows_the_value_without_markup(value: str) -> None:
    cell = markdown_cell(value)
    assert html.unescape(re.sub(r"\\(.)", r"\1", cell)) == value
    unescaped = re.sub(r"\\.", "", cell)
    assert not set(unescaped) & set("|`*_[]~!<>\\")
    assert re.sub(r"&(amp|lt|gt);", "", unescaped).count("&") == 0


def test_a_cell_shows_control_characters_as_escapes() -> None:
    assert markdown_cell("a\x00b\n\u202ec \ud800|") == r"a\\x00b \\u202ec \\ud800\|"


def test_a_table_is_aligned_and_its_cells_are_escaped() -> None:
    assert markdown_table(("name", "rows"), [("a|b\nc", 5), ("*x* [y](z) <b> &lt;", 6)]) == (
        "| name | rows |\n| --- | ---: |\n| a\\|b c | 5 |\n| \\*x\\* \\[y\\](z) &lt;b&gt; &amp;lt; | 6 |"
    )
