"""Decide which rows to keep, by thresholds over stored scores; images are not read."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from interleaved_assets.model.errors import OptionError
from interleaved_assets.selection.filters import Filter, ImageFilter, SampleFilter, find_filter
from interleaved_assets.selection.judge import judge_images, judge_samples
from interleaved_assets.selection.positions import match_scores
from interleaved_assets.selection.row_state import Rows, RowState
from interleaved_assets.selection.settings import SelectionSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """The rows to keep, and the ledger of the others.

    Attributes:
        keep: one bool for each row, in row order.
        ledger: the dropped rows, with ``model.ledger.LEDGER_SCHEMA``, in row order.
        filters: names of the filters that were applied, in order.
        passed_over: names of filters that have a bound and were skipped, since the optional scores that they need do
            not exist (CLIP without a model).
        unscored: images kept without a score that a filter needed (``on_score_error = "warn"``), by error code.
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
    stage: str = "filtered",
    shard: str = "rows",
) -> Selection:
    """Decide which rows stay, from stored scores alone.

    Filters are applied in order, each to the rows that the earlier ones left. With ``on_fail = "sample"`` the whole
    sample of a dropped image is dropped. A sample that loses its last content is dropped with its metadata row; a
    sample that never had content is kept. Rows of other modalities than image are dropped only with their sample. The
    ledger has each dropped row once.

    Args:
        rows: the rows of whole samples: ``sample_id``, ``position``, ``modality``, and ``words`` (words of a text row,
            null on others; see :func:`~interleaved_assets.scoring.text_ratio.count_words`) if ``ratio`` is on.
        scores: scores of the images in any order: ``sample_id``, ``position``, the filters' columns, ``score_error``.
            CLIP scores are joined with :func:`~interleaved_assets.selection.positions.join_scores`.
        settings: order, thresholds and policies.
        stage: name of the stage in the ledger.
        shard: name of the rows in messages.

    Raises:
        OptionError: a column that a filter needs is missing.
        ScoreError: an image has no score that a filter needs, and ``on_score_error`` is ``error``.
    """
    settings = settings or SelectionSettings()
    judging, passed_over = applicable_filters(settings, scores.column_names)
    state, _, unscored = run_filters(judging, rows, scores, settings, shard=shard)
    if unscored:
        logger.warning("%s: images kept without a score: %s", shard, unscored)
    return Selection(pa.array(state.alive), state.ledger(stage), judging, passed_over, unscored)


def run_filters(
    names: Sequence[str], rows: pa.Table, scores: pa.Table, settings: SelectionSettings, *, shard: str = "rows"
) -> tuple[RowState, Rows, dict[str, int]]:
    """Apply the filters ``names`` in this order.

    Returns:
        The state of the rows; for each image its row in ``scores`` (-1: none); images kept without a score, by code.

    Raises:
        OptionError: ``rows`` lack a column, or ``scores`` have an image twice.
        ScoreError: as :func:`select`.
    """
    state = RowState(rows)
    matched = match_scores(rows.select(["sample_id", "position"]).take(state.images), scores)
    for name in names:
        judge = find_filter(name)
        if isinstance(judge, SampleFilter):
            judge_samples(state, judge, settings.bounds(name))
        else:
            judge_images(state, judge, scores, matched, settings, shard)
    return state, matched, state.kept_unscored()


def applicable_filters(
    settings: SelectionSettings, columns: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the filters to apply to scores with these columns, and of those to skip.

    Raises:
        OptionError: a filter needs a column that is missing.
    """
    judging, passed_over = [], []
    for name in settings.active_filters():
        judge = find_filter(name)
        if isinstance(judge, ImageFilter) and judge.if_scored and not set(judge.columns) <= set(columns):
            passed_over.append(name)
        else:
            require_columns(judge, columns)
            judging.append(name)
    return tuple(judging), tuple(passed_over)


def require_columns(judge: Filter, columns: Collection[str]) -> None:
    """Check that scores with these columns have those that the filter reads.

    Raises:
        OptionError: one is missing; the message names the settings that produce it.
    """
    needed = judge.columns if isinstance(judge, ImageFilter) else ()
    if lacking := [column for column in needed if column not in columns]:
        raise OptionError(
            f"filter {judge.name!r} needs the score {', '.join(lacking)}, and the scores have "
            f"{', '.join(columns)}: turn on what measures it (scoring.scorers, clip.heads), "
            f"or take {judge.name!r} out of selection.order"
        )
