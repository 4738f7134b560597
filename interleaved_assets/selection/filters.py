"""The registry of filters. A plugin can register more: see docs/extending.md.

A filter defines the value that is compared with bounds from the settings (``selection.settings``). ``select`` keeps
values from the minimum to the maximum, both included unless ``open_maximum`` is set.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from interleaved_assets.model.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from interleaved_assets.selection.values import Values


class SampleCounts(NamedTuple):
    """What the filters applied so far left of each sample: arrays with one element per sample."""

    images: "NDArray[np.int64]"
    texts: "NDArray[np.int64]"
    words: "NDArray[np.int64]"
    """Words in all texts of the sample, split on white space."""


@dataclass(frozen=True)
class ImageFilter:
    """Keeps or drops each image by its stored scores.

    Attributes:
        name: what ``selection.order`` calls it; it drops with the reasons ``<name>_below`` and ``<name>_above``.
        columns: columns of the score table that it reads; a null or NaN in any of them is a missing score.
        combine: computes one value from several columns, all as float64 arrays; not needed for one column.
        open_maximum: whether a value equal to the maximum is dropped too.
        error_columns: columns that say why a score is missing, in order of precedence.
        if_scored: whether the filter is skipped if the table lacks its columns, because an optional stage fills them.
            Otherwise a missing column is an error.
        version: increased when the filter's decisions change, so that earlier selections count as stale.
    """

    name: str
    columns: tuple[str, ...]
    combine: "Callable[..., Values] | None" = None
    open_maximum: bool = False
    error_columns: tuple[str, ...] = ("score_error",)
    if_scored: bool = False
    version: int = 1


@dataclass(frozen=True)
class SampleFilter:
    """Keeps or drops each sample that has content, by what earlier filters left of it.

    Attributes:
        name: what ``selection.order`` calls it; it drops with the reasons ``<name>_below`` and ``<name>_above``.
        measure: computes one value per sample.
        open_maximum: whether a value equal to the maximum is dropped too.
        version: as in :class:`ImageFilter`.
    """

    name: str
    measure: "Callable[[SampleCounts], Values]"
    open_maximum: bool = False
    version: int = 1


Filter = ImageFilter | SampleFilter

_CLIP_ERRORS: Final = ("clip_error", "score_error")
_FILTERS: Final[dict[str, Filter]] = {}


def register_filter(added: Filter) -> None:
    """Register a filter under its name.

    Raises:
        OptionError: the name is taken.
    """
    if added.name in _FILTERS:
        raise OptionError(f"filter {added.name!r}: the name is taken; filters are {', '.join(_FILTERS)}")
    _FILTERS[added.name] = added


def unregister_filter(name: str) -> None:
    """Remove a filter from the registry."""
    del _FILTERS[name]


def known_filters() -> tuple[str, ...]:
    """Names of all filters, in the order of registration."""
    return tuple(_FILTERS)


def find_filter(name: str) -> Filter:
    """The filter with that name; for an unregistered name, one that judges images by the score column of that name."""
    return _FILTERS.get(name) or ImageFilter(name, (name,), error_columns=_CLIP_ERRORS)


# What computes is imported where a filter is applied: the settings name the filters in processes that apply none.


def _smaller(first: "Values", second: "Values") -> "Values":
    import numpy as np

    return np.minimum(first, second)


def _larger(first: "Values", second: "Values") -> "Values":
    import numpy as np

    return np.maximum(first, second)


def _ratio(samples: SampleCounts) -> "Values":
    from interleaved_assets.scoring.text_ratio import image_text_ratio

    return image_text_ratio(samples.images, samples.words)


# Cheap measures before expensive ones, as NeMo Curator documents it (blur, QR, ratio, CLIP); this is the default order.
register_filter(ImageFilter("short_side", ("width", "height"), combine=_smaller))
register_filter(ImageFilter("long_side", ("width", "height"), combine=_larger))
register_filter(ImageFilter("aspect", ("aspect_ratio",)))
register_filter(ImageFilter("sharpness", ("sharpness",)))
register_filter(ImageFilter("sharpness_grey", ("sharpness_grey",)))
register_filter(ImageFilter("sharpness_256", ("sharpness_256",)))
register_filter(ImageFilter("qr", ("qr_area_ratio",), open_maximum=True))
register_filter(ImageFilter("nsfw", ("nsfw_score",), open_maximum=True))
register_filter(SampleFilter("ratio", _ratio))
register_filter(ImageFilter("clip", ("clip_score",), error_columns=_CLIP_ERRORS, if_scored=True))
register_filter(ImageFilter("aesthetic", ("aesthetic_score",), error_columns=_CLIP_ERRORS))
register_filter(ImageFilter("nsfw_clip", ("nsfw_clip_score",), open_maximum=True, error_columns=_CLIP_ERRORS))

BUILT_IN: Final = known_filters()
"""The filters of this package, in their default order."""
