"""The declaration of a score, and the registration of built-in scores and those of plugins."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, Column
from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.images.containers import Buffer
from interleaved_assets.scoring.images.decode import BgrImage
from interleaved_assets.scoring.protocol.filter import Filter
from interleaved_assets.scoring.texts.batch import TextBatch

Measured = float | int | str | bool | bytes | tuple[float | int | str | bool | bytes | None, ...]
MeasureFunction = Callable[[BgrImage], Measured] | Callable[[Buffer], Measured]
"""Measures one decoded image, or its bytes: returns one value, or a tuple with one per column; raises ImageError on
failure."""
MeasureTexts = Callable[[TextBatch], Sequence[np.ndarray | pa.Array]]
"""Measures the documents and texts of a batch: returns one array of rows for each column."""
Section = Literal["scoring", "documents", "clip", "selection"]

KEY_COLUMNS: Final = INTERLEAVED_COLUMNS[:2]
"""First columns of every score table: the image's sample and position."""
ERROR_COLUMN: Final = "score_error"
"""Last column of a table of image scores, a string."""


class Range(NamedTuple):
    """The finite values that a score column may have, both ends included; for vectors, of their Euclidean lengths.

    A value outside shows a defect of the scorer or its model.
    """

    low: float = -math.inf
    high: float = math.inf

    def holds(self, low: float, high: float) -> bool:
        """Return whether the range includes all values from ``low`` to ``high``."""
        return self.low <= low and high <= self.high

    def __str__(self) -> str:
        return f"{_end(self.low, 'any')} to {_end(self.high, 'any')}"


ABOVE_ZERO: Final = math.ulp(0.0)
"""The smallest float above 0: the lower bound of a range that excludes 0."""


@dataclass(frozen=True)
class Scorer:
    """A score: everything that is known of one measured quantity.

    Attributes:
        name: its name in ``scoring.scorers``.
        columns: the columns it fills, with their types, or the names that Arrow has for these, such as ``double``.
        prepare: returns the measuring function for the settings. Called once per table, before any image is read; it
            loads models, and raises if a library is missing. The function it returns is called by many threads. Import
            a library that takes long inside it: every command imports the scorers for the settings. None for scores
            that are measured elsewhere: the size of an image, and those of CLIP and of samples. For the section
            ``documents`` the function measures a whole batch of texts (:data:`MeasureTexts`), else one image
            (:data:`MeasureFunction`).
        version: increased when the same image gets another score, so that stored scores count as stale.
        packages: names of the distributions that it measures with, such as ``zxing-cpp``. A new feature release of one
            makes stored scores stale; so it does of OpenCV and Pillow, which decode the images of all scorers.
        ranges: ranges of numeric columns; a shard with values outside fails its check. A column without a range may
            have any finite value.
        meanings: the content of the columns, each in a sentence, for the UI; of a built-in score of texts it ends with
            its source in brackets.
        filters: the filters on its columns; a column without one is a filter of its name once it has a bound.
        section: the section of the settings that decides whether it is measured: ``scoring`` for images,
            ``documents`` for texts.
        about: a note on it in the description of that section's ``scorers``.
        options: settings of a built-in score in that section: by name the type and pydantic's ``Field``.
        fields: the fields of the documents that the function reads with :meth:`.TextBatch.field`, by their paths or by
            the setting that names one.
        needs: returns which of ``fields`` the documents have to have under the settings: a shard in which no document
            has one fails before it is measured.
        files: the files that a scorer of texts reads, by their paths or by the setting that names one. Scores are stale
            once the content of one changes.
        of_documents: the columns that have no value for a text, such as a number of texts; the settings refuse a bound
            on texts for them.
        of_whole: whether it measures the whole of a long document, not only its first 4 MiB; its work and memory are
            then in proportion.
        of_bytes: whether the function measures the encoded bytes of an image, also of one that cannot be decoded.
        turned_on_by: the settings that a column needs, by column; by default ``scorers`` of the section.
        after: name of the score that it follows in tables, in the default order of filters and in reports, behind those
            that were registered before with the same name there; by default it follows all that were registered before.
    """

    name: str
    columns: Mapping[str, pa.DataType | str]
    prepare: Callable[[Any], Any] | None = None
    version: int = field(default=1, kw_only=True)
    packages: tuple[str, ...] = field(default=(), kw_only=True)
    ranges: Mapping[str, Range] = field(default_factory=dict, kw_only=True)
    meanings: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    filters: tuple[Filter, ...] = field(default=(), kw_only=True)
    section: Section = field(default="scoring", kw_only=True)
    about: str = field(default="", kw_only=True)
    options: Mapping[str, tuple[Any, Any]] = field(default_factory=dict, kw_only=True)
    fields: tuple[str, ...] = field(default=(), kw_only=True)
    needs: Callable[[Any], Sequence[str]] = field(default=lambda _: (), kw_only=True)
    files: tuple[str, ...] = field(default=(), kw_only=True)
    of_documents: tuple[str, ...] = field(default=(), kw_only=True)
    of_whole: bool = field(default=False, kw_only=True)
    of_bytes: bool = field(default=False, kw_only=True)
    turned_on_by: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    after: str = field(default="", kw_only=True)

    def described_columns(self) -> tuple[Column, ...]:
        """Return the columns with their meanings, without pyarrow."""
        return tuple(
            Column(name, str(dtype), meaning=self.meanings.get(name, "")) for name, dtype in self.columns.items()
        )


