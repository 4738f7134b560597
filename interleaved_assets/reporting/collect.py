"""The facts of shards for the reports, from what the stages have stored."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow.parquet as pq

from interleaved_assets.io.storage import open_input
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline import filtered
from interleaved_assets.pipeline.record import Record, ShardPaths
from interleaved_assets.pipeline.staleness import shard_status, stage_records
from interleaved_assets.pipeline.stored import LEDGER_STAGES, read_ledgers, read_scores
from interleaved_assets.reporting.facts import ShardFacts
from interleaved_assets.reporting.measures import Values
from interleaved_assets.settings import Settings


def shard_facts(key: str, settings: Settings, *, thumbnails: bool = False) -> ShardFacts:
    """What became of one shard, as far as it has come."""
    storage = settings.storage
    records = stage_records(key, settings)
    paths = ShardPaths(output_root=storage.output_root, key=key)
    first = records.get("normalized")
    dropping = [name for name in LEDGER_STAGES if name in records]
    if first is None:
        return ShardFacts(key, status="not normalized")
    kept = records[dropping[-1]].counts_out
    scored = "image_scores" in records
    return ShardFacts(
        key=key,
        rows_in=first.counts_in.rows,
        samples_in=first.counts_in.samples,
        images_in=first.counts_in.images,
        rows_kept=kept.rows,
        samples_kept=kept.samples,
        images_kept=kept.images,
        scores=read_scores(paths, settings, thumbnails=thumbnails) if scored else None,
        ledger=read_ledgers(paths, storage.options, dropping),
        values=_sample_values(records, settings),
        errors=_errors(records),
        status=shard_status(records, settings),
    )


def all_shard_facts(keys: Iterable[str], settings: Settings) -> Iterator[ShardFacts]:
    """:func:`shard_facts` of each shard, one at a time; one that cannot be read says so."""
    for key in keys:
        try:
            yield shard_facts(key, settings)
        except InterleavedError as error:
            yield ShardFacts(key, status=f"unreadable: {error}")


def _sample_values(records: Mapping[str, Record], settings: Settings) -> dict[str, Values]:
    samples = records["filtered"].outputs.get("samples") if "filtered" in records else None
    if samples is None:
        return {}
    with open_input(samples.uri, settings.storage.options) as file:
        return {filtered.RATIO: pq.read_table(file)[filtered.RATIO].to_numpy()}


def _errors(records: Mapping[str, Record]) -> dict[str, int]:
    # an error that a row carries on from normalization is counted where it arose
    counts: dict[str, int] = dict(records["normalized"].errors)
    for code, count in records["image_scores"].errors.items() if "image_scores" in records else ():
        counts[code] = max(count, counts.get(code, 0))
    return counts
