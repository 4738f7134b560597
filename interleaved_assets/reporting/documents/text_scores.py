"""The stored scores of documents and texts for their page: those with bounds, the number of words, and the language."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.model.columns import IMAGE_KEY, METADATA_POSITION
from interleaved_assets.reporting.documents.document import Score, add_scores, rows_of_samples
from interleaved_assets.reporting.figures.facts import ImageKey, image_keys
from interleaved_assets.reporting.figures.measures import Measure, measure_of
from interleaved_assets.scoring.protocol.filter import TextFilter
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.selection.filters import UNITS, text_filter_name
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.selection.texts import failed_strings

_ALWAYS: Final = ("words", "language")
"""The scores that are shown without a bound too."""


class TextScores(NamedTuple):
    """The scores of some documents and of their texts.

    Attributes:
        judged: by document (position -1) and text, the scores with bounds, words and language.
        measured: by document, all its stored scores as JSON values.
    """

    judged: Mapping[ImageKey, Sequence[Score]]
    measured: Mapping[str, Mapping[str, Any]]


def text_scores(documents: pa.Table | None, sample_ids: Sequence[str], selection: SelectionSettings) -> TextScores:
    """Return the scores of the documents ``sample_ids`` from the table of document scores, if there is one."""
    if documents is None:
        return TextScores({}, {})
    documents = rows_of_samples(documents, sample_ids)
    is_document = pc.equal(documents["position"], METADATA_POSITION)
    parts = {"document": documents.filter(is_document), "text": documents.filter(pc.invert(is_document))}
    bounded = [judge for name in selection.active_filters() if isinstance(judge := selection.find(name), TextFilter)]
    others = [TextFilter(text_filter_name(of, column), column, of) for of in UNITS for column in _ALWAYS]
    judges = {judge.name: judge for judge in (*bounded, *others)}
    found: dict[ImageKey, list[Score]] = defaultdict(list)
    for judge in judges.values():
        part = parts[judge.of]
        if judge.column not in part.column_names:
            continue
        keys, column, measure = image_keys(part), part[judge.column], measure_of(judge.name, selection)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            _add_strings(found, judge, keys, column, measure, selection)
        else:
            add_scores(found, measure, keys, pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy())
    return TextScores(found, _measured(parts["document"]))


def _add_strings(
    found: Mapping[ImageKey, list[Score]],
    judge: TextFilter,
    keys: Sequence[ImageKey],
    column: pa.ChunkedArray,
    measure: Measure,
    selection: SelectionSettings,
) -> None:
    given, values = selection.given(judge.name), column.combine_chunks()
    not_kept, refused = failed_strings(values, given)
    rule = given.strings or "no bound"
    for key, value, failed in zip(keys, values.to_pylist(), (not_kept | refused).tolist(), strict=True):
        if value is not None:
            passes = not failed if given.has_lists else None
            about = f"{judge.name}: {value}, {rule}"
            found[key].append(Score(judge.name, measure.shown.short, math.nan, passes, about, value))


def _measured(documents: pa.Table) -> dict[str, dict[str, Any]]:
    """Return the scores of each document by their columns; a share has four significant digits."""
    columns = [name for name in documents.column_names if name not in (*IMAGE_KEY, ERROR_COLUMN)]
    values = [documents[name].to_pylist() for name in columns]
    return {
        sample_id: {
            name: float(f"{value:.4g}") if isinstance(value, float) else value
            for name, value in zip(columns, row, strict=True)
            if isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
        }
        for sample_id, row in zip(documents["sample_id"].to_pylist(), zip(*values, strict=True), strict=True)
    }
