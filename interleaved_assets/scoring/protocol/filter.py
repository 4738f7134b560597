"""The declaration of a filter: the value that it compares, the settings with its bounds, and its display in reports.

A score names its filters; ``interleaved_assets.selection`` applies them. A filter keeps values from the minimum to the
maximum, both included unless ``open_maximum`` is set.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, FiniteFloat, create_model

from interleaved_assets.model.errors import OptionError, describe
from interleaved_assets.scoring.protocol.values import Values

Scale = Literal["linear", "log", "any"]

CLIP_ERRORS: Final = ("clip_error", "score_error")
"""Error columns of scores that CLIP may have measured."""

_Model = TypeVar("_Model", bound=BaseModel)


class SampleCounts(NamedTuple):
    """Counts of what the filters applied so far left of each sample: arrays with one element per sample."""

    images: NDArray[np.int64]
    texts: NDArray[np.int64]
    words: NDArray[np.int64]
    """Words in all texts of the sample, split on white space."""


class Bounds(NamedTuple):
    """Minimum and maximum of the values that a filter keeps; None means no bound."""

    minimum: float | None
    maximum: float | None


Side = Literal["minimum", "maximum"]


def sign_of_kept(side: Side, *, open_maximum: bool) -> str:
    """Return the sign between a value that a bound keeps and the bound, such as ``≥``."""
    return "≥" if side == "minimum" else "<" if open_maximum else "≤"


def sign_of_dropped(side: Side, *, open_maximum: bool) -> str:
    """Return the sign between a value that a bound drops and the bound, such as ``<``."""
    return {"≥": "<", "<": "≥", "≤": ">"}[sign_of_kept(side, open_maximum=open_maximum)]


@dataclass(frozen=True)
class Bound:
    """The setting of ``[selection]`` with one bound of a built-in filter.

    Attributes:
        setting: its name, such as ``min_sharpness``.
        meaning: its meaning, in a sentence.
        default: its default; None for no bound.
        dtype: its type.
        limits: bounds of the setting itself, as pydantic names them: ``{"ge": 0}``.
    """

    setting: str
    meaning: str
    default: float | None = None
    dtype: Any = FiniteFloat
    limits: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Display:
    """The display in reports of the value that a filter compares.

    Attributes:
        label: for axes and tables, in sentence case.
        short: label for little space, such as the caption under a thumbnail.
        low, high: the range of an axis; values outside are counted together at either end.
        scale: ``linear``; ``log`` for values above 0 that span orders of magnitude; ``any`` for values of unknown
            range, with steps of equal ratio on either side of 0; then ``low`` and ``high`` are not used.
        unit: unit of the value, for the axis; none if the label says it.
        zero_means: text after the number of values that are exactly 0, if the plot leaves these out.
        only_bounded: whether reports leave the value out if its filter has no bound.
    """

    label: str
    short: str
    low: float = 0.0
    high: float = 1.0
    scale: Scale = "linear"
    unit: str = ""
    zero_means: str | None = None
    only_bounded: bool = False

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale) or (self.scale == "log" and self.low <= 0):
            raise OptionError(f"{self.label}: scale is one of {', '.join(get_args(Scale))}, and of log, low is above 0")


@dataclass(frozen=True)
class _Filter:
    """Hold the fields that filters of every kind share; :class:`ImageFilter` describes them."""

    name: str
    open_maximum: bool = field(default=False, kw_only=True)
    version: int = field(default=1, kw_only=True)
    minimum: Bound | None = field(default=None, kw_only=True)
    maximum: Bound | None = field(default=None, kw_only=True)
    display: Display | None = field(default=None, kw_only=True)


def _computed(name: str, function: Callable[..., Values], given: Sequence[Any], size: int) -> Values:
    """Return what a filter's function computes, as float64; OptionError with the filter's name if it fails."""
    try:
        values = np.asarray(function(*given), np.float64)
    except Exception as error:  # a plugin raises exceptions of any type
        raise OptionError(f"filter {name!r}: its function fails: {describe(error)}") from error
    if values.shape != (size,):
        raise OptionError(f"filter {name!r}: its function returns an array of {values.shape} and not of {(size,)}")
    return values


@dataclass(frozen=True)
class ImageFilter(_Filter):
    """A filter that keeps or drops each image by its stored scores.

    Attributes:
        name: its name in ``selection.order``; it drops with the reasons ``<name>_below`` and ``<name>_above``.
        open_maximum: whether a value equal to the maximum is dropped too.
        version: increased when the filter's decisions change, so that earlier selections count as stale.
        minimum, maximum: settings of a built-in filter's bounds. Those of other filters are ``own.<name>.min`` and
            ``own.<name>.max``.
        display: its display in reports; by default the filter's name is the label.
        columns: columns of the score table that it reads; a null or NaN in any of them is a missing score.
        combine: computes one value from several columns, all as float64 arrays; not needed for one column.
        error_columns: columns that say why a score is missing, in order of precedence.
        if_scored: whether the filter is skipped if the table lacks its columns, because an optional stage fills them.
            Otherwise a missing column is an error.
    """

    columns: tuple[str, ...]
    combine: Callable[..., Values] | None = None
    error_columns: tuple[str, ...] = field(default=("score_error",), kw_only=True)
    if_scored: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.columns, str) or (self.combine is None and len(self.columns) != 1):
            raise OptionError(f"filter {self.name!r}: columns has to be a tuple, with combine= if it has several names")

    def value(self, columns: list[Values]) -> Values:
        """Return the value that is compared, from the values of :attr:`columns`; OptionError if ``combine`` fails."""
        if self.combine is None:
            return columns[0]
        return _computed(self.name, self.combine, columns, len(columns[0]))


@dataclass(frozen=True)
class SampleFilter(_Filter):
    """A filter that keeps or drops each sample that has content, by what earlier filters left of it.

    Attributes:
        name, open_maximum, version, minimum, maximum, display: as in :class:`ImageFilter`.
        measure: computes one value per sample.
    """

    measure: Callable[[SampleCounts], Values]

    def value(self, samples: SampleCounts) -> Values:
        """Return the value that is compared, for each sample; OptionError if ``measure`` fails."""
        return _computed(self.name, self.measure, [samples], len(samples.images))


@dataclass(frozen=True)
class TextFilter(_Filter):
    """A filter that keeps or drops each document, or each text, by a stored score of texts or a field of documents.

    A filter on strings drops with the reasons ``<name>_not_in`` and ``<name>_in``.

    Attributes:
        name, open_maximum, version, minimum, maximum, display, error_columns: as in :class:`ImageFilter`.
        column: the column of the document scores that it reads.
        of: what it drops: the ``document`` with all its rows, or the row of the ``text``.
    """

    column: str
    of: Literal["document", "text"]
    error_columns: tuple[str, ...] = field(default=("score_error",), kw_only=True)


Filter = ImageFilter | SampleFilter | TextFilter


def outside(judge: Filter, values: Values, bounds: Bounds) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which values are below the minimum, and which above the maximum; NaN is neither."""
    below = values < (-np.inf if bounds.minimum is None else bounds.minimum)
    if bounds.maximum is None:
        return below, np.zeros(len(values), dtype=bool)
    return below, values >= bounds.maximum if judge.open_maximum else values > bounds.maximum


def settings_of(judge: Filter) -> Iterable[Bound]:
    """Yield the settings with the bounds of a built-in filter: the minimum first."""
    return (bound for bound in (judge.minimum, judge.maximum) if bound is not None)


def with_bounds(section: type[_Model], filters: Iterable[Filter], *, defaults: bool = True) -> type[_Model]:
    """Return ``section`` with a setting for each bound of ``filters``; without ``defaults``, none by default."""
    fields: dict[str, Any] = {}
    for judge in filters:
        for bound in settings_of(judge):
            default = bound.default if defaults else None
            shown = "none" if default is None else f"{default:g}"
            about = Field(default=default, description=f"{bound.meaning} Default {shown}.", **bound.limits)
            fields[bound.setting] = (bound.dtype | None, about)
    # A class made here has no docstrings, and pydantic would look for its source through all modules that are loaded.
    without = {"use_attribute_docstrings": False}
    return create_model(section.__name__, __base__=section, __cls_kwargs__=without, **fields)
