"""The stage ``clip_scores``: scores of each image from the CLIP model and its heads."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from interleaved_assets.model.errors import NOT_COMPARED, InterleavedError
from interleaved_assets.pipeline.checks.every_image_scored import EVERY_IMAGE_SCORED
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.checks.scores_in_range import SCORES_IN_RANGE
from interleaved_assets.pipeline.raw.keys import shard_key
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.run.attempt import feature_release
from interleaved_assets.pipeline.run.counts import IMAGE_MEMBERS, image_members, write_scores
from interleaved_assets.pipeline.run.stage import (
    DEVICE_WAIT,
    ShardTask,
    SourceColumn,
    Stage,
    StageDisplay,
    StageOutput,
    Work,
    last_with_rows,
    scored_from,
)
from interleaved_assets.pipeline.stages.names import CLIP_SCORES, IMAGE_SCORES
from interleaved_assets.pipeline.stages.outputs import read_scores
from interleaved_assets.scoring.clip import identity
from interleaved_assets.scoring.clip.columns import clip_columns, clip_ranges
from interleaved_assets.scoring.clip.prescreen import prescreened
from interleaved_assets.scoring.clip.scorer import load_scorer
from interleaved_assets.scoring.clip.stream import ClipStats, score_shards
from interleaved_assets.scoring.scores.clip import CLIP, EMBEDDING
from interleaved_assets.settings import Settings, StorageSettings

_COLUMNS: Final = ("sample_id", "position", "modality", "text_content", "binary_content", "materialize_error")


def score_together(shards: Iterator[ShardTask], settings: Settings) -> Iterator[tuple[str, Work | InterleavedError]]:
    """Score the images of many shards with one model, in batches that go across shards.

    An error of one shard, StorageUnavailable included, is the outcome of that shard alone. The model stays loaded, so
    that another try of a shard does not load it again.

    Raises:
        MissingDependency, SettingsError: the model cannot be loaded, or it is the demo's model and the raw root holds
            other shards than the demo's. These are raised before any work.
        Exception: any failure of the device.
    """
    options = settings.storage.options_by_scheme()
    scorer = load_scorer(settings.clip, options, is_demo_data=lambda: _is_demo_data(settings.storage))
    begun: dict[str, ShardTask] = {}
    broken: dict[str, InterleavedError] = {}
    image_tables: dict[str, pa.Table] = {}

    def named_tables() -> Iterator[tuple[str, Iterable[pa.Table]]]:
        for shard in shards:
            begun[shard.key] = shard
            try:
                if settings.clip.prescreen.is_on:
                    image_tables[shard.key] = _read_image_scores(shard)
            except InterleavedError as error:
                broken[shard.key] = error
            else:
                yield shard.key, _tables(shard, broken)

    stats, waited = ClipStats(), 0.0
    for key, scores in score_shards(named_tables(), scorer, image_scores=image_tables.pop, stats=stats):
        facts: dict[str, float | int | str] = {**scorer.facts(), DEVICE_WAIT: round(stats.waited_seconds - waited, 3)}
        waited = stats.waited_seconds
        outcome: Work | InterleavedError
        try:
            outcome = broken.pop(key) if key in broken else _write(begun[key], scores, facts)
        except InterleavedError as error:
            outcome = error
        yield key, outcome
    yield from broken.items()


def _is_demo_data(storage: StorageSettings) -> bool:
    """Return whether the raw root holds shards of the demo and no others."""
    from interleaved_assets.demo.shards import SHARDS as SHARDS_OF_DEMO  # imports all of the demo's drawing

    keys = {shard.key for shard in list_raw_shards(storage)}
    return bool(keys) and keys <= {shard_key(name) for name in SHARDS_OF_DEMO}


def _read_image_scores(shard: ShardTask) -> pa.Table:
    scores = read_scores(shard.paths)
    prescreened(scores.slice(0, 0), shard.settings.clip.prescreen)  # raises if this shard lacks a column
    return scores


def _tables(shard: ShardTask, broken: dict[str, InterleavedError]) -> Iterator[pa.Table]:
    """Yield the shard's rows. An error ends them and is stored in ``broken``, so that other shards go on."""
    try:
        yield from shard.rows_of(shard.rows_input, _COLUMNS)
    except InterleavedError as error:
        broken[shard.key] = error


def _write(shard: ShardTask, scores: pa.Table, facts: dict[str, float | int | str]) -> Work:
    measured = {name: [name] for name in clip_ranges(shard.settings.clip) if name in scores.column_names}
    work = write_scores(scores, shard.paths.output(CLIP_SCORES), shard.options, "clip_error", measured)
    rows = shard.read[shard.rows_input]
    no_errors = {code: work.errors.get(code, 0) for code in NOT_COMPARED}
    return work.model_copy(
        update={
            "data_version": _computed_from(shard),
            "counts_in": rows.counts_out,
            "errors": {code: count for code, count in work.errors.items() if code not in no_errors},
            "counted": {**work.counted, IMAGE_MEMBERS: image_members(rows), **no_errors},
            "notes": dict(facts),
        }
    )


def _computed_from(shard: ShardTask) -> str:
    """Return the data version of the scores: a hash of their inputs, since another device may round differently."""
    versions = {name: record.data_version for name, record in shard.read.items()}
    packages = {name: feature_release(version) for name, version in shard.packages.items()}
    settings = identity.version_settings(shard.settings.clip)
    text = json.dumps([versions, shard.files, {"clip": settings}, packages], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _settings(settings: Settings) -> dict[str, object]:
    """Return the settings that change a score. The device is left out: it changes speed and rounding."""
    return {"clip": identity.version_settings(settings.clip)}


def _files(settings: Settings) -> dict[str, str]:
    """Return the version of each file that the settings name: checkpoint, configuration, heads."""
    return identity.file_versions(settings.clip, settings.storage.options_by_scheme())


def _connect(stage: Stage, settings: Settings, before: Sequence[Stage]) -> Stage | None:
    if not settings.clip.enabled:
        return None
    rows = last_with_rows(before)

    def made_from(column: str, settings: Settings) -> tuple[SourceColumn, ...]:
        of_image_alone = column in (EMBEDDING, *settings.clip.head_columns)
        return scored_from(rows, column, "clip_error", "binary_content", *([] if of_image_alone else ["text_content"]))

    inputs = (rows, *((IMAGE_SCORES,) if settings.clip.prescreen.is_on else ()))
    return replace(stage, inputs=inputs, made_from=made_from)


STAGE: Final = Stage(
    CLIP_SCORES,
    version=2,
    settings=_settings,
    together=score_together,
    files=_files,
    packages=lambda _: CLIP.packages,
    checks=(ROWS_WITHOUT_ERROR, EVERY_IMAGE_SCORED, SCORES_IN_RANGE, SCHEMA_CANONICAL),
    columns=lambda settings: clip_columns(settings.clip),
    ranges=lambda settings: clip_ranges(settings.clip),
    connect=_connect,
    output=StageOutput("image scores"),
    display=StageDisplay(
        "One row per image: its best cosine similarity with a text of its sample, and the scores of the heads on "
        "its embedding. Runs on the GPU.",
        "score",
        frozenset({"parquet", "pytorch"}),
    ),
)
