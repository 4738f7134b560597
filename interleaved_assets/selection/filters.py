"""The filters there are: what each looks at. Those of your own register from a plugin: see docs/extending.md.

A filter says which measured value it judges. Its bounds are settings (see ``selection.settings``), and ``select``
compares the two: kept is what lies from the minimum to the maximum, both included unless ``open_maximum`` says
otherwise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.text_ratio import image_text_ratio

Values = NDArray[np.float64]


class SampleCounts(NamedTuple):
    """What is left of samples when a filter's turn comes: arrays with one element for each sample."""

    images: NDArray[np.int64]
    texts: NDArray[np.int64]
    words: NDArray[np.int64]
    """Over all texts of the sample, split on white space."""


@dataclass(frozen=True)
class ImageFilter:
    """Judges each image by stored scores.

    Attributes:
        name: what ``selection.order`` calls it; it drops with the reasons ``<name>_below`` and ``<name>_above``.
        columns: columns of the score table that it reads; a null or NaN in any of them is a missing score.
        combine: makes one value of several columns, given and returned as float64 arrays; not needed for one column.
        open_maximum: whether a value equal to the maximum is dropped too.
        error_columns: where the score table says why a score is missing, looked at in this order.
        if_scored: whether the filter is passed over where the table lacks its columns, because the stage that fills
            them is optional. Otherwise that is an error.
        version: raised when the filter would now decide otherwise, so that selections made before count as stale.
    """

    name: str
    columns: tuple[str, ...]
    combine: Callable[..., Values] | None = None
    open_maximum: bool = False
    error_columns: tuple[str, ...] = ("score_error",)
    if_scored: bool = False
    version: int = 1


@dataclass(frozen=True)
class SampleFilter:
    """Judges each sample that has content by what is left of it, and drops all of it.

    Attributes:
        name: what ``selection.order`` calls it; it drops with the reasons ``<name>_below`` and ``<name>_above``.
        measure: one value for each sample.
        open_maximum: whether a value equal to the maximum is dropped too.
        version: as that of :class:`ImageFilter`.
    """

    name: str
    measure: Callable[[SampleCounts], Values]
    open_maximum: bool = False
    version: int = 1


Filter = ImageFilter | SampleFilter

_CLIP_ERRORS: Final = ("clip_error", "score_error")
_FILTERS: Final[dict[str, Filter]] = {}


def register_filter(added: Filter) -> None:
    """Make a filter known by its name.

    Raises:
        OptionError: the name is taken.
    """
    if added.name in _FILTERS:
        raise OptionError(f"filter {added.name!r}: the name is taken; filters are {', '.join(_FILTERS)}")
    _FILTERS[added.name] = added


def unregister_filter(name: str) -> None:
    """Forget a filter."""
    del _FILTERS[name]


def known_filters() -> tuple[str, ...]:
    """Names of all filters, in the order of registration."""
    return tuple(_FILTERS)


def find_filter(name: str) -> Filter:
    """The filter of that name; one that nobody registered judges images by the column of its own name."""
    return _FILTERS.get(name) or ImageFilter(name, (name,), error_columns=_CLIP_ERRORS)


def _ratio(samples: SampleCounts) -> Values:
    return image_text_ratio(samples.images, samples.words)


# Cheap measures before expensive ones, as NeMo Curator documents it (blur, QR, ratio, CLIP); this is the default order.
register_filter(ImageFilter("short_side", ("width", "height"), combine=np.minimum))
register_filter(ImageFilter("long_side", ("width", "height"), combine=np.maximum))
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
