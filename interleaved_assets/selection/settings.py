"""Settings of selection: the section ``[selection]`` of ``interleaved.toml``."""

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from interleaved_assets.model.errors import ErrorPolicy
from interleaved_assets.selection.filters import BUILT_IN, SampleFilter, find_filter, known_filters

OnFail = Literal["image", "sample"]
LARGEST_SIDE: Final = 2**31 - 1
"""Pixels of a side that a bound may name."""


class Bounds(NamedTuple):
    """The values that a filter keeps lie between these; None means no bound."""

    minimum: float | None
    maximum: float | None


# The settings that hold a filter's bounds, lower and upper.
_BOUNDS: Final[Mapping[str, tuple[str | None, str | None]]] = MappingProxyType(
    {
        "short_side": ("min_short_side", None),
        "long_side": (None, "max_long_side"),
        "aspect": ("min_aspect_ratio", "max_aspect_ratio"),
        "sharpness": ("min_sharpness", None),
        "sharpness_grey": ("min_sharpness_grey", None),
        "sharpness_256": ("min_sharpness_256", None),
        "qr": (None, "max_qr_area_ratio"),
        "nsfw": (None, "max_nsfw"),
        "ratio": ("min_ratio", "max_ratio"),
        "clip": ("min_clip", None),
        "aesthetic": ("min_aesthetic", None),
        "nsfw_clip": (None, "max_nsfw_clip"),
    }
)


