"""Settings of selection: the section ``[selection]`` of ``interleaved.toml``."""

import json
import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, create_model, model_validator

from interleaved_assets.model.digits import bound
from interleaved_assets.model.errors import ErrorPolicy
from interleaved_assets.scoring.protocol.filter import Bounds, Filter, SampleFilter, TextFilter, with_bounds
from interleaved_assets.scoring.protocol.registry import document_columns
from interleaved_assets.selection.filters import BUILT_IN, Unit, find_filter, known_filters, text_filter_name

OnFail = Literal["image", "sample"]
_TABLES: Final = ("document", "text", "own")
"""Settings with bounds by name."""


class _Limits(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    min: FiniteFloat | None = None
    """Smallest value that is kept. Default none."""
    max: FiniteFloat | None = None
    """Largest value that is kept. Default none."""
    not_in: tuple[str, ...] | None = None
    """Strings that are dropped. Default none."""

    @property
    def kept(self) -> tuple[str, ...] | None:
        """The strings that are kept, the setting ``in``; None for all."""
        found: tuple[str, ...] | None = getattr(self, "in")
        return found

    @property
    def has_lists(self) -> bool:
        """True if strings are listed."""
        return self.kept is not None or self.not_in is not None

    @property
    def strings(self) -> str:
        """The listed strings as text, such as ``keep en, de``; empty if none are listed."""
        parts = [f"keep {', '.join(self.kept)}"] if self.kept is not None else []
        parts += [f"drop {', '.join(self.not_in)}"] if self.not_in is not None else []
        return " and ".join(parts)

    @property
    def has_numbers(self) -> bool:
        """True if there is a minimum or a maximum."""
        return self.min is not None or self.max is not None

    @model_validator(mode="after")
    def _numbers_or_strings(self) -> Self:
        if self.has_numbers and self.has_lists:
            raise ValueError("min and max are bounds of numbers, in and not_in lists of strings: give one of the two")
        return self


# "in" is a word of Python's, so the field is made by its name
_IN: Final[dict[str, Any]] = {
    "in": (tuple[str, ...] | None, Field(default=None, description="Strings that are kept. Default all."))
}


# without docstrings, as in with_bounds
_TextBounds = create_model("_Limits", __base__=_Limits, __cls_kwargs__={"use_attribute_docstrings": False}, **_IN)


class TextBounds(_TextBounds):  # type: ignore[misc, valid-type]  # made of a field by its name
    """Bounds of a score of documents or texts: min and max of a number, in and not_in of a string, all inclusive."""


class OwnBounds(TextBounds):
    """Bounds of a user's filter, both inclusive unless the filter was registered with an open maximum."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    field: str | None = None
    """Field of the documents whose value is compared, by its path, such as stats.duplicates; a document outside of the
    bounds is dropped. Default none: the filter is a registered one, or a column of the scores of images."""

    @model_validator(mode="after")
    def _strings_are_of_fields(self) -> Self:
        if self.has_lists and self.field is None:
            raise ValueError("in and not_in need field, the name of the documents' field that has the strings")
        return self


class _OrderSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    order: tuple[str, ...] = Field(
        default=tuple(BUILT_IN),
        description="Filters in the order they are applied. A filter that is not listed is off; one without a bound "
        f"keeps everything. Each filter sees only images that the earlier ones kept. Default {', '.join(BUILT_IN)}.",
    )


class SelectionSettings(with_bounds(_OrderSettings, BUILT_IN.values())):  # type: ignore[misc]  # fields of the scores
    """Thresholds and policies of selection. A change makes selections stale, but no scores.

    The bounds, such as ``min_sharpness``, are those that the filters of the built-in scores name.
    """

    model_config = ConfigDict(use_attribute_docstrings=True)

    document: dict[str, TextBounds] = Field(default_factory=dict)
    """Bounds on scores of documents, by column: min and max of a number, in and not_in of a string. A document outside
    is dropped by the filter document_<column>; these filters are applied first, unless order lists them. Default none.
    """
    text: dict[str, TextBounds] = Field(default_factory=dict)
    """Bounds on scores of texts, by column, as in document. A text outside is dropped by the filter text_<column>.
    Default none."""
    own: dict[str, OwnBounds] = Field(default_factory=dict)
    """Bounds of your own filters, by name: min and max. A name that is not registered as a filter means the column of
    the scores with that name; with field, a field of the documents, also with in and not_in. Filters that order does
    not list are applied last. Default none."""
    on_fail: dict[str, OnFail] = Field(default_factory=dict)
    """Effect of a filter of images or texts on one that it rejects, by the filter's name: image drops only that image
    or text, sample drops its whole sample. Default image."""
    on_score_error: ErrorPolicy = "error"
    """Handling of an image, text or document without the score that a filter needs: error fails the shard, warn keeps
    it, drop_row drops it, drop_sample drops its sample. Default error."""
    no_text: Literal["drop", "keep"] = "drop"
    """Handling of images of a sample without any text by the CLIP filter: drop or keep. Default drop."""
    reindex_positions: bool = False
    """Renumber positions after drops, without gaps. Default false."""

    def bounds(self, name: str) -> Bounds:
        """Return the bounds of the filter ``name``; None for an infinite bound."""
        given = self.given(name)
        return Bounds(_finite(given.min), _finite(given.max))

    def given(self, name: str) -> TextBounds:
        """Return the bounds of a filter as set: as ``min_x``, or in :attr:`document`, :attr:`text` or :attr:`own`."""
        if name in BUILT_IN:
            minimum, maximum = (getattr(self, setting) if setting else None for setting in bound_settings(name))
            return TextBounds.model_construct(min=minimum, max=maximum)
        return self._text_bounds().get(name) or self.own.get(name) or OwnBounds()

    def find(self, name: str) -> Filter:
        """Return the filter ``name``, also one on a field of the documents that :attr:`own` names."""
        own = self.own.get(name)
        if own is None or own.field is None:
            return find_filter(name)
        return TextFilter(name, field_column(own.field), "document")

    def fields(self) -> tuple[str, ...]:
        """Return the fields of the documents that filters compare, by their paths."""
        return tuple(dict.fromkeys(own.field for own in self.own.values() if own.field is not None))

    def _text_bounds(self) -> dict[str, TextBounds]:
        tables: tuple[tuple[Unit, dict[str, TextBounds]], ...] = (("document", self.document), ("text", self.text))
        return {text_filter_name(of, column): bounds for of, given in tables for column, bounds in given.items()}

    def active_filters(self) -> tuple[str, ...]:
        """Return the names of the filters that have a bound, in order."""
        return tuple(
            name for name in self.full_order() if self.bounds(name) != (None, None) or self.given(name).has_lists
        )

    def full_order(self) -> tuple[str, ...]:
        """Return :attr:`order`, preceded by filters on texts and followed by those in :attr:`own`, if not in it."""
        first = (name for name in self._text_bounds() if name not in self.order)
        return (*first, *self.order, *(name for name in self.own if name not in self.order))

    def without_bounds(self) -> tuple[str, ...]:
        """Return the settings that name a filter which has no bound, such as ``on_fail.nsfw``: they have no effect.

        A built-in filter in :attr:`order` is not among them, since the default order has all of them.
        """
        active = self.active_filters()
        tables = {**self._text_bounds(), **self.own}
        found = [f"on_fail.{name}" for name in self.on_fail if name not in active]
        found += [f"order: {name}" for name in self.order if name in tables and name not in active]
        found += [f"own.{name}" for name, own in self.own.items() if own.field is not None and name not in active]
        return tuple(found)

    @model_validator(mode="after")
    def _columns_are_known(self) -> Self:
        columns = document_columns()
        for of, given in (("document", self.document), ("text", self.text)):
            for column, bounds in given.items():
                if column not in columns:
                    close = get_close_matches(column, columns)
                    known = f"did you mean {', '.join(close)}" if close else f"there are {', '.join(columns)}"
                    raise ValueError(f"{of}: no score of texts named {column}; {known}")
                if of == "text" and column in columns[column].of_documents:
                    raise ValueError(
                        f"text.{column}: it is a score of documents, and texts have none: set document.{column}"
                    )
                is_string = "string" in str(columns[column].columns[column])
                if is_string and bounds.has_numbers:
                    raise ValueError(f"{of}.{column}: it is a string, which in and not_in compare, not min and max")
                if not is_string and bounds.has_lists:
                    raise ValueError(f"{of}.{column}: it is a number, which min and max compare, not in and not_in")
        return self

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        names = {*known_filters(), *self.own, *self._text_bounds()}
        for field, used in (("order", self.order), ("on_fail", self.on_fail)):
            if unknown := [name for name in used if name not in names]:
                raise ValueError(f"{field}: no filter named {', '.join(unknown)}; there are {', '.join(sorted(names))}")
        if len(set(self.order)) != len(self.order):
            raise ValueError(f"order: a filter is named twice in {', '.join(self.order)}")
        if built_in := [name for name in self.own if name in BUILT_IN]:
            raise ValueError(f"own: {', '.join(built_in)} has settings of its own, such as {_names(built_in[0])}")
        if taken := [name for name, own in self.own.items() if own.field is not None and name in known_filters()]:
            raise ValueError(f"own: {taken[0]} is a registered filter, and compares no field: take another name")
        if twice := [name for name in self.own if name in self._text_bounds()]:
            raise ValueError(f"own: {twice[0]} is the filter of a bound in document or text: take another name")
        if whole := [name for name in self.on_fail if _is_of_samples(self.find(name))]:
            raise ValueError(f"on_fail: {', '.join(whole)} is a filter of samples and always drops whole samples")
        return self

    @model_validator(mode="after")
    def _bounds_make_sense(self) -> Self:
        for name in (*BUILT_IN, *self.own, *self._text_bounds()):
            minimum, maximum = self.bounds(name)
            if minimum is not None and maximum is not None and minimum > maximum:
                raise ValueError(f"{_names(name)}: the minimum {bound(minimum)} is above the maximum {bound(maximum)}")
        for name in BUILT_IN:
            for setting in filter(None, bound_settings(name)) if name not in self.order else ():
                # such a bound would be ignored silently; defaults, and bounds that keep everything, are exempt
                keeps_all = (None, 0 if setting.startswith("min_") else math.inf)
                if getattr(self, setting) not in (*keeps_all, type(self).model_fields[setting].default):
                    raise ValueError(f"{setting} is set, and order does not name the filter {name!r}: add it")
        return self


def with_changes(values: Mapping[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """Return ``values`` of :class:`SelectionSettings` with ``changes``.

    ``own.<filter>.min``, ``document.<column>.max`` and ``text.<column>.in`` change one bound. An ``order`` among the
    changes switches off the filters that it does not name, whatever bounds they have in ``values``.
    """
    tables = {table: {name: dict(bounds) for name, bounds in values[table].items()} for table in _TABLES}
    changed: dict[str, Any] = {**values, **tables}
    for name, value in changes.items():
        table, _, place = name.partition(".")
        column, _, side = place.rpartition(".")
        if table in _TABLES and column:
            changed[table].setdefault(column, {})[side] = value
        else:
            changed[name] = value
    if isinstance(order := changes.get("order"), list | tuple):
        off = {setting for name in BUILT_IN if name not in order for setting in bound_settings(name)}
        changed = {name: value for name, value in changed.items() if name in changes or name not in off}
    return changed


def bound_settings(name: str) -> tuple[str | None, str | None]:
    """Return the settings below ``selection`` with the minimum and the maximum of a filter; None for no setting.

    The settings of a filter that is not built in are ``own.<name>.min`` and ``own.<name>.max``, or such of ``document``
    and ``text``.
    """
    if name not in BUILT_IN:
        judge = find_filter(name)
        place = f"{judge.of}.{judge.column}" if isinstance(judge, TextFilter) else f"own.{name}"
        return f"{place}.min", f"{place}.max"
    judge = BUILT_IN[name]
    return judge.minimum.setting if judge.minimum else None, judge.maximum.setting if judge.maximum else None


def selection_version(settings: SelectionSettings) -> str:
    """Return settings and filter versions as text; equal text and equal scores give equal selections.

    Only bounds that are set count, and the order of their filters: a new score with a bound makes no selection stale.
    """
    active = settings.active_filters()
    stated = {**json.loads(settings.model_dump_json(exclude_none=True)), "order": list(active)}
    stated = {name: value for name, value in stated.items() if value or name not in ("document", "text")}
    versions = {name: settings.find(name).version for name in active}
    return json.dumps({"settings": stated, "filters": versions}, sort_keys=True)


def _finite(bound: float | None) -> float | None:
    return None if bound is None or math.isinf(bound) else float(bound)


def _names(name: str) -> str:
    minimum, maximum = bound_settings(name)
    return " and ".join(filter(None, (minimum, maximum))) if name in BUILT_IN else str(minimum).removesuffix(".min")


def _is_of_samples(judge: Filter) -> bool:
    return isinstance(judge, SampleFilter) or (isinstance(judge, TextFilter) and judge.of == "document")


def field_column(path: str) -> str:
    """Return the name under which selection has the values of a field of the documents."""
    return f"field {path}"
