"""The words of a batch: runs of characters that are not white space, with their places, lengths and identities."""

import functools
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from interleaved_assets.scoring.texts.batch import Numbers, TextBatch, running_sum
from interleaved_assets.scoring.texts.characters import SPECIAL, UPPER, is_of
from interleaved_assets.scoring.texts.hashes import Hashes, SpanHashes, hashes_of_codes

_LAST_BITS: Final = 2**16 - 1
_CASED: Final = 0x20000
"""The code points from here on have no case."""


def word_counts(batch: TextBatch) -> Numbers:
    """Return the number of words of each text."""
    if batch.is_long:  # the places of all words would take 16 bytes a word
        return batch.count(_begins(~batch.white))
    return words_of(batch).per_text


class Words:
    """The words of a batch, in order.

    Attributes:
        starts, ends: the places of each word in the batch's code points.
        per_text, per_document: number of words of each text and of each document.
    """

    def __init__(self, batch: TextBatch, starts: Numbers, ends: Numbers) -> None:
        self.starts, self.ends = starts, ends
        self._batch = weakref.proxy(batch)  # which has these words: a cycle would keep its arrays until it is collected
        self._first = np.append(starts.searchsorted(batch.starts), len(starts))
        self.per_text: Numbers = self._first[1:] - self._first[:-1]
        self.per_document = batch.total(self.per_text)

    @cached_property
    def text(self) -> Numbers:
        """The number of the text that each word is in."""
        return np.repeat(np.arange(self._batch.texts), self.per_text)

    @cached_property
    def document(self) -> Numbers:
        """The number of the document that each word is in."""
        return np.repeat(np.arange(self._batch.documents), self.per_document)

    @cached_property
    def hashes(self) -> Hashes:
        """The identity of each word."""
        return span_hashes(self._batch).of(self.starts, self.ends)

    @cached_property
    def lower_hashes(self) -> Hashes:
        """The identity of each word in lower case."""
        return self._batch.shared("lower hashes", lambda: _lower_hashes(self._batch)).of(self.starts, self.ends)

    @cached_property
    def lengths(self) -> Numbers:
        """Characters of each word."""
        return self.ends - self.starts

    def sums(self, values: NDArray[Any]) -> Numbers:
        """Return the sum of the values of the words of each text."""
        return np.diff(running_sum(values)[self._first])

    def having(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which words have a code point that is ``marked``."""
        before = running_sum(marked)
        return before[self.ends] > before[self.starts]


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


def present_words(batch: TextBatch, hashes: Hashes, listed: frozenset[str]) -> Numbers:
    """Return how many of the ``listed`` words each row has; ``hashes`` are those of the words of the batch."""
    words = words_of(batch)
    places, which = find_hashes(hashes, hashes_of(listed))
    present = np.zeros((batch.documents + batch.texts, len(listed)), dtype=bool)
    present[batch.row_of_text[words.text[places]], which] = True
    present[batch.row_of_document[words.document[places]], which] = True
    return present.sum(axis=1)


def count_parts(texts: Sequence[str], words: frozenset[str]) -> Numbers:
    """Return how many of the ``words`` occur in each of the texts, also within other words."""
    codes = np.frombuffer("\n".join(texts).encode("utf-32-le"), dtype=np.uint32)
    ends = np.cumsum([len(text) + 1 for text in texts], dtype=np.int64)
    hashes, found = SpanHashes(hashes_of_codes(codes)), np.zeros(len(texts), dtype=np.int64)
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
    return np.sort(SpanHashes(hashes_of_codes(codes)).of(starts, ends)) if words else np.zeros(0, dtype=np.uint64)


def words_of(batch: TextBatch) -> Words:
    """Return the words of a batch, split on white space as ``str.split`` does."""
    return batch.shared("words", lambda: _words(batch))


def plain_words_of(batch: TextBatch) -> Words:
    """Return the words in lower case without special characters at their ends, as OBELICS takes words."""
    return batch.shared("plain words", lambda: _plain_words(batch))


def span_hashes(batch: TextBatch) -> SpanHashes:
    """Return the hashes of spans of the batch's code points."""
    return batch.shared("hashes", lambda: SpanHashes(hashes_of_codes(batch.codes)))


def _words(batch: TextBatch) -> Words:
    return Words(batch, *spans_of(~batch.white))


def _plain_words(batch: TextBatch) -> Words:
    words = words_of(batch)
    return Words(batch, *plain_spans(is_of(batch.classes, SPECIAL), words.starts, words.ends))


def _lower_hashes(batch: TextBatch) -> SpanHashes:
    """Return the hashes of spans of the batch's code points in lower case."""
    codes = batch.codes.copy()
    upper = np.flatnonzero(is_of(batch.classes, UPPER))
    codes[upper] = _lower_table()[codes[upper]]
    return SpanHashes(hashes_of_codes(codes))


def plain_spans(special: NDArray[np.bool_], starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Return the spans without the special code points at their ends; a span that has no others is left out."""
    # most have at most one at each end
    starts, ends = starts + special[starts], ends - special[ends - 1]
    empty = starts >= ends
    odd = np.flatnonzero(~empty & (special.take(starts, mode="clip") | special[ends - 1]))
    places, edges = places_of(starts[odd], ends[odd])
    plain = np.flatnonzero(~special[places])
    first, last = plain.searchsorted(edges[:-1]), plain.searchsorted(edges[1:])
    present = last > first
    empty[odd[~present]] = True
    changed = odd[present]
    starts[changed], ends[changed] = places[plain[first[present]]], places[plain[last[present] - 1]] + 1
    kept = np.flatnonzero(~empty)
    return starts[kept], ends[kept]


def places_of(starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """Return the places in some spans, one span after the other, and where each begins among these; the end is last."""
    edges = running_sum(ends - starts)
    return np.repeat(starts - edges[:-1], ends - starts) + np.arange(edges[-1]), edges


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
    return edges[::2].copy(), edges[1::2].copy()  # places that follow each other are read faster


@functools.cache
def _lower_table() -> NDArray[np.uint32]:
    lowered = (chr(code).lower() for code in range(_CASED))
    codes = (ord(low) if len(low) == 1 else code for code, low in enumerate(lowered))
    return np.fromiter(codes, dtype=np.uint32, count=_CASED)