class OwnBounds(BaseModel):
    """Bounds of a user's filter, both inclusive unless the filter was registered with an open maximum."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    min: FiniteFloat | None = None
    """Smallest value that is kept. Default none."""
    max: FiniteFloat | None = None
    """Largest value that is kept. Default none."""


class SelectionSettings(BaseModel):
    """Thresholds and policies of selection. A change makes selections stale, but no scores."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings", use_attribute_docstrings=True)

    order: tuple[str, ...] = Field(
        default=BUILT_IN,
        description="Filters in the order they are applied. A filter that is not listed is off; one without a bound "
        f"keeps everything. Each filter sees only images that the earlier ones kept. Default {', '.join(BUILT_IN)}.",
    )
    min_short_side: int | None = Field(default=None, ge=1, le=LARGEST_SIDE)
    """Smallest short side of an image, in pixels. Default none."""
    max_long_side: int | None = Field(default=None, ge=1, le=LARGEST_SIDE)
    """Largest long side of an image, in pixels. Default none."""
    min_aspect_ratio: FiniteFloat | None = Field(default=None, gt=0)
    """Smallest width ÷ height, above 0. Default none."""
    max_aspect_ratio: FiniteFloat | None = Field(default=None, gt=0)
    """Largest width ÷ height, above 0. Default none."""
    min_sharpness: FiniteFloat | None = Field(default=100.0, ge=0)
    """Smallest variance of the Laplacian in colour, from 0. Default 100."""
    min_sharpness_grey: FiniteFloat | None = Field(default=None, ge=0)
    """Smallest variance of the Laplacian in grey, from 0. Default none."""
    min_sharpness_256: FiniteFloat | None = Field(default=None, ge=0)
    """Smallest variance of the Laplacian in colour at a short side of at most 256 pixels, from 0; fits images of all
    resolutions. Needs the scorer sharpness_256. Default none."""
    max_qr_area_ratio: FiniteFloat | None = Field(default=0.05, ge=0, le=1)
    """Share of QR codes in the image area must be below this, 0 to 1. Default 0.05."""
    max_nsfw: FiniteFloat | None = Field(default=None, ge=0, le=1)
    """NSFW probability of the pixels must be below this, 0 to 1. Default none."""
    min_ratio: FiniteFloat | None = Field(default=0.0, ge=0)
    """Smallest number of images per word of a sample, from 0. Default 0."""
    max_ratio: float | None = Field(default=math.inf, ge=0)
    """Largest number of images per word of a sample, from 0 to inf. Default inf."""
    min_clip: FiniteFloat | None = Field(default=0.15, ge=-1, le=1)
    """Smallest cosine similarity of an image with the best text of its sample, -1 to 1; applied if CLIP scores exist.
    Default 0.15."""
    min_aesthetic: FiniteFloat | None = None
    """Smallest aesthetic score; the head defines its range. Default none."""
    max_nsfw_clip: FiniteFloat | None = None
    """NSFW score of a head on the CLIP embedding must be below this. Default none."""
    own: dict[str, OwnBounds] = Field(default_factory=dict)
    """Bounds of your own filters, by name: min and max. A name that is not registered as a filter is a column of the
    scores. Filters that order does not list are applied last. Default none."""
    on_fail: dict[str, OnFail] = Field(default_factory=dict)
    """What an image filter drops, by its name: image (only that image) or sample (its whole sample). Default image."""
    on_score_error: ErrorPolicy = "error"
    """How to handle an image without the score that a filter needs: error fails the shard, warn keeps it, drop_row
    drops it, drop_sample drops its sample. Default error."""
    no_text: Literal["drop", "keep"] = "drop"
    """What the CLIP filter does with images of a sample without any text: drop or keep. Default drop."""
    reindex_positions: bool = False
    """Whether to renumber positions after drops, without gaps. Default false."""

    def bounds(self, name: str) -> Bounds:
        """The bounds of the filter ``name``; None for an infinite bound."""
        if name in _BOUNDS:
            minimum, maximum = (getattr(self, field) if field else None for field in _BOUNDS[name])
        else:
            own = self.own.get(name, OwnBounds())
            minimum, maximum = own.min, own.max
        return Bounds(_finite(minimum), _finite(maximum))

    def active_filters(self) -> tuple[str, ...]:
        """Names of the filters that have a bound, in order."""
        return tuple(name for name in self.full_order() if self.bounds(name) != (None, None))

    def full_order(self) -> tuple[str, ...]:
        """:attr:`order`, followed by the filters in :attr:`own` that it does not name."""
        return (*self.order, *(name for name in self.own if name not in self.order))

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        names = {*known_filters(), *self.own}
        for field, used in (("order", self.order), ("on_fail", self.on_fail)):
            if unknown := [name for name in used if name not in names]:
                raise ValueError(f"{field}: no filter named {', '.join(unknown)}; there are {', '.join(sorted(names))}")
        if len(set(self.order)) != len(self.order):
            raise ValueError(f"order: a filter is named twice in {', '.join(self.order)}")
        if built_in := [name for name in self.own if name in _BOUNDS]:
            raise ValueError(f"own: {', '.join(built_in)} has settings of its own, such as {_names(built_in[0])}")
        if whole := [name for name in self.on_fail if isinstance(find_filter(name), SampleFilter)]:
            raise ValueError(f"on_fail: {', '.join(whole)} is a filter of samples and always drops whole samples")
        return self

    @model_validator(mode="after")
    def _bounds_make_sense(self) -> Self:
        for name in (*_BOUNDS, *self.own):
            minimum, maximum = self.bounds(name)
            if minimum is not None and maximum is not None and minimum > maximum:
                raise ValueError(f"{_names(name)}: the minimum {minimum:g} is above the maximum {maximum:g}")
        for name, fields in _BOUNDS.items():
            for field in fields if name not in self.order else ():
                # such a bound would be ignored silently; bounds that are set by default are exempt
                off_by_default = field is not None and type(self).model_fields[field].default is None
                if field and off_by_default and getattr(self, field) is not None:
                    raise ValueError(f"{field} is set, and order does not name the filter {name!r}: add it")
        return self


def with_changes(values: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """``values`` of :class:`SelectionSettings` with others, by name; ``own.<filter>.min`` changes that bound alone."""
    changed: dict[str, Any] = {**values, "own": {name: dict(bounds) for name, bounds in values["own"].items()}}
    for name, value in changes.items():
        section, _, place = name.partition(".")
        own, _, side = place.rpartition(".")
        if section == "own" and own:
            changed["own"].setdefault(own, {})[side] = value
        else:
            changed[name] = value
    return changed


def bound_settings(name: str) -> tuple[str | None, str | None]:
    """The settings below ``selection`` that hold the minimum and the maximum of the filter ``name``; None for none.

    Those of a filter that is not built in are ``own.<name>.min`` and ``own.<name>.max``.
    """
    return _BOUNDS.get(name, (f"own.{name}.min", f"own.{name}.max"))


def selection_version(settings: SelectionSettings) -> str:
    """Settings and filter versions as text; equal text and equal scores give equal selections."""
    versions = {name: find_filter(name).version for name in settings.active_filters()}
    return json.dumps({"settings": json.loads(settings.model_dump_json()), "filters": versions}, sort_keys=True)


def _finite(bound: float | None) -> float | None:
    return None if bound is None or math.isinf(bound) else float(bound)


def _names(name: str) -> str:
    return " and ".join(field for field in _BOUNDS.get(name, (f"own.{name}",)) if field)
