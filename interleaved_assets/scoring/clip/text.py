"""Texts to the token sequences that a CLIP model takes: the beginning of a text, or all of it in windows."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
from open_clip.tokenizer import SimpleTokenizer

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.samples import Tokens

LongText = Literal["truncate", "window"]

# An English text fills CLIP's context of 77 tokens with some 350 characters.
_FIRST_LOOK: Final = 1024
_LONGEST_LINE: Final = 64 * 2**10
# The time for a word grows with the square of its length: 0.07 s for these, hours for a megabyte.
_LONGEST_WORD: Final = 1024
_REMEMBERED_WORDS: Final = 2**17


class Tokenizer:
    """The tokenizer that open_clip has for a model, giving what a call of it gives. For one thread at a time.

    Two things are not exact, for texts that no one wrote: a word of more than 1024 characters is taken in pieces of
    that length, and with ``truncate`` wrongly decoded characters (which the tokenizer repairs line by line) are looked
    for in the first 65536 characters of a line only.
    """

    def __init__(self, tokenizer: Any, long_text: LongText) -> None:
        """
        Args:
            tokenizer: what ``open_clip.get_tokenizer`` gave, which knows the model's context length.
            long_text: what to do with a text that has more tokens.

        Raises:
            SettingsError: ``window`` with a tokenizer other than CLIP's own, which cannot say where a window ends.
        """
        self._tokenizer, self._long_text = tokenizer, long_text
        self.is_padded = not isinstance(tokenizer, SimpleTokenizer)
        """Whether the sequences come padded to the context length, with ids that only the tokenizer knows."""
        if self.is_padded:
            if long_text == "window":
                raise SettingsError(
                    f"clip.long_text = 'window' needs CLIP's own tokenizer, and the model has a "
                    f"{type(tokenizer).__name__}; choose long_text = 'truncate'"
                )
            return
        self._markers = frozenset(tokenizer.decoder[marker] for marker in tokenizer.all_special_ids)
        self._word_ids = lru_cache(maxsize=_REMEMBERED_WORDS)(self._encode_word)

    def __call__(self, text: str) -> list[Tokens]:
        """The sequences of a text: one, or with ``window`` one for each piece of the context's length, in order."""
        if self.is_padded:
            return [self._tokenizer([text])[0].numpy().astype(np.int32)]
        room = self._tokenizer.context_length - 2
        if self._long_text == "truncate":
            return [self._marked(self._first_ids(text, room))]
        ids = list(self._ids(text))
        return [self._marked(ids[start : start + room]) for start in range(0, max(len(ids), 1), room)]

    def _first_ids(self, text: str, count: int) -> list[int]:
        """The first ``count`` ids of a text, of which only as much is read as that takes."""
        length = _FIRST_LOOK
        while True:
            part = _beginning(text, length)
            ids = list(islice(self._ids(part), count))
            if len(ids) == count or len(part) == len(text):
                return ids
            length *= 8

    def _ids(self, text: str) -> Iterator[int]:
        for match in self._tokenizer.pat.finditer(self._tokenizer.clean_fn(text)):
            word = match.group()
            for start in range(0, len(word), _LONGEST_WORD):
                yield from self._word_ids(word[start : start + _LONGEST_WORD])

    def _encode_word(self, word: str) -> tuple[int, ...]:
        symbols = "".join(self._tokenizer.byte_encoder[byte] for byte in word.encode())
        ids = tuple(self._tokenizer.encoder[part] for part in self._tokenizer.bpe(symbols).split(" "))
        if symbols not in self._markers:
            # it remembers every word it ever met, which a run over millions of documents has no room for
            self._tokenizer.cache.pop(symbols, None)
        return ids

    def _marked(self, ids: Sequence[int]) -> Tokens:
        return np.array([self._tokenizer.sot_token_id, *ids, self._tokenizer.eot_token_id], np.int32)


def _beginning(text: str, length: int) -> str:
    """At least ``length`` characters of ``text``, up to the end of a line; a very long line is cut between words."""
    if len(text) <= length:
        return text
    furthest = length + _LONGEST_LINE
    end = text.find("\n", length, furthest)
    if end >= 0:
        return text[:end]
    if len(text) <= furthest:
        return text
    space = text.rfind(" ", length, furthest)
    return text[: space if space >= 0 else furthest]
