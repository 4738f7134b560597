"""The stage ``image_scores``: the measurements of each image on the CPU, and thumbnails of those that will be shown.

Thumbnails are made of the images that miss a bound in force, and of a sample of documents. They are no scores: another
bound makes none stale, and what is shown then without a thumbnail is read from the raw shard again.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.batches import sample_starts
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.checks.every_image_scored import EVERY_IMAGE_SCORED
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.checks.scores_in_range import SCORES_IN_RANGE
from interleaved_assets.pipeline.run.counts import IMAGE_MEMBERS, RowCounter, image_members, write_scores
from interleaved_assets.pipeline.run.stage import (
    ShardTask,
    Stage,
    StageDisplay,
    StageOutput,
    Work,
    last_with_images,
    scored_from,
)
from interleaved_assets.pipeline.stages.names import IMAGE_SCORES
from interleaved_assets.scoring.protocol.filter import Bounds, ImageFilter, outside
from interleaved_assets.scoring.protocol.registry import (
    prepare_scorers,
    score_columns,
    score_groups,
    score_ranges,
    scores_schema,
    scoring_packages,
    scoring_version,
)
from interleaved_assets.scoring.protocol.score import score_batches
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings import Settings

_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of a batch: smaller than a shard, so that images are scored while others are read."""
SHOWN_DOCUMENTS: Final = 30
"""Documents of a shard that have thumbnails of all their images."""
_IMAGE_COLUMNS: Final = ("sample_id", "position", "modality", "binary_content", "materialize_error")


def score(shard: ShardTask) -> Work:
    """Decode and measure each image once, and write ``image_scores/<key>.parquet`` in the order of the images."""
    settings = shard.settings
    source = shard.rows_input
    seen = RowCounter()
    schema = scores_schema(settings.scoring)
    shown = _ShownImages(settings.selection, schema.names, shard.read[source].counts_out.samples)

    def batches() -> Iterator[pa.Table]:
        for table in shard.rows_of(source, _IMAGE_COLUMNS, _BATCH_BYTES):
            shown.add(table)
            images = filter_rows(table, pc.equal(table["modality"], "image"))
            seen.add(images)
            yield images

    scores = pa.concat_tables([schema.empty_table(), *score_batches(batches(), settings.scoring, shown=shown)])
    groups = score_groups(settings.scoring)
    work = write_scores(scores, shard.paths.output(IMAGE_SCORES), shard.options, ERROR_COLUMN, groups)
    return work.model_copy(
        update={
            "counts_in": seen.counts,
            "counts_out": seen.counts.model_copy(update={"rows": scores.num_rows}),
            "counted": {**work.counted, IMAGE_MEMBERS: image_members(shard.read[source])},
        }
    )


class _ShownImages:
    """Says which images get a thumbnail: those outside a bound, and those of documents spread evenly over the shard."""

    def __init__(self, selection: SelectionSettings, columns: Sequence[str], samples: int) -> None:
        active = ((selection.find(name), selection.bounds(name)) for name in selection.active_filters())
        self._bounds = [
            (judge, bounds)
            for judge, bounds in active
            if isinstance(judge, ImageFilter) and set(judge.columns) <= {*columns}
        ]
        self._places = np.linspace(0, max(samples - 1, 0), min(samples, SHOWN_DOCUMENTS)).astype(np.int64)
        self._done = 0
        self._ids: set[str] = set()

    def add(self, table: pa.Table) -> None:
        """Note the samples of the next table, before its images are asked for."""
        starts = sample_starts(table["sample_id"])
        places = self._places[np.searchsorted(self._places, self._done) :] - self._done
        self._ids.update(table["sample_id"].take(pa.array(starts[places[places < len(starts)]])).to_pylist())
        self._done += len(starts)

    def __call__(self, sample_id: str, scores: Mapping[str, object]) -> bool:
        return sample_id in self._ids or any(
            _misses(judge, bounds, [scores.get(name) for name in judge.columns]) for judge, bounds in self._bounds
        )


def _misses(judge: ImageFilter, bounds: Bounds, values: Sequence[object]) -> bool:
    if any(value is None for value in values):
        return False
    below, above = outside(judge, judge.value([np.array([value], np.float64) for value in values]), bounds)
    return bool(below[0] or above[0])


def _connect(stage: Stage, _: Settings, before: Sequence[Stage]) -> Stage:
    rows = last_with_images(before)
    return replace(
        stage, inputs=(rows,), made_from=lambda column, _: scored_from(rows, column, ERROR_COLUMN, "binary_content")
    )


STAGE: Final = Stage(
    IMAGE_SCORES,
    version=4,
    settings=lambda settings: dict(json.loads(scoring_version(settings.scoring))),
    run=score,
    prepare=lambda settings: prepare_scorers(settings.scoring),
    packages=lambda settings: scoring_packages(settings.scoring),
    checks=(ROWS_WITHOUT_ERROR, EVERY_IMAGE_SCORED, SCORES_IN_RANGE, SCHEMA_CANONICAL),
    columns=lambda settings: score_columns(settings.scoring),
    ranges=lambda settings: score_ranges(settings.scoring),
    connect=_connect,
    output=StageOutput("image scores"),
    display=StageDisplay(
        "One row per image: size, sharpness, QR code area. Measured once; thresholds are applied in filtered.",
        "score",
        frozenset({"parquet", "opencv"}),
    ),
)
