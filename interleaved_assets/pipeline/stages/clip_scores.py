"""clip_scores: how well each image goes with the texts of its sample, and what the heads make of its embedding."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from interleaved_assets.demo.shards import SHARDS as SHARDS_OF_DEMO
from interleaved_assets.io.parquet.reader import read_parquet_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.model.errors import InterleavedError, error_code
from interleaved_assets.pipeline.counts import UNEXPLAINED, column_facts, extents, unexplained
from interleaved_assets.pipeline.execute import ShardTask, Stage, Work
from interleaved_assets.pipeline.raw.keys import shard_key
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.record import Counts, OutputFile
from interleaved_assets.pipeline.stages import image_scores, normalized
from interleaved_assets.pipeline.tables import read_table
from interleaved_assets.scoring.clip import identity
from interleaved_assets.scoring.clip.prescreen import prescreened
from interleaved_assets.scoring.clip.samples import clip_ranges
from interleaved_assets.scoring.clip.scores import ClipStats, load_scorer, score_shards
from interleaved_assets.scoring.thumbnail import THUMBNAIL_COLUMN
from interleaved_assets.settings import Settings

NAME: Final = "clip_scores"
NOT_COMPARED: Final = ("no_text", "prescreened")
"""Codes of images that CLIP had nothing to compare with or was not to see: no errors, and counted by themselves."""
_COLUMNS: Final = ("sample_id", "position", "modality", "text_content", "binary_content", "materialize_error")


def score_together(shards: Iterator[ShardTask], settings: Settings) -> Iterator[tuple[str, Work | InterleavedError]]:
    """Score the images of many shards with one model, in batches that go across shards.

    What is wrong with one shard, a storage that does not answer included, is that shard's outcome. The model stays
    loaded, so that shards can be tried again at no cost but their own.

    Raises:
        MissingDependency, SettingsError: the model cannot be loaded, or is the demo's and the raw root holds other
            shards than the demo's; before any work.
        Exception: whatever the device fails with.
    """
    options = settings.storage.options_by_scheme()
    scorer = load_scorer(settings.clip, options, is_demo_data=lambda: _is_demo_data(settings))
    begun: dict[str, ShardTask] = {}
    broken: dict[str, InterleavedError] = {}
    cheap_scores: dict[str, pa.Table] = {}
    stats = ClipStats()

    def named_tables() -> Iterator[tuple[str, Iterable[pa.Table]]]:
        for shard in shards:
            begun[shard.key] = shard
            try:
                if settings.clip.prescreen.is_on:
                    cheap_scores[shard.key] = _cheap_scores(shard)
            except InterleavedError as error:
                broken[shard.key] = error
            else:
                yield shard.key, _tables(shard, broken)

    for key, scores in score_shards(named_tables(), scorer, image_scores=cheap_scores.pop, stats=stats):
        facts: dict[str, str | float] = {**scorer.facts(), "images_per_second": stats.images_per_second}
        yield key, broken.pop(key) if key in broken else _written(begun[key], scores, facts)
    yield from broken.items()


def _is_demo_data(settings: Settings) -> bool:
    """Whether the raw root holds shards of the demo and no others."""
    keys = {shard.key for shard in list_raw_shards(settings.storage)}
    return bool(keys) and keys <= {shard_key(name) for name in SHARDS_OF_DEMO}


def _cheap_scores(shard: ShardTask) -> pa.Table:
    uri = shard.paths.output(image_scores.NAME)
    scores = read_table(uri, shard.options, shard=shard.key, stage=image_scores.NAME, left_out=(THUMBNAIL_COLUMN,))
    prescreened(scores.slice(0, 0), shard.settings.clip.prescreen)  # raises where this shard lacks a column
    return scores


def _tables(shard: ShardTask, broken: dict[str, InterleavedError]) -> Iterator[pa.Table]:
    """The shard's rows; what is wrong with it ends its rows and not the stream that other shards are part of."""
    try:
        yield from read_parquet_shard(
            shard.paths.output(normalized.NAME),
            columns=_COLUMNS,
            max_batch_bytes=shard.settings.run.max_batch_bytes,
            storage_options=shard.options,
        )
    except InterleavedError as error:
        broken[shard.key] = error


def _written(shard: ShardTask, scores: pa.Table, facts: dict[str, str | float]) -> Work | InterleavedError:
    try:
        return _write(shard, scores, facts)
    except InterleavedError as error:
        return error


def _write(shard: ShardTask, scores: pa.Table, facts: dict[str, str | float]) -> Work:
    with parquet_shard(shard.paths.output(NAME), scores.schema, storage_options=shard.options) as out:
        out.write(scores)
    measured = {name: [name] for name in clip_ranges(shard.settings.clip) if name in scores.column_names}
    reasons = Counter(error_code(error) for error in scores["clip_error"].drop_null().to_pylist())
    no_errors = {code: reasons.pop(code, 0) for code in NOT_COMPARED}
    return Work(
        outputs={"rows": OutputFile.of(out)},
        data_version=_computed_from(shard),
        counts_in=shard.read[normalized.NAME].counts_out,
        counts_out=Counts(rows=scores.num_rows, images=scores.num_rows),
        errors=dict(reasons),
        **column_facts(out.schema),
        extents=extents(scores),
        counted={UNEXPLAINED: unexplained(scores, "clip_error", measured), **no_errors},
        notes=facts,
    )


def _computed_from(shard: ShardTask) -> str:
    """Version of scores: of what they were computed from, since another device may round differently."""
    versions = {name: record.data_version for name, record in shard.read.items()}
    text = json.dumps([versions, shard.files, version_settings(shard.settings)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def version_settings(settings: Settings) -> dict[str, object]:
    """Every setting that changes a score; not the device, which changes speed and rounding."""
    return {"clip": identity.version_settings(settings.clip)}


def files(settings: Settings) -> dict[str, str]:
    """The version of each file that the settings name: checkpoint, configuration, heads."""
    return identity.file_versions(settings.clip, settings.storage.options_by_scheme())


def stage(settings: Settings) -> Stage:
    """The stage; it reads the cheap scores only where ``clip.prescreen`` has bounds on them."""
    reads = (normalized.NAME, image_scores.NAME) if settings.clip.prescreen.is_on else (normalized.NAME,)
    return Stage(NAME, inputs=reads, version=2, settings=version_settings, together=score_together, files=files)
