"""The words of a batch: runs of characters that are not white space, with their places, lengths and identities."""

import functools
from collections.abc import Sequence
from copy import copy
from typing import Final

import numpy as np
from numpy.typing import NDArray

from interleaved_assets.scoring.texts.batch import Numbers, TextBatch, count_within
from interleaved_assets.scoring.texts.characters import SPECIAL, UPPER, is_of
from interleaved_assets.scoring.texts.hashes import Hashes, SpanHashes

_LAST_BITS: Final = 2**16 - 1
_CASED: Final = 0x20000
"""The code points from here on have no case."""


def word_counts(batch: TextBatch) -> Numbers:
    """Return the number of words of each text."""
    return batch.count(_begins(~batch.white))


class Words:
    """The words of a batch, in order.

    Attributes:
        starts, ends: the places of each word in the batch's code points.
        text, document: the number of the text and of the document that it is in.
        hashes: its identity.
    """

    def __init__(self, batch: TextBatch, starts: Numbers, ends: Numbers, hashes: Hashes) -> None:
        self.starts, self.ends = starts, ends
        self.per_text: Numbers = np.searchsorted(starts, batch.ends) - np.searchsorted(starts, batch.starts)
        self.per_document = batch.total(self.per_text)
        self.text: Numbers = np.repeat(np.arange(batch.texts), self.per_text)
        self.document: Numbers = np.repeat(np.arange(batch.documents), self.per_document)
        self.hashes = hashes

    def with_hashes(self, hashes: Hashes) -> "Words":
        """Return the same words with other identities."""
        found = copy(self)
        found.hashes = hashes
        return found

    def count_of_documents(self, marked: NDArray[np.bool_]) -> Numbers:
        """Return how many words of each document are ``marked``."""
        return np.bincount(self.document[marked], minlength=len(self.per_document))

    @property
    def lengths(self) -> Numbers:
        """Characters of each word."""
        return self.ends - self.starts

    def having(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which words have a code point that is ``marked``."""
        found = marked[self.starts]  # the first one, in most words
        others = np.flatnonzero(~found)
        found[others] = count_within(marked, self.starts[others], self.ends[others]) > 0
        return found

    def listed(self, words: frozenset[str]) -> tuple[Numbers, Numbers]:
        """Return the places of the words that are in the list, and for each which of its hashes it has."""
        return find_hashes(self.hashes, hashes_of(words))


def find_hashes(hashes: Hashes, wanted: Hashes) -> tuple[Numbers, Numbers]:
    """Return the places of the hashes that are among the sorted ``wanted``, and for each which one it is."""
    if not len(wanted):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    # most hashes differ from all that are wanted in their last bits
    could_be = np.zeros(_LAST_BITS + 1, dtype=bool)
    could_be[(wanted & np.uint64(_LAST_BITS)).astype(np.int64)] = True
    places = np.flatnonzero(could_be[(hashes & np.uint64(_LAST_BITS)).astype(np.int64)])
    which = np.minimum(np.searchsorted(wanted, hashes[places]), len(wanted) - 1)
    found = wanted[which] == hashes[places]
    return places[found], which[found]


def count_parts(texts: Sequence[str], words: frozenset[str]) -> Numbers:
    """Return how many of the ``words`` occur in each of the texts, also within other words."""
    codes = np.frombuffer("\n".join(texts).encode("utf-32-le"), dtype=np.uint32)
    ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.int64)
    hashes, found = SpanHashes(codes), np.zeros(len(texts), dtype=np.int64)
    by_length: dict[int, set[str]] = {}
    for word in words:
        by_length.setdefault(len(word), set()).add(word)
    for length, alike in by_length.items():
        starts = np.arange(max(len(codes) - length + 1, 0))
        places, which = find_hashes(hashes.of(starts, starts + length), hashes_of(frozenset(alike)))
        text = np.searchsorted(ends, places, side="right")
        found += np.bincount(np.unique(np.stack([text, which]), axis=1)[0], minlength=len(texts))
    return found


@functools.lru_cache(maxsize=8)
def hashes_of(words: frozenset[str]) -> Hashes:
    """Return the identities of words, sorted."""
    text = " ".join(sorted(words))
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    ends = np.cumsum([len(word) + 1 for word in sorted(words)]) - 1
    starts = np.append(0, ends + 1)[: len(ends)]
    return np.sort(SpanHashes(codes).of(starts, ends)) if words else np.zeros(0, dtype=np.uint64)


def words_of(batch: TextBatch) -> Words:
    """Return the words of a batch, split on white space as ``str.split`` does."""
    return batch.shared("words", lambda: _words(batch))


def lower_words_of(batch: TextBatch) -> Words:
    """Return the words in lower case."""
    return batch.shared("lower words", lambda: _lower_words(batch))


def plain_words_of(batch: TextBatch) -> Words:
    """Return the words in lower case without special characters at their ends, as OBELICS takes words."""
    return batch.shared("plain words", lambda: _plain_words(batch))


def span_hashes(batch: TextBatch) -> SpanHashes:
    """Return the hashes of spans of the batch's code points."""
    return batch.shared("hashes", lambda: SpanHashes(batch.codes))


def _words(batch: TextBatch) -> Words:
    starts, ends = spans_of(~batch.white)
    return Words(batch, starts, ends, span_hashes(batch).of(starts, ends))


def _lower_words(batch: TextBatch) -> Words:
    words = words_of(batch)
    return words.with_hashes(_lowered(batch, words.starts, words.ends, words.hashes))


def _plain_words(batch: TextBatch) -> Words:
    words = words_of(batch)
    starts, ends = plain_spans(is_of(batch.classes, SPECIAL), words.starts, words.ends)
    return Words(batch, starts, ends, _lowered(batch, starts, ends, span_hashes(batch).of(starts, ends)))


def _lowered(batch: TextBatch, starts: Numbers, ends: Numbers, hashes: Hashes) -> Hashes:
    """Return the hashes of the spans in lower case, from their hashes."""
    cased = batch.shared("cased", lambda: np.flatnonzero(is_of(batch.classes, UPPER)))
    # few words have upper case, and the others keep their hashes
    of_word = np.searchsorted(starts, cased, side="right") - 1
    of_word = of_word[(of_word >= 0) & (cased < ends[of_word])]
    changed = of_word[np.diff(of_word, prepend=-1) > 0]
    lower = np.take(_lower_table(), batch.codes[cased])
    hashes = hashes.copy()
    hashes[changed] += span_hashes(batch).changes(starts[changed], ends[changed], batch.codes, cased, lower)
    return hashes


def plain_spans(special: NDArray[np.bool_], starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Return the spans without the special code points at their ends; a span that has no others is left out."""
    starts, ends = starts.copy(), ends.copy()
    odd = np.flatnonzero(special[starts] | special[ends - 1])
    plain = np.flatnonzero(~special)
    first, last = np.searchsorted(plain, starts[odd]), np.searchsorted(plain, ends[odd])
    present = last > first
    starts[odd[present]], ends[odd[present]] = plain[first[present]], plain[last[present] - 1] + 1
    kept = np.ones(len(starts), dtype=bool)
    kept[odd[~present]] = False
    return starts[kept], ends[kept]


def _begins(marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where runs of marked code points begin."""
    starts = marked.copy()
    starts[1:] &= ~marked[:-1]
    return starts


def spans_of(marked: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Return where runs of marked code points begin and end."""
    edges = np.flatnonzero(marked[1:] != marked[:-1]) + 1
    if len(marked) and marked[0]:
        edges = np.concatenate([[0], edges])
    if len(marked) and marked[-1]:
        edges = np.concatenate([edges, [len(marked)]])
    return edges[::2], edges[1::2]


@functools.cache
def _lower_table() -> NDArray[np.uint32]:
    lowered = (chr(code).lower() for code in range(_CASED))
    codes = (ord(low) if len(low) == 1 else code for code, low in enumerate(lowered))
    return np.fromiter(codes, dtype=np.uint32, count=_CASED)