_SCORERS: Final[dict[str, Scorer]] = {}


def register_scorer(scorer: Scorer) -> None:
    """Register a scorer; tables have the columns of the built-in scorers, then of others in the order of registration.

    Raises:
        OptionError: its name, one of its columns or of its filters is taken, it gives a range for a column that it
            does not fill, or a part of it has another type than :class:`Scorer` says.
    """
    _check_types(scorer)
    for what, named in (("gives a range for", scorer.ranges), ("has for documents only", scorer.of_documents)):
        if odd := sorted(set(named) - set(scorer.columns)):
            raise OptionError(
                f"scorer {scorer.name!r} {what} {', '.join(odd)}, but fills only {', '.join(scorer.columns)}"
            )
    taken = taken_columns()
    if scorer.name in _SCORERS or taken & set(scorer.columns):
        raise OptionError(
            f"scorer {scorer.name!r} with columns {', '.join(scorer.columns)}: name or a column is taken; "
            f"scorers are {', '.join(_SCORERS)}, their columns {', '.join(sorted(taken))}"
        )
    known = {judge.name for other in _SCORERS.values() for judge in other.filters}
    if twice := [judge.name for judge in scorer.filters if judge.name in known]:
        raise OptionError(f"scorer {scorer.name!r}: the filter {twice[0]!r} is taken; filters are {', '.join(known)}")
    _SCORERS[scorer.name] = scorer
    all_scorers.cache_clear()


def _check_types(scorer: Scorer) -> None:
    for name in ("packages", "fields", "files", "of_documents"):
        if isinstance(given := getattr(scorer, name), str):
            raise OptionError(f"scorer {scorer.name!r}: {name} is a string and not a tuple: give ({given!r},)")
    for column, values in scorer.ranges.items():
        if not isinstance(values, Range):
            raise OptionError(f"scorer {scorer.name!r}: the range of {column} is no Range, such as Range(0, 1)")
    if scorer.prepare is not None:
        try:
            is_typed = all(isinstance(arrow_type(dtype), pa.DataType) for dtype in scorer.columns.values())
        except (AttributeError, ValueError):
            is_typed = False
        if not is_typed:
            raise OptionError(
                f"scorer {scorer.name!r}: columns {scorer.columns!r} are no Arrow types by name, such as "
                "{'brightness': pa.float64()}"
            )


def arrow_type(dtype: pa.DataType | str) -> pa.DataType:
    """Return the type of a column; ValueError for a string that is no name of a type."""
    return pa.type_for_alias(dtype) if isinstance(dtype, str) else dtype


def unregister_scorer(name: str) -> None:
    """Remove a scorer from the registry."""
    del _SCORERS[name]
    all_scorers.cache_clear()


@cache
def all_scorers() -> tuple[Scorer, ...]:
    """Return all scorers: each that names no other, in the order of registration, with those that follow it."""
    following: dict[str, list[Scorer]] = {}
    for scorer in _SCORERS.values():
        following.setdefault(scorer.after if scorer.after in _SCORERS else "", []).append(scorer)

    def listed(name: str) -> Iterator[Scorer]:
        for scorer in following.get(name, ()):
            yield scorer
            yield from listed(scorer.name)

    return tuple(listed(""))


def taken_columns() -> set[str]:
    """Return the names of the columns of all scorers, of the row model, and of errors."""
    filled = {column for scorer in _SCORERS.values() for column in scorer.columns}
    return filled | {column.name for column in INTERLEAVED_COLUMNS} | {ERROR_COLUMN}


def _end(value: float, unbounded: str) -> str:
    return unbounded if math.isinf(value) else "above 0" if value == ABOVE_ZERO else f"{value:g}"
