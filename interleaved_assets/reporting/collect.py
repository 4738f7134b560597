"""The facts of shards for the reports, from what the stages have stored."""

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.storage import open_input
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline import filtered
from interleaved_assets.pipeline.in_order import in_order
from interleaved_assets.pipeline.record import Record, ShardPaths
from interleaved_assets.pipeline.staleness import COMPLETE, State, Status, stage_records
from interleaved_assets.pipeline.stored import LEDGER_STAGES, read_ledgers, read_scores
from interleaved_assets.pipeline.survey import Survey
from interleaved_assets.reporting.facts import ShardFacts
from interleaved_assets.reporting.measures import Values
from interleaved_assets.settings import Settings

UNREADABLE: Final = Status(State.UNREADABLE, "unreadable: a record or an output cannot be read")
# What reading a shard's small files costs is waiting for the storage; each of these threads holds one shard's scores.
_READERS: Final = 16


def shard_facts(key: str, settings: Settings, *, thumbnails: bool = False) -> ShardFacts:
    """What became of one shard, as far as it has come; whether it is current is not asked here."""
    return _facts(key, stage_records(key, settings), settings, thumbnails=thumbnails)


def all_shard_facts(survey: Survey) -> Iterator[ShardFacts]:
    """What became of each shard of ``survey``, and how it stands, in the order of the keys.

    Some shards are read at a time; those that were read and not yet taken are few. One that cannot be read says so.
    """

    def facts(key: str) -> ShardFacts:
        try:
            recorded = survey.recorded_of(key)
            return _facts(key, recorded.records, survey.settings, status=survey.status(key, recorded))
        except (InterleavedError, pa.ArrowException) as error:
            return ShardFacts(key, status=UNREADABLE, problem=" ".join(str(error).split()))

    return in_order(facts, survey.keys, threads=_READERS)


def _facts(
    key: str,
    records: Mapping[str, Record],
    settings: Settings,
    *,
    thumbnails: bool = False,
    status: Status = COMPLETE,
) -> ShardFacts:
    storage = settings.storage
    paths = ShardPaths(output_root=storage.output_root, key=key)
    first = records.get("normalized")
    dropping = [name for name in LEDGER_STAGES if name in records]
    if first is None:
        return ShardFacts(key, status=status)
    kept = records[dropping[-1]].counts_out
    return ShardFacts(
        key=key,
        rows_in=first.counts_in.rows,
        samples_in=first.counts_in.samples,
        images_in=first.counts_in.images,
        rows_kept=kept.rows,
        samples_kept=kept.samples,
        images_kept=kept.images,
        scores=read_scores(paths, settings, thumbnails=thumbnails) if "image_scores" in records else None,
        # a ledger that its record calls empty need not be read
        ledger=read_ledgers(paths, storage.options, [name for name in dropping if records[name].dropped]),
        values=_sample_values(records, settings),
        errors=_errors(records),
        status=status,
    )


def _sample_values(records: Mapping[str, Record], settings: Settings) -> dict[str, Values]:
    samples = records["filtered"].outputs.get("samples") if "filtered" in records else None
    if samples is None:
        return {}
    with open_input(samples.uri, settings.storage.options) as file:
        table = pq.ParquetFile(file).read(columns=[filtered.RATIO], use_threads=False)
        return {filtered.RATIO: table[filtered.RATIO].to_numpy()}


def _errors(records: Mapping[str, Record]) -> dict[str, int]:
    # an error that a row carries on from normalization is counted where it arose
    counts: dict[str, int] = dict(records["normalized"].errors)
    for code, count in records["image_scores"].errors.items() if "image_scores" in records else ():
        counts[code] = max(count, counts.get(code, 0))
    return counts
