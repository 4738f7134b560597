"""Conversion of texts to the token sequences of a CLIP model: the beginning of a text, or all of it in windows."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal

import numpy as np
from open_clip.tokenizer import SimpleTokenizer

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.scoring.clip.samples import Tokens

# Characters of a text that are cleaned at once: about 350 characters of English fill CLIP's context of 77 tokens.
_ENOUGH: Final = 1024
_LONGEST_LINE: Final = 64 * 2**10
# The time for a word grows with the square of its length: 0.07 s for this length, hours for a megabyte.
_LONGEST_WORD: Final = 1024
_REMEMBERED_WORDS: Final = 2**17


class Tokenizer:
    """The tokenizer that open_clip has for a model, with the same results. Only one thread may use it at a time.

    Two things are not exact, for texts that no one wrote. A word of more than 1024 characters is taken in pieces of
    that length. So is a line of more than 65536, which the tokenizer would search for wrongly decoded characters as a
    whole.
    """

    def __init__(self, tokenizer: Any, long_text: Literal["truncate", "window"]) -> None:
        """Raise SettingsError for ``window`` with another tokenizer than CLIP's: it cannot say where a window ends."""
        self._tokenizer, self._long_text = tokenizer, long_text
        self.is_padded = not isinstance(tokenizer, SimpleTokenizer)
        """True if the sequences are padded to the context length with ids that only the tokenizer knows."""
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
        """Return the sequences of a text: one, or with ``window`` one for each piece of the context's length."""
        if self.is_padded:
            return [self._tokenizer([text])[0].numpy().astype(np.int32)]
        first, last = self._tokenizer.sot_token_id, self._tokenizer.eot_token_id
        room = self._tokenizer.context_length - 2
        ids = list(islice(self._ids(text), room if self._long_text == "truncate" else None))
        starts = range(0, max(len(ids), 1), room)
        return [np.array([first, *ids[start : start + room], last], np.int32) for start in starts]

    def _ids(self, text: str) -> Iterator[int]:
        for part in _parts(text):
            for match in self._tokenizer.pat.finditer(self._tokenizer.clean_fn(part)):
                word = match.group()
                for start in range(0, len(word), _LONGEST_WORD):
                    yield from self._word_ids(word[start : start + _LONGEST_WORD])

    def _encode_word(self, word: str) -> tuple[int, ...]:
        symbols = "".join(self._tokenizer.byte_encoder[byte] for byte in word.encode())
        ids = tuple(self._tokenizer.encoder[part] for part in self._tokenizer.bpe(symbols).split(" "))
        if symbols not in self._markers:
            # the tokenizer remembers every word that it met, which would fill the memory in a run over millions of
            # documents
            self._tokenizer.cache.pop(symbols, None)
        return ids


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text, each of at least 1024 characters, to the end of a line or of a word in a long line."""
    start = 0
    while start < len(text):
        enough, furthest = start + _ENOUGH, start + _ENOUGH + _LONGEST_LINE
        end = text.find("\n", enough, furthest)
        if end < 0:
            end = len(text) if len(text) <= furthest else text.rfind(" ", enough, furthest)
        yield text[start : end if end >= 0 else furthest]
        start = end if end >= 0 else furthest
