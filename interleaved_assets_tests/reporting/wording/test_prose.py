"""Text of documents as HTML: nothing of it acts as markup, and nothing of it is lost."""

import re
from html import unescape

import pytest

from interleaved_assets.reporting.wording.prose import escaped_bytes, prose, visible


def words(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


def test_blocks_keep_their_kind_and_every_character() -> None:
    text = "# Head\n:label:`x`\n\nOne\n  two\n\n```python\nif a < b:\n\n    pass\n```\n| a | b |\n|---|---|\nlast"
    html = str(prose(text))
    assert html == (
        '<p dir="auto" class="heading"># Head</p><p dir="auto">:label:`x`</p><p dir="auto">One\n  two</p>'
        '<pre dir="ltr">```python\nif a &lt; b:\n\n    pass\n```</pre>'
        '<pre dir="auto">| a | b |\n|---|---|</pre><p dir="auto">last</p>'
    )


def test_two_fences_after_one_another_are_two_blocks_and_an_open_one_reaches_the_end() -> None:
    assert str(prose("```\na\n```\n~~~\nb\n\nc")) == '<pre dir="ltr">```\na\n```</pre><pre dir="ltr">~~~\nb\n\nc</pre>'


@pytest.mark.parametrize(
    "text", ["</script><script>x</script>", "\"'><img src=x onerror=y>", "]]> <!-- -->", "&lt;b&gt; &amp;", "{{ 7*7 }}"]
)
def test_markup_stays_text(text: str) -> None:
    html = str(prose(text))
    assert words(html) == text
    assert re.findall(r"<[^>]*>", html) == ['<p dir="auto">', "</p>"]


def test_control_characters_and_overrides_of_direction_are_shown_and_right_to_left_text_is_kept() -> None:
    assert (
        words(str(visible("a\x00b\x1b[31m\x7f\u202edcba\u2028\ufeff"))) == r"a\x00b\x1b[31m\x7f\u202edcba\u2028\ufeff"
    )
    assert str(visible("שלום \u200f\u2067عربي\u2069\tتب")) == "שלום \u200f\u2067عربي\u2069\tتب"
    assert words(str(visible("half \ud83d pair"))) == r"half \ud83d pair"


@pytest.mark.parametrize("text", ["plain", "<&>\"'" * 20, "\x00" * 50, "漢字\u202e"])
def test_bytes_are_estimated_from_above(text: str) -> None:
    size = len(str(visible(text)).encode())
    assert size <= escaped_bytes(text) <= 2 * size + 10
