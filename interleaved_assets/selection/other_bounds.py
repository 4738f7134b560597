"""Counts of the rows that other thresholds would keep, computed from stored scores."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from interleaved_assets.model.errors import OptionError, SettingsError
from interleaved_assets.model.ledger import drop_reasons
from interleaved_assets.scoring.protocol.filter import Filter, ImageFilter, SampleFilter, TextFilter
from interleaved_assets.scoring.protocol.values import Values
from interleaved_assets.selection.applicable import applicable_filters, require_columns
from interleaved_assets.selection.filters import find_filter
from interleaved_assets.selection.judge import Selection, image_values, names_of, run_filters, select
from interleaved_assets.selection.row_state import RowState
from interleaved_assets.selection.settings import SelectionSettings, with_changes
from interleaved_assets.selection.texts import judged_rows, numbers


@dataclass(frozen=True)
class Outcome:
    """Counts of a selection; the sum of the outcomes of shards is the outcome of a data set."""

    rows: int = 0
    rows_kept: int = 0
    images: int = 0
    images_kept: int = 0
    samples: int = 0
    samples_kept: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Rows dropped, by reason."""
    images_dropped: Mapping[str, int] = field(default_factory=dict)
    """Images dropped, by reason."""

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.rows + other.rows,
            self.rows_kept + other.rows_kept,
            self.images + other.images,
            self.images_kept + other.images_kept,
            self.samples + other.samples,
            self.samples_kept + other.samples_kept,
            dict(Counter(self.dropped) + Counter(other.dropped)),
            dict(Counter(self.images_dropped) + Counter(other.images_dropped)),
        )


def what_if(
    rows: pa.Table,
    scores: pa.Table,
    settings: SelectionSettings,
    overrides: Mapping[str, object] | None = None,
    *,
    documents: pa.Table | None = None,
) -> Outcome:
    """Count what ``select`` would keep of one shard with changed settings.

    Args:
        rows: as for :func:`~interleaved_assets.selection.judge.select`.
        scores: as for ``select``.
        settings: the current settings.
        overrides: settings to change, by name, such as
            ``{"min_sharpness": 80, "own.brightness.max": 0.9, "document.words.min": 50}``.
        documents: as for ``select``.

    Raises:
        SettingsError: an override is not a setting, has a wrong type or is out of range.
        OptionError: a filter needs a column that the scores lack; also one that ``select`` skips without its scores,
            where an override gives it another bound.
        ScoreError: an image has no score that a filter needs, and ``on_score_error`` is ``error``.
    """
    return outcome_of(rows, other_selection(rows, scores, settings, overrides, documents=documents))


def other_selection(
    rows: pa.Table,
    scores: pa.Table,
    settings: SelectionSettings,
    overrides: Mapping[str, object] | None = None,
    *,
    documents: pa.Table | None = None,
) -> Selection:
    """Select with changed settings; arguments and errors as for :func:`what_if`."""
    changed = changed_settings(settings, overrides or {})
    for name in changed.active_filters():
        if changed.bounds(name) != settings.bounds(name):
            require_columns(changed.find(name), scores.column_names, names_of(documents))
    return select(rows, scores, changed, documents=documents)


def outcome_of(rows: pa.Table, selection: Selection) -> Outcome:
    """Count what ``selection`` keeps of ``rows``."""
    kept, is_image = rows.filter(selection.keep), pc.equal(rows["modality"], "image")
    ledger = selection.ledger
    return Outcome(
        rows=rows.num_rows,
        rows_kept=kept.num_rows,
        images=_count(is_image),
        images_kept=_count(pc.equal(kept["modality"], "image")),
        samples=pc.count_distinct(rows["sample_id"]).as_py(),
        samples_kept=pc.count_distinct(kept["sample_id"]).as_py(),
        dropped=drop_reasons(ledger),
        images_dropped=drop_reasons(ledger.filter(pc.equal(ledger["modality"], "image"))),
    )


class ChangedRows(NamedTuple):
    """The rows that two selections decide on differently, as lines of a ledger."""

    kept: pa.Table
    """Rows that only the changed settings keep, with why the current ones drop them."""
    dropped: pa.Table
    """Rows that only the current settings keep, with why the changed ones drop them."""


def changed_rows(now: Selection, then: Selection) -> ChangedRows:
    """Return the rows of one shard that the selections ``now`` and ``then`` decide on differently."""
    return ChangedRows(
        now.ledger.filter(then.keep.filter(pc.invert(now.keep))),
        then.ledger.filter(now.keep.filter(pc.invert(then.keep))),
    )


def changed_settings(settings: SelectionSettings, overrides: Mapping[str, object]) -> SelectionSettings:
    """Return a validated copy of ``settings`` with ``overrides``."""
    try:
        return SelectionSettings.model_validate(with_changes(settings.model_dump(), overrides))
    except ValidationError as error:
        raise SettingsError("; ".join(_problem(problem) for problem in error.errors())) from error


