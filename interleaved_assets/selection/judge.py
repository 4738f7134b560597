"""Decisions on which rows to keep, by thresholds over stored scores; images are not read."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.errors import ScoreError, error_code, row_error
from interleaved_assets.model.row_checks import check_table
from interleaved_assets.scoring.protocol.filter import Bounds, ImageFilter, SampleFilter, TextFilter, outside
from interleaved_assets.scoring.protocol.values import Values, score_column
from interleaved_assets.selection.applicable import applicable_filters
from interleaved_assets.selection.positions import match_scores
from interleaved_assets.selection.row_state import Rows, RowState
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.selection.texts import failed_strings, judged_rows, numbers, strings

logger = logging.getLogger(__name__)

_NO_TEXT: Final = "no_text"
"""Code of an image in a sample without text; the setting ``no_text`` decides about it."""


@dataclass(frozen=True)
class Selection:
    """The rows to keep, and the ledger of the others.

    Attributes:
        keep: one bool for each row, in row order.
        ledger: the dropped rows, with ``model.ledger.LEDGER_SCHEMA``, in row order.
        filters: names of the filters that were applied, in order.
        passed_over: names of filters that have a bound and were skipped, since the optional scores that they need do
            not exist (CLIP without a model).
        unscored: rows kept without a score that a filter needed (``on_score_error = "warn"``), by error code.
    """

    keep: pa.BooleanArray
    ledger: pa.Table
    filters: tuple[str, ...]
    passed_over: tuple[str, ...]
    unscored: Mapping[str, int]


def select(
    rows: pa.Table,
    scores: pa.Table,
    settings: SelectionSettings | None = None,
    *,
    documents: pa.Table | None = None,
    stage: str = "filtered",
    shard: str = "rows",
) -> Selection:
    """Decide which rows stay, from stored scores alone.

    Filters are applied in order, each to the rows that the earlier ones left. With ``on_fail = "sample"`` the whole
    sample of a dropped image is dropped. A sample that loses its last content is dropped with its metadata row; a
    sample that never had content is kept. Texts are dropped alone by bounds on texts only, and rows of modalities other
    than text and image only with their sample. The ledger has each dropped row once.

    Args:
        rows: the rows of whole samples: ``sample_id``, ``position``, ``modality``, and ``words`` (words of a text row,
            null on others; see :func:`~interleaved_assets.scoring.scores.ratio.count_words`) for filters of samples.
        scores: scores of the images in any order: ``sample_id``, ``position``, the filters' columns, ``score_error``.
            CLIP scores are joined with :func:`~interleaved_assets.selection.positions.join_scores`.
        settings: order, thresholds and policies.
        documents: scores of documents and texts, as from
            :func:`~interleaved_assets.scoring.protocol.texts.score_documents`; needed for bounds on them, and for
            bounds on fields of the documents (:func:`~interleaved_assets.selection.texts.with_fields`).
        stage: name of the stage in the ledger.
        shard: name of the rows in messages.

    Raises:
        OptionError: a column that a filter needs is missing, or has values that are not numbers.
        ScoreError: an image has no score that a filter needs, and ``on_score_error`` is ``error``.
    """
    check_table(scores, "scores")
    settings = settings or SelectionSettings()
    judging, passed_over = applicable_filters(settings, scores.column_names, names_of(documents))
    state, _, unscored = run_filters(judging, rows, scores, settings, documents, shard=shard)
    if unscored:
        logger.warning("%s: rows kept without a score: %s", shard, unscored)
    return Selection(pa.array(state.alive), state.ledger(stage), judging, passed_over, unscored)


def run_filters(
    names: Sequence[str],
    rows: pa.Table,
    scores: pa.Table,
    settings: SelectionSettings,
    documents: pa.Table | None = None,
    *,
    shard: str = "rows",
) -> tuple[RowState, Rows, dict[str, int]]:
    """Apply the filters ``names`` in this order.

    Returns:
        The state of the rows; for each image its row in ``scores``, -1 if it has none; rows kept without a score, by
            code.
    """
    state = RowState(rows)
    matched = match_scores(rows.select(["sample_id", "position"]).take(state.images), scores)
    for name in names:
        judge = settings.find(name)
        if isinstance(judge, SampleFilter):
            _judge_samples(state, judge, settings.bounds(name))
        elif isinstance(judge, TextFilter):
            _judge_texts(state, judge, documents, settings, shard)
        else:
            _judge_images(state, judge, scores, matched, settings, shard)
    return state, matched, state.kept_unscored()


def image_values(judge: ImageFilter, scores: pa.Table, matched: Rows) -> Values:
    """Return the value that the filter compares, for each image; NaN if a score is missing.

    ``matched`` has for each image its row in ``scores``, -1 if it has none.
    """
    columns = []
    for name in judge.columns:
        values = pc.fill_null(score_column(scores, name, pa.float64()), np.nan).to_numpy()
        columns.append(np.append(values, np.nan)[matched])  # index -1 selects the NaN at the end
    return judge.value(columns)


def _judge_samples(state: RowState, judge: SampleFilter, bounds: Bounds) -> None:
    """Drop all rows of each sample that has content and a value outside the bounds."""
    values = judge.value(state.counts())
    with_content = state.with_content()
    for failed, suffix, bound in zip(outside(judge, values, bounds), ("below", "above"), bounds, strict=True):
        rows = np.flatnonzero(state.alive & (failed & with_content)[state.sample])
        state.drop(rows, f"{judge.name}_{suffix}", values[state.sample[rows]], bound)


def _judge_texts(
    state: RowState, judge: TextFilter, documents: pa.Table | None, settings: SelectionSettings, shard: str
) -> None:
    """Drop the documents or texts outside the bounds, and apply the error policy to those without a value."""
    judged = judged_rows(judge, state, documents)
    assert documents is not None  # judged_rows raises without them
    bounds, given = settings.bounds(judge.name), settings.given(judge.name)
    if given.has_lists:
        texts = strings(judge, documents, judged.stored)
        missing = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))
        (first, second), suffixes = failed_strings(texts, given), ("not_in", "in")
        details: pa.Array | None = pc.binary_join_element_wise(f"{judge.column} is", texts, " ").cast(pa.string())
        values: Values | None = None
        bounds = Bounds(None, None)
    else:
        values, details = numbers(judge, documents, judged.stored), None
        missing = np.flatnonzero(np.isnan(values))
        (first, second), suffixes = outside(judge, values, bounds), ("below", "above")
    errors = _errors(judge, documents, judged.stored[missing])
    unscored, of_samples = _apply_policy(state, judged.rows[missing], errors, judge, settings, shard)
    with_sample = judge.of == "document" or settings.on_fail.get(judge.name) == "sample"
    if judge.of == "document":
        of_samples = unscored
    for failed, suffix, bound in zip((first, second & ~first), suffixes, bounds, strict=True):
        place = np.flatnonzero(failed)
        rows = judged.rows[place]
        if judge.of == "document":
            rows, of_document = state.rows_of_samples(rows)
            place = place[of_document]
        measured = None if values is None else values[place]
        detail = None if details is None else details.take(pa.array(place))
        state.drop(rows, f"{judge.name}_{suffix}", measured, bound, detail)
    failed_texts = judged.rows[first | second]
    state.drop_samples_of(
        np.concatenate([failed_texts if with_sample else failed_texts[:0], of_samples]), kind=judge.of
    )
    state.drop_emptied(np.concatenate([failed_texts, unscored]), kind=judge.of)


def names_of(documents: pa.Table | None) -> list[str]:
    """Return the columns of document scores, none without them."""
    return [] if documents is None else documents.column_names


def _judge_images(
    state: RowState, judge: ImageFilter, scores: pa.Table, matched: Rows, settings: SelectionSettings, shard: str
) -> None:
    """Drop the images outside the bounds, and apply the error policy to images without a score.

    With ``on_fail = "sample"`` or the policy ``drop_sample``, the images' samples are dropped too.
    """
    here = state.alive[state.images]
    rows, stored = state.images[here], matched[here]
    values = image_values(judge, scores, stored)
    bounds = settings.bounds(judge.name)
    missing = np.flatnonzero(np.isnan(values))
    errors = _errors(judge, scores, stored[missing])
    unscored, of_samples = _apply_policy(state, rows[missing], errors, judge, settings, shard)
    below, above = outside(judge, values, bounds)
    state.drop(rows[below], f"{judge.name}_below", values[below], bounds.minimum)
    state.drop(rows[above], f"{judge.name}_above", values[above], bounds.maximum)
    failed = rows[below | above]
    with_sample = failed if settings.on_fail.get(judge.name) == "sample" else failed[:0]
    state.drop_samples_of(np.concatenate([with_sample, of_samples]))
    state.drop_emptied(np.concatenate([failed, unscored]))


def _apply_policy(
    state: RowState,
    rows: Rows,
    errors: pa.Array,
    judge: ImageFilter | TextFilter,
    settings: SelectionSettings,
    shard: str,
) -> tuple[Rows, Rows]:
    """Keep or drop the ``rows``, which have no score for the reasons ``errors``, or raise ScoreError.

    Return the dropped rows, and those of them whose whole sample is dropped.
    """
    codes = np.array([error_code(text) for text in errors.to_pylist()], dtype=object)
    policies: NDArray[np.object_] = np.full(len(rows), settings.on_score_error, dtype=object)
    policies[codes == _NO_TEXT] = "warn" if settings.no_text == "keep" else "drop_row"
    if len(refused := np.flatnonzero(policies == "error")):
        first = int(refused[0])
        sample_id, position = state.key_of(int(rows[first]))
        raise ScoreError(shard, sample_id, position, judge.name, errors[first].as_py(), _unit(judge))
    dropped = policies != "warn"
    state.drop_unscored(rows[dropped], errors.filter(pa.array(dropped)))
    state.keep_unscored(rows[~dropped], codes[~dropped].tolist())
    return rows[dropped], rows[policies == "drop_sample"]


def _unit(judge: ImageFilter | TextFilter) -> str:
    return "image" if isinstance(judge, ImageFilter) else judge.of


def _errors(judge: ImageFilter | TextFilter, scores: pa.Table, stored: Rows) -> pa.Array:
    """Return why rows have no score: the text in the score table, else the code ``unscored``."""
    at = pa.array(stored, mask=stored < 0)
    present = [name for name in judge.error_columns if name in scores.column_names]
    texts = [score_column(scores, name, pa.string()).take(at) for name in present]
    columns = judge.columns if isinstance(judge, ImageFilter) else (judge.column,)
    nothing = row_error("unscored", f"{' and '.join(columns)} not stored for this {_unit(judge)}")
    errors = pc.coalesce(*texts, pa.repeat(pa.scalar(nothing), len(stored)))
    return errors.combine_chunks() if isinstance(errors, pa.ChunkedArray) else errors
