"""Settings of selection: the section ``[selection]`` of ``interleaved.toml``."""

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

from interleaved_assets.model.errors import ErrorPolicy
from interleaved_assets.scoring.protocol.filter import Bounds, with_bounds
from interleaved_assets.selection.filters import BUILT_IN, SampleFilter, find_filter, known_filters

OnFail = Literal["image", "sample"]


class OwnBounds(BaseModel):
    """Bounds of a user's filter, both inclusive unless the filter was registered with an open maximum."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    min: FiniteFloat | None = None
    """Smallest value that is kept. Default none."""
    max: FiniteFloat | None = None
    """Largest value that is kept. Default none."""


class _OrderSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings", use_attribute_docstrings=True)

    order: tuple[str, ...] = Field(
        default=tuple(BUILT_IN),
        description="Filters in the order they are applied. A filter that is not listed is off; one without a bound "
        f"keeps everything. Each filter sees only images that the earlier ones kept. Default {', '.join(BUILT_IN)}.",
    )


class SelectionSettings(with_bounds(_OrderSettings, BUILT_IN.values())):  # type: ignore[misc]  # fields of the scores
    """Thresholds and policies of selection. A change makes selections stale, but no scores.

    The bounds, such as ``min_sharpness``, are those that the filters of the built-in scores name.
    """

    own: dict[str, OwnBounds] = Field(default_factory=dict)
    """Bounds of your own filters, by name: min and max. A name that is not registered as a filter means the column of
    the scores with that name. Filters that order does not list are applied last. Default none."""
    on_fail: dict[str, OnFail] = Field(default_factory=dict)
    """Effect of an image filter on an image that it rejects, by the filter's name: image drops only that image, sample
    drops its whole sample. Default image."""
    on_score_error: ErrorPolicy = "error"
    """Handling of an image without the score that a filter needs: error fails the shard, warn keeps it, drop_row drops
    it, drop_sample drops its sample. Default error."""
    no_text: Literal["drop", "keep"] = "drop"
    """Handling of images of a sample without any text by the CLIP filter: drop or keep. Default drop."""
    reindex_positions: bool = False
    """Renumber positions after drops, without gaps. Default false."""

    def bounds(self, name: str) -> Bounds:
        """Return the bounds of the filter ``name``; None for an infinite bound."""
        if name in BUILT_IN:
            minimum, maximum = (getattr(self, setting) if setting else None for setting in bound_settings(name))
        else:
            own = self.own.get(name, OwnBounds())
            minimum, maximum = own.min, own.max
        return Bounds(_finite(minimum), _finite(maximum))

    def active_filters(self) -> tuple[str, ...]:
        """Return the names of the filters that have a bound, in order."""
        return tuple(name for name in self.full_order() if self.bounds(name) != (None, None))

    def full_order(self) -> tuple[str, ...]:
        """Return :attr:`order`, followed by the filters in :attr:`own` that it does not name."""
        return (*self.order, *(name for name in self.own if name not in self.order))

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        names = {*known_filters(), *self.own}
        for field, used in (("order", self.order), ("on_fail", self.on_fail)):
            if unknown := [name for name in used if name not in names]:
                raise ValueError(f"{field}: no filter named {', '.join(unknown)}; there are {', '.join(sorted(names))}")
        if len(set(self.order)) != len(self.order):
            raise ValueError(f"order: a filter is named twice in {', '.join(self.order)}")
        if built_in := [name for name in self.own if name in BUILT_IN]:
            raise ValueError(f"own: {', '.join(built_in)} has settings of its own, such as {_names(built_in[0])}")
        if whole := [name for name in self.on_fail if isinstance(find_filter(name), SampleFilter)]:
            raise ValueError(f"on_fail: {', '.join(whole)} is a filter of samples and always drops whole samples")
        return self

    @model_validator(mode="after")
    def _bounds_make_sense(self) -> Self:
        for name in (*BUILT_IN, *self.own):
            minimum, maximum = self.bounds(name)
            if minimum is not None and maximum is not None and minimum > maximum:
                raise ValueError(f"{_names(name)}: the minimum {minimum:g} is above the maximum {maximum:g}")
        for name in BUILT_IN:
            for setting in filter(None, bound_settings(name)) if name not in self.order else ():
                # a bound of a filter outside the order would be ignored silently; defaults are exempt
                off_by_default = type(self).model_fields[setting].default is None
                if off_by_default and getattr(self, setting) is not None:
                    raise ValueError(f"{setting} is set, and order does not name the filter {name!r}: add it")
        return self


def with_changes(values: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return ``values`` of :class:`SelectionSettings` with ``changes``; ``own.<filter>.min`` changes one bound."""
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
    """Return the settings below ``selection`` with the minimum and the maximum of a filter; None for no setting.

    The settings of a filter that is not built in are ``own.<name>.min`` and ``own.<name>.max``.
    """
    if name not in BUILT_IN:
        return f"own.{name}.min", f"own.{name}.max"
    judge = BUILT_IN[name]
    return judge.minimum.setting if judge.minimum else None, judge.maximum.setting if judge.maximum else None


def selection_version(settings: SelectionSettings) -> str:
    """Return settings and filter versions as text; equal text and equal scores give equal selections.

    Only bounds that are set count, and the order of their filters: a new score with a bound makes no selection stale.
    """
    active = settings.active_filters()
    stated = {**json.loads(settings.model_dump_json(exclude_none=True)), "order": list(active)}
    versions = {name: find_filter(name).version for name in active}
    return json.dumps({"settings": stated, "filters": versions}, sort_keys=True)


def _finite(bound: float | None) -> float | None:
    return None if bound is None or math.isinf(bound) else float(bound)


def _names(name: str) -> str:
    return " and ".join(filter(None, bound_settings(name))) if name in BUILT_IN else f"own.{name}"
