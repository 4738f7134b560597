import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("open_clip")
from open_clip import SimpleTokenizer

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.text import Tokenizer

pytestmark = pytest.mark.torch

CONTEXT = 77
PLAIN = SimpleTokenizer(context_length=CONTEXT)
TRUNCATE = Tokenizer(SimpleTokenizer(context_length=CONTEXT), "truncate")
WINDOW = Tokenizer(SimpleTokenizer(context_length=CONTEXT), "window")

WORDS = [
    "hello",
    "don't",
    "café",
    "Ã©tÃ©",
    "&amp;amp;",
    "\n",
    "你好世界",
    "12,345",
    "<end_of_text>",
    "ΟΔΟΣ",
    "-" * 60,
    "\u2019s",
]


def assert_as_plain(text: str) -> None:
    """The tokens are open_clip's own, but for the padding."""
    (found,) = TRUNCATE(text)
    (wanted,) = PLAIN([text]).numpy()
    assert len(found) <= CONTEXT
    assert np.array_equal(found, wanted[: len(found)])
    assert not wanted[len(found) :].any()


@given(st.text(max_size=300).filter(str.strip))
def test_any_text_gives_the_tokens_that_open_clip_gives(text: str) -> None:
    assert_as_plain(text.strip())


@pytest.mark.parametrize("length", [1, 30, 300, 1000, 5000])
@pytest.mark.parametrize("separator", [" ", "\n", " \r\n\t "])
def test_texts_of_every_length_give_the_tokens_that_open_clip_gives(length: int, separator: str) -> None:
    choose = random.Random(length)
    assert_as_plain(separator.join(choose.choice(WORDS) for _ in range(length)).strip())


@pytest.mark.parametrize(
    "text", ["a" * 3000, "word " * 15 + " " * 100_000 + "word " * 200, "x" + "\u200b" * 2000 + "y"]
)
def test_odd_texts_give_the_tokens_that_open_clip_gives(text: str) -> None:
    assert_as_plain(text)


@pytest.mark.parametrize(
    "megabyte",
    [
        "plain words " * 90_000,
        random.Random(0).randbytes(10**6).translate(bytes(ord("a") + number % 26 for number in range(256))).decode(),
        "é" * 10**6,
        "Ã©t " * 250_000,
        "<&amp;\n" * 150_000,
    ],
    ids=["words", "one word", "accents", "wrongly decoded", "lines"],
)
def test_of_a_megabyte_only_the_beginning_is_read(megabyte: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = SimpleTokenizer(context_length=CONTEXT)
    cleaned, merged = [], []
    clean, merge = tokenizer.clean_fn, tokenizer.bpe
    monkeypatch.setattr(tokenizer, "clean_fn", lambda text: cleaned.append(len(text)) or clean(text))
    monkeypatch.setattr(tokenizer, "bpe", lambda word: merged.append(len(word)) or merge(word))
    (tokens,) = Tokenizer(tokenizer, "truncate")(megabyte)
    assert len(tokens) == CONTEXT
    assert sum(cleaned) < 70_000
    assert sum(merged) < 5_000


def test_windows_hold_every_token_once_in_order() -> None:
    text = " ".join(WORDS[number % 7] for number in range(400))
    ids = PLAIN.encode(text)
    windows = WINDOW(text)
    assert len(windows) == -(-len(ids) // (CONTEXT - 2))
    assert all(window[0] == PLAIN.sot_token_id and window[-1] == PLAIN.eot_token_id for window in windows)
    assert [token for window in windows for token in window[1:-1]] == ids
    assert {len(window) for window in windows[:-1]} == {CONTEXT}
    assert np.array_equal(windows[0], TRUNCATE(text)[0])


def test_a_short_text_is_one_window_and_a_text_of_nothing_only_its_markers() -> None:
    assert [list(window) for window in WINDOW("hello")] == [list(PLAIN(["hello"])[0][:3])]
    # what is left of an entity for a space
    assert [list(window) for window in WINDOW("&nbsp;")] == [[PLAIN.sot_token_id, PLAIN.eot_token_id]]


def test_the_tokenizer_does_not_remember_every_word_it_met() -> None:
    tokenizer = SimpleTokenizer(context_length=CONTEXT)
    Tokenizer(tokenizer, "window")(" ".join(f"word{number}" for number in range(500)))
    assert len(tokenizer.cache) < 100
    assert_as_plain("<start_of_text> and <end_of_text>")


class Padding:
    """A tokenizer of another kind, which pads in a way of its own."""

    context_length = 5

    def __call__(self, texts: list[str]) -> object:
        import torch

        return torch.tensor([[7, len(texts[0]), 1, 1, 1]])


def test_another_tokenizer_is_left_to_itself_and_has_no_windows() -> None:
    tokenizer = Tokenizer(Padding(), "truncate")
    assert tokenizer.is_padded
    assert [list(tokens) for tokens in tokenizer("abc")] == [[7, 3, 1, 1, 1]]
    with pytest.raises(SettingsError, match="the model has a Padding; choose long_text = 'truncate'"):
        Tokenizer(Padding(), "window")
