"""White space, Unicode and boilerplate: what the functions change and drop, and what they leave."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets_tests.rewriting.rows import IMAGE, rewritten, rows_of, texts_after


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a\u00a0\u2003b \t c", "a b c"),
        ("  a \r\n b\r\n\r\n\r\n\r\nc\u2028d\x0ce ", "a\nb\n\nc\nd\ne"),
        ("as it is\n\nalready", "as it is\n\nalready"),
    ],
)
def test_white_space(text: str, left: str) -> None:
    assert texts_after("normalize_whitespace", text) == [left]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("e\u0301", "\u00e9"),
        ("\ufeffso\u00adft\u200b\x00 \u202eline\x1b", "soft line"),
        ("tab\tand\r\nlines\x0c", "tab\tand\r\nlines\x0c"),
        ("\U0001f468\u200d\U0001f469 می\u200cخواهم", "\U0001f468\u200d\U0001f469 می\u200cخواهم"),
        ("ﬁ ½ Ａ", "ﬁ ½ Ａ"),
    ],
)
def test_unicode(text: str, left: str) -> None:
    assert texts_after("normalize_unicode", text) == [left]


@given(st.lists(st.text(max_size=60), max_size=4), st.sampled_from(["normalize_whitespace", "normalize_unicode"]))
def test_twice_is_as_once(texts: list[str], name: str) -> None:
    once = rewritten(rows_of([*texts, IMAGE, None]), name)
    assert once.rows.num_rows == len(texts) + 3
    assert rewritten(once.rows, name).changes.num_rows == 0


@pytest.mark.parametrize(
    "text",
    [
        "Skip to main content",
        "Home | About us | Contact",
        "home » blog » news",
        "We use cookies to give you the best experience. Accept all",
        "By continuing to browse this site you agree to our use of cookies.",
        "© 2024 Example Ltd. All rights reserved.",
        "Read more …",
        "***",
        " ",
        "",
    ],
)
def test_boilerplate_is_dropped(text: str) -> None:
    assert texts_after("drop_boilerplate", "A first text.", text) == ["A first text."]


@pytest.mark.parametrize(
    "text",
    [
        "News",
        "Help arrived at home, and next we searched the shop.",
        "We baked cookies, and the recipe uses butter.",
        "Read more books than you can carry.",
        "🎉",
        "42",
        "  });",
        "谢谢",
        "We use cookies. " + "A long article follows. " * 30,
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert texts_after("drop_boilerplate", text) == [text]


def test_repeats_are_dropped_within_a_document_only() -> None:
    result = rewritten(
        rows_of(["Same  text", IMAGE, "same text", "Same\ntext ", None, None], ["Same text"]), "drop_boilerplate"
    )
    assert [(row["sample_id"], row["position"]) for row in result.changes.to_pylist()] == [("doc-0", 3)]
    assert result.ledger.to_pylist() == [
        {
            "sample_id": "doc-0",
            "position": 3,
            "modality": "text",
            "stage": "rewritten",
            "reason": "drop_boilerplate",
            "measured": None,
            "threshold": None,
            "detail": "repeats an earlier text of the document",
        }
    ]


@given(st.lists(st.text(alphabet=" \n\t\r\x0b\x0c\x85\xa0\u2003\u2028\u2029\u3000ab", max_size=12), max_size=6))
def test_no_uneven_white_space_is_left(texts: list[str]) -> None:
    for before, after in zip(texts, texts_after("normalize_whitespace", *texts), strict=True):
        assert not re.search(r"[^\S \n]|  | \n|\n |\n{3}|\A\s|\s\Z", after)
        assert after.split() == before.split()
