"""Apply one filter: compare values with the bounds, apply the error policy to missing scores, drop rows."""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.errors import ScoreError, error_code, row_error
from interleaved_assets.selection.filters import Filter, ImageFilter, SampleFilter, Values
from interleaved_assets.selection.row_state import Rows, RowState
from interleaved_assets.selection.settings import Bounds, SelectionSettings

_NO_TEXT: Final = "no_text"
"""Code of an image in a sample without text; the setting ``no_text`` decides about it."""


class _PolicyResult(NamedTuple):
    """The images without a score that the policy drops."""

    dropped: Rows
    with_sample: Rows
    """Those of ``dropped`` whose whole sample is dropped."""


def image_values(judge: ImageFilter, scores: pa.Table, matched: Rows) -> Values:
    """The value that the filter compares, for each image; NaN if a score is missing.

    Args:
        judge: the filter.
        scores: the stored scores, with the filter's columns.
        matched: for each image its row in ``scores``, -1 if it has none.
    """
    columns = [_floats(scores[name])[matched] for name in judge.columns]
    return columns[0] if judge.combine is None else judge.combine(*columns)


def outside(judge: Filter, values: Values, bounds: Bounds) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which values are below the minimum, and which above the maximum; NaN is neither."""
    none = np.zeros(len(values), dtype=bool)
    below = none if bounds.minimum is None else values < bounds.minimum
    if bounds.maximum is None:
        return below, none
    return below, values >= bounds.maximum if judge.open_maximum else values > bounds.maximum


def judge_samples(state: RowState, judge: SampleFilter, bounds: Bounds) -> None:
    """Drop all rows of each sample that has content and a value outside the bounds."""
    values = judge.measure(state.counts())
    with_content = state.with_content()
    for failed, suffix, bound in zip(outside(judge, values, bounds), ("below", "above"), bounds, strict=True):
        rows = np.flatnonzero(state.alive & (failed & with_content)[state.sample])
        state.drop(rows, f"{judge.name}_{suffix}", values[state.sample[rows]], bound)


def judge_images(
    state: RowState, judge: ImageFilter, scores: pa.Table, matched: Rows, settings: SelectionSettings, shard: str
) -> None:
    """Drop the images outside the bounds, and apply the error policy to images without a score.

    With ``on_fail = "sample"`` or the policy ``drop_sample``, the images' samples are dropped too.

    Raises:
        ScoreError: an image has no score and the policy is ``error``.
    """
    here = state.alive[state.images]
    rows, stored = state.images[here], matched[here]
    values = image_values(judge, scores, stored)
    bounds = settings.bounds(judge.name)
    missing = np.flatnonzero(np.isnan(values))
    unscored = _apply_policy(state, rows[missing], _errors(judge, scores, stored[missing]), judge.name, settings, shard)
    below, above = outside(judge, values, bounds)
    state.drop(rows[below], f"{judge.name}_below", values[below], bounds.minimum)
    state.drop(rows[above], f"{judge.name}_above", values[above], bounds.maximum)
    failed = rows[below | above]
    with_sample = failed if settings.on_fail.get(judge.name) == "sample" else failed[:0]
    state.drop_samples_of(np.concatenate([with_sample, unscored.with_sample]))
    state.drop_emptied(np.concatenate([failed, unscored.dropped]))


def _apply_policy(
    state: RowState, rows: Rows, errors: pa.Array, name: str, settings: SelectionSettings, shard: str
) -> _PolicyResult:
    """Keep, drop or raise for the images ``rows``, which have no score for the reasons ``errors``."""
    codes = np.array([error_code(text) for text in errors.to_pylist()], dtype=object)
    policies: NDArray[np.object_] = np.full(len(rows), settings.on_score_error, dtype=object)
    policies[codes == _NO_TEXT] = "warn" if settings.no_text == "keep" else "drop_row"
    if len(refused := np.flatnonzero(policies == "error")):
        first = int(refused[0])
        sample_id, position = state.key_of(int(rows[first]))
        raise ScoreError(shard, sample_id, position, name, errors[first].as_py())
    dropped = policies != "warn"
    state.drop_unscored(rows[dropped], errors.filter(pa.array(dropped)))
    state.keep_unscored(rows[~dropped], codes[~dropped].tolist())
    return _PolicyResult(rows[dropped], rows[policies == "drop_sample"])


def _floats(column: pa.ChunkedArray) -> Values:
    """The column as float64, NaN for null, with a NaN appended, which index -1 selects."""
    values = pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy()
    return np.append(values, np.nan)


def _errors(judge: ImageFilter, scores: pa.Table, stored: Rows) -> pa.Array:
    """Why images have no score: the text in the score table, else the code ``unscored``."""
    at = pa.array(stored, mask=stored < 0)
    texts = [scores[name].take(at).cast(pa.string()) for name in judge.error_columns if name in scores.column_names]
    nothing = row_error("unscored", f"{' and '.join(judge.columns)} not stored for this image")
    errors = pc.coalesce(*texts, pa.repeat(pa.scalar(nothing), len(stored)))
    return errors.combine_chunks() if isinstance(errors, pa.ChunkedArray) else errors
