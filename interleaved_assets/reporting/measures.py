"""How each score is shown: its label, its range, and the bounds that selection applies."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.selection.filters import ImageFilter, SampleFilter, find_filter, known_filters
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.selection.values import Values

SIZE_COLUMNS: Final = frozenset({"width", "height", "aspect_ratio"})
"""Scores that follow from the size of an image, which is shown instead."""
CLIP_TEXT: Final = "clip_text_position"
"""The column with the position of the text that CLIP found nearest to an image."""

Scale = Literal["linear", "log", "any"]


@dataclass(frozen=True)
class Measure:
    """The value that one filter compares with its bounds, and how it is shown.

    Attributes:
        filter: name of the filter; its reasons in the ledger are ``<filter>_below`` and ``<filter>_above``.
        label: for axes and tables, in sentence case.
        short: label for little space, such as the caption under a thumbnail.
        columns: columns of the scores table that it is computed from; none where the filter is on samples.
        low, high: the range that is divided into bins; values outside are counted together at either end.
        scale: ``linear``; ``log`` for values above 0 that span orders of magnitude; ``any`` for values of
            unknown range, with bins of equal ratio on either side of 0; then ``low`` and ``high`` are not used.
        maximum: largest kept value; with ``open_maximum`` kept values are below it; None for no bound.
        open_maximum: whether a value equal to the maximum is dropped.
        unit: what has a value, ``image`` or ``sample``.
        scale_of: what the value is measured in, for the axis; none where the label says it.
        zero_means: text after the number of values that are exactly 0, where the plot leaves these out.
    """

    filter: str
    label: str
    short: str
    columns: tuple[str, ...] = ()
    combine: Callable[..., Values] | None = None
    low: float = 0.0
    high: float = 1.0
    scale: Scale = "linear"
    minimum: float | None = None
    maximum: float | None = None
    open_maximum: bool = False
    zero_means: str | None = None
    unit: Literal["image", "sample"] = "image"
    scale_of: str = ""

    @property
    def has_bounds(self) -> bool:
        """Whether its filter can drop anything."""
        return self.minimum is not None or self.maximum is not None

    @property
    def axis(self) -> str:
        """Title of the axis with its values: the label, and what they are measured in."""
        return f"{self.label} ({self.scale_of})" if self.scale_of else self.label

    @property
    def rule(self) -> str:
        """The bounds as text, such as ``keep ≥ 100``; ``no bound`` without any."""
        parts = []
        if self.minimum is not None:
            parts.append(f"≥ {self.minimum:g}")
        if self.maximum is not None:
            parts.append(f"{'<' if self.open_maximum else '≤'} {self.maximum:g}")
        return f"keep {' and '.join(parts)}" if parts else "no bound"

    def values(self, scores: pa.Table) -> Values | None:
        """Its value for each row of ``scores``, NaN where a score is missing; None where ``scores`` lacks a column."""
        if not self.columns or not set(self.columns) <= set(scores.column_names):
            return None
        columns = [scores[name].cast(pa.float64()).to_numpy() for name in self.columns]
        return columns[0] if self.combine is None else np.asarray(self.combine(*columns), np.float64)

    def keeps(self, values: Values) -> NDArray[np.bool_]:
        """Which of ``values`` the bounds keep, one bool each; NaN is never kept."""
        kept = ~np.isnan(values)
        if self.minimum is not None:
            kept &= values >= self.minimum
        if self.maximum is not None:
            kept &= (values < self.maximum) if self.open_maximum else (values <= self.maximum)
        return kept


_side = partial(Measure, low=1, high=1e5, scale="log")
_sharpness = partial(Measure, low=1e-2, high=1e5, scale="log", scale_of="variance of the Laplacian")
_SHOWN: Final = {
    measure.filter: measure
    for measure in (
        _side("short_side", "Short side, pixels", "short side"),
        _side("long_side", "Long side, pixels", "long side"),
        Measure("aspect", "Aspect ratio", "aspect", low=0.02, high=50, scale="log", scale_of="width / height"),
        _sharpness("sharpness", "Sharpness", "sharpness"),
        _sharpness("sharpness_grey", "Sharpness in grey", "grey sharpness"),
        _sharpness("sharpness_256", "Sharpness at 256 pixels", "sharpness 256"),
        Measure("qr", "QR code area", "QR area", zero_means="without a QR code", scale_of="share of the image"),
        Measure("nsfw", "NSFW probability", "NSFW"),
        Measure(
            "ratio",
            "Images for each word",
            "ratio",
            low=1e-5,
            high=1e3,
            scale="log",
            unit="sample",
            zero_means="without an image",
            scale_of="images / words of the sample",
        ),
        Measure("clip", "CLIP similarity", "CLIP", low=-1, scale_of="cosine with the best text"),
        Measure("aesthetic", "Aesthetic score", "aesthetic", low=-10, high=20),
        Measure("nsfw_clip", "NSFW score of the CLIP head", "NSFW (CLIP)", low=-1, high=2),
    )
}
"""How the scores of this package are shown; others are labelled by the name of their filter, with any range."""


def measure_of(name: str, selection: SelectionSettings) -> Measure:
    """How the filter ``name`` is shown, with the bounds it has in ``selection``."""
    judge = find_filter(name)
    minimum, maximum = selection.bounds(name)
    shown = _SHOWN.get(name, Measure(name, name, name, scale="any"))
    if isinstance(judge, ImageFilter):
        shown = replace(shown, columns=judge.columns, combine=judge.combine)
    return replace(shown, minimum=minimum, maximum=maximum, open_maximum=judge.open_maximum)


def measures_of(selection: SelectionSettings) -> list[Measure]:
    """The filters with bounds, in their order, and then the other scores of images."""
    names = list(selection.active_filters())
    # the long side is left out: the short side and the aspect ratio determine it
    names += [
        name
        for name in known_filters()
        if name not in names and name != "long_side" and not isinstance(find_filter(name), SampleFilter)
    ]
    return [measure_of(name, selection) for name in names]
