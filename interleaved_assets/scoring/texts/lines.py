"""The lines and paragraphs of a batch."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from interleaved_assets.scoring.texts.batch import SEPARATOR, Numbers, TextBatch
from interleaved_assets.scoring.texts.characters import LINE_END, is_of
from interleaved_assets.scoring.texts.repeats import earlier_equals
from interleaved_assets.scoring.texts.words import span_hashes, spans_of, words_of

_CARRIAGE_RETURN = ord("\r")
_BULLETS = (ord("•"), ord("-"))
_DOT, _ELLIPSIS = ord("."), ord("…")
_BREAKS = 3
"""Line feeds of a run of blank lines."""


class Repeated(NamedTuple):
    """Of each document: its elements, those that came before in it, and the characters of these."""

    elements: Numbers
    repeated: Numbers
    characters: Numbers


class LineMarks(NamedTuple):
    """Lines as ``str.splitlines`` takes them: numbers in each row."""

    lines: Numbers
    bullets: Numbers
    """Lines that begin with a bullet or a hyphen, after white space."""
    ellipses: Numbers
    """Lines that end with an ellipsis, before white space."""


def line_marks(batch: TextBatch) -> LineMarks:
    """Return the numbers of lines, and of those with a bullet or an ellipsis."""
    starts, ends = stripped_lines(batch)
    bullets = starts[np.isin(batch.codes[starts], _BULLETS)]
    ellipses = ends[end_with_ellipsis(batch, starts, ends)] - 1
    marked = (batch.with_totals(count_places(batch, places)) for places in (bullets, ellipses))
    return LineMarks(_lines(batch, _line_ends(batch)), *marked)


def stripped_lines(batch: TextBatch) -> tuple[Numbers, Numbers]:
    """Return where the lines of ``str.splitlines`` that are not blank begin and end, without white space at them."""
    return batch.shared("stripped lines", lambda: _stripped_lines(batch))


def _stripped_lines(batch: TextBatch) -> tuple[Numbers, Numbers]:
    words = words_of(batch)
    first = np.searchsorted(words.starts, np.append(0, np.flatnonzero(_line_ends(batch)) + 1))
    last = np.append(first[1:], len(words.starts))
    present = last > first
    return words.starts[first[present]], words.ends[last[present] - 1]


def _line_ends(batch: TextBatch) -> NDArray[np.bool_]:
    """Return which code points end a line of ``str.splitlines``: of a carriage return and a line feed, the second."""
    return batch.shared("line ends", lambda: _ending(batch))


def _ending(batch: TextBatch) -> NDArray[np.bool_]:
    ends_line = is_of(batch.classes, LINE_END)
    pair = batch.codes[:-1] == _CARRIAGE_RETURN
    pair &= batch.codes[1:] == ord("\n")
    ends_line[:-1] &= ~pair
    return ends_line


def end_with_ellipsis(batch: TextBatch, starts: Numbers, ends: Numbers) -> NDArray[np.bool_]:
    """Return which of these lines, without white space around them, end with an ellipsis."""
    codes, last = batch.codes, ends - 1
    dots = (codes[last] == _DOT) & (last - starts >= 2)
    dots &= (codes[np.maximum(last - 1, 0)] == _DOT) & (codes[np.maximum(last - 2, 0)] == _DOT)
    return dots | (codes[last] == _ELLIPSIS)


def ellipses(batch: TextBatch) -> Numbers:
    """Return the number of ellipses (… or three dots) in each text."""
    return batch.shared("ellipses", lambda: batch.count(batch.codes == _ELLIPSIS) + count_runs(batch, _DOT, 3))


def blank_runs(batch: TextBatch) -> Numbers:
    """Return how often three or more line feeds follow each other in each text."""
    within = batch.newlines.copy()
    for offset in range(len(SEPARATOR)):
        within[batch.ends[:-1] + offset] = False  # between two texts
    starts, ends = spans_of(within)
    return count_places(batch, starts[ends - starts >= _BREAKS])


def repeated_lines(batch: TextBatch) -> Repeated:
    """Return the repeated lines of each document, split at runs of line feeds."""
    starts, ends = _newline_spans(batch)
    found = repeated_spans(batch, starts, ends)
    # a text that begins or ends with line feeds has an empty line there; of two, the second is repeated
    filled = batch.document_ends > batch.document_starts
    newlines = np.append(batch.newlines, False)
    at_start = filled & newlines[batch.document_starts]
    at_end = filled & newlines[np.maximum(batch.document_ends - 1, 0)]
    elements = found.elements + at_start + at_end
    return Repeated(elements, found.repeated + (at_start & at_end), found.characters)


def filled_lines(batch: TextBatch) -> tuple[Numbers, Numbers, Numbers]:
    """Return where the lines that are not blank begin and end, split at line feeds, and the documents they are in."""
    starts, ends = _newline_spans(batch)
    words = words_of(batch).starts
    filled = np.searchsorted(words, ends) > np.searchsorted(words, starts)
    starts, ends = starts[filled], ends[filled]
    return starts, ends, document_of(batch, starts)


def repeated_paragraphs(batch: TextBatch) -> Repeated:
    """Return the repeated paragraphs of each document without white space at its ends, split at empty lines."""
    words = words_of(batch)
    last = np.cumsum(words.per_document)
    first = last - words.per_document
    filled = last > first
    begin, end = words.starts[first[filled]], words.ends[last[filled] - 1]
    run_starts, run_ends = spans_of(batch.newlines)
    wide = run_ends - run_starts >= 2
    run_starts, run_ends = run_starts[wide], run_ends[wide]
    if len(begin):
        of = np.searchsorted(begin, run_starts, side="right") - 1
        inside = (of >= 0) & (run_ends < end[of])
        run_starts, run_ends = run_starts[inside], run_ends[inside]
    else:
        run_starts, run_ends = begin, end
    starts, ends = np.sort(np.concatenate([begin, run_ends])), np.sort(np.concatenate([run_starts, end]))
    return repeated_spans(batch, starts, ends)


def _newline_spans(batch: TextBatch) -> tuple[Numbers, Numbers]:
    """Return where the lines that are not empty begin and end, split at line feeds."""
    return batch.shared("lines", lambda: spans_of(~batch.newlines))


def count_runs(batch: TextBatch, code: int, length: int) -> Numbers:
    """Return how often ``length`` characters ``code`` follow each other in each text, none of them counted twice."""
    starts, ends = spans_of(batch.codes == code)
    text = np.searchsorted(batch.starts, starts, side="right") - 1
    return np.bincount(text, weights=(ends - starts) // length, minlength=batch.texts).astype(np.int64)


def count_places(batch: TextBatch, places: Numbers) -> Numbers:
    """Return how many of the places, in ascending order, are in each text."""
    return np.searchsorted(places, batch.ends) - np.searchsorted(places, batch.starts)


def find_phrase(codes: NDArray[np.uint32], phrase: str) -> Numbers:
    """Return the places at which ``phrase``, of ASCII letters and blanks, begins in ``codes``, in any case."""
    lower, upper = (np.frombuffer(one.encode("utf-32-le"), np.uint32) for one in (phrase.lower(), phrase.upper()))
    begins = codes[: max(len(codes) - len(phrase) + 1, 0)]
    places = np.flatnonzero((begins == lower[0]) | (begins == upper[0]))
    for offset in range(1, len(phrase)):
        found = codes[places + offset]
        places = places[(found == lower[offset]) | (found == upper[offset])]
    return places


def _lines(batch: TextBatch, ends_line: NDArray[np.bool_]) -> Numbers:
    """Return the number of lines of each row: line ends, and a last line without one."""
    starts = batch.rows_from(batch.document_starts, batch.starts)
    ends = batch.rows_from(batch.document_ends, batch.ends)
    found = batch.count_rows(ends_line)
    last = np.append(is_of(batch.classes, LINE_END), True)[np.maximum(ends - 1, 0)]
    return found + ((ends > starts) & ~last)


def repeated_spans(batch: TextBatch, starts: Numbers, ends: Numbers) -> Repeated:
    """Return which of these spans come again in their document; all are inside of documents."""
    owner = document_of(batch, starts)
    count = batch.documents
    elements = np.bincount(owner, minlength=count)
    earlier, _ = earlier_equals(span_hashes(batch).of(starts, ends), elements)
    lengths = ends - starts
    return Repeated(
        elements,
        np.bincount(owner[earlier], minlength=count),
        np.bincount(owner[earlier], weights=lengths[earlier], minlength=count).astype(np.int64),
    )


def document_of(batch: TextBatch, places: Numbers) -> Numbers:
    """Return the document that each place is in."""
    numbers = np.flatnonzero(batch.texts_of_document > 0)
    if not len(numbers):
        return places
    return numbers[np.searchsorted(batch.document_starts[numbers], places, side="right") - 1]