def _problem(problem: ErrorDetails) -> str:
    name = ".".join(str(part) for part in problem["loc"]) or "selection"
    if problem["type"] == "tuple_type":
        return f"{name}: it is a list, such as {json.dumps([problem['input']], ensure_ascii=False, default=str)}"
    if problem["type"] != "extra_forbidden":
        return f"{name}: {problem['msg'].removeprefix('Value error, ')}"
    if name.startswith("own."):
        return f"{name}: no such setting; bounds of an own filter are own.<filter>.min and own.<filter>.max"
    if name.startswith(("document.", "text.")):
        score = name.rpartition(".")[0] if name.count(".") > 1 else name
        return f"{name}: no such setting; bounds of {score} are {score}.min, .max, .in and .not_in"
    known = sorted(SelectionSettings.model_fields)
    close = get_close_matches(name, known)
    return f"{name}: no such setting; {'did you mean' if close else 'there are'} {', '.join(close or known)}"


def judged_values(
    rows: pa.Table, scores: pa.Table, settings: SelectionSettings, name: str, *, documents: pa.Table | None = None
) -> Values:
    """Return the values that the filter ``name`` would compare, after the filters before it in the order.

    A filter of images or texts gives one value for each that is left, NaN if its score is missing. A filter of samples
    or documents gives one for each sample that has content left. The filter needs no bound; if the order does not
    name it, it comes last.

    Raises:
        OptionError: a filter needs a column that the scores lack.
        ScoreError: an image has no score that a filter before this one needs, and ``on_score_error`` is ``error``.
    """
    judge = settings.find(name)
    state, matched = _before(judge, rows, scores, settings, documents)
    if isinstance(judge, ImageFilter):
        return image_values(judge, scores, matched[state.alive[state.images]])
    return _values_left(judge, state, documents)


def judged_samples(
    rows: pa.Table, scores: pa.Table, settings: SelectionSettings, name: str, *, documents: pa.Table | None = None
) -> pa.Table:
    """Return the values that the filter of samples or documents ``name`` would compare, with the ids of the samples.

    Returns:
        ``sample_id``, and the values (float64) under the filter's name: one row per sample that has content left.

    Raises:
        OptionError: the filter compares neither samples nor documents.
        ScoreError: an image has no score that a filter before this one needs, and ``on_score_error`` is ``error``.
    """
    judge = settings.find(name)
    if isinstance(judge, ImageFilter) or (isinstance(judge, TextFilter) and judge.of == "text"):
        raise OptionError(
            f"filter {name!r} measures {'images' if isinstance(judge, ImageFilter) else 'texts'}, not samples"
        )
    state, _ = _before(judge, rows, scores, settings, documents)
    values = pa.array(_values_left(judge, state, documents), pa.float64(), from_pandas=True)
    return pa.table({"sample_id": state.sample_ids.filter(pa.array(state.with_content())), name: values})


def _values_left(judge: SampleFilter | TextFilter, state: RowState, documents: pa.Table | None) -> Values:
    """Return the values of the samples with content, documents or texts that are left."""
    if isinstance(judge, SampleFilter):
        return judge.value(state.counts())[state.with_content()]
    judged = judged_rows(judge, state, documents)
    assert documents is not None  # judged_rows raises without them
    return numbers(judge, documents, judged.stored)


def _before(
    judge: Filter, rows: pa.Table, scores: pa.Table, settings: SelectionSettings, documents: pa.Table | None
) -> tuple[RowState, NDArray[np.int64]]:
    """Return the state of the rows after the filters before ``judge``, and for each image its row in ``scores``."""
    require_columns(judge, scores.column_names, names_of(documents))
    judging, _ = applicable_filters(settings, scores.column_names, names_of(documents))
    order = settings.full_order()
    place = order.index(judge.name) if judge.name in order else len(order)
    before = [name for name in judging if name in order[:place]]
    state, matched, _ = run_filters(before, rows, scores, settings, documents)
    return state, matched


def keep_rates(
    values: Values, name: str, thresholds: Sequence[float] | NDArray[np.float64], side: Literal["minimum", "maximum"]
) -> NDArray[np.float64]:
    """Return the share of ``values`` that the filter ``name`` would keep at each threshold.

    Args:
        values: measured values, as from :func:`judged_values` or a column of scores; NaN (missing) is ignored.
        name: the filter; it defines whether a value equal to the maximum is kept.
        thresholds: values of the bound, in any order.
        side: which bound the thresholds are.

    Returns:
        For each threshold a share from 0 to 1; NaN if there are no values.

    Raises:
        OptionError: ``side`` is neither.
    """
    if side not in ("minimum", "maximum"):
        raise OptionError(f"keep_rates: side must be minimum or maximum, got {side!r}")
    known = values[~np.isnan(values)]
    if not len(known):
        return np.full(len(thresholds), np.nan)
    strictly = side == "minimum" or find_filter(name).open_maximum
    smaller = np.searchsorted(np.sort(known), thresholds, side="left" if strictly else "right") / len(known)
    return 1 - smaller if side == "minimum" else smaller


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask, min_count=0).as_py())
