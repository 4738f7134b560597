"""Where one sample went: its rows at every stage, and why those that are gone were dropped."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.footer import Footer
from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.record import Record, ShardPaths, read_record
from interleaved_assets.pipeline.stages import normalized
from interleaved_assets.pipeline.status import stage_records
from interleaved_assets.settings import Settings

_ID: Final = "sample_id"
_ADVICE: Final = "Materialize its shard again."


class StageTrace(NamedTuple):
    """One sample at one stage: ``kept`` has a row per row that it wrote (a score table: per image), with its scores;
    ``dropped`` the sample's rows of the ledger."""

    record: Record
    kept: pa.Table | None
    """None where the output is no table (final tars)."""
    dropped: pa.Table


def trace_sample(sample_id: str, key: str, settings: Settings) -> list[StageTrace]:
    """The path of ``sample_id`` through the stages of shard ``key``; empty where the shard does not have it.

    Row groups that cannot hold the sample are skipped by their statistics, and image bytes are not read.

    Raises:
        ShardError: a record or an output is damaged.
        StorageError: an output is missing, as while a stage is being redone.
    """
    options = settings.storage.options
    traces = []
    for record in stage_records(key, settings).values():
        kept = None
        if record.columns:
            kept = _rows_of(sample_id, record.outputs["rows"].uri, options)
        dropped = empty_ledger()
        if record.dropped:
            dropped = _rows_of(sample_id, record.outputs["ledger"].uri, options)
        traces.append(StageTrace(record, kept, dropped))
    known = any(trace.dropped.num_rows or (trace.kept is not None and trace.kept.num_rows) for trace in traces)
    return traces if known else []


def find_sample(
    sample_id: str, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, list[StageTrace] | InterleavedError]]:
    """Every shard among ``keys`` that has ``sample_id``, with its path; ids are unique within a shard only.

    Many shards are looked at a time, in their order; of one that does not have the sample, the record and the ids of
    ``normalized`` are all that is read. A shard that cannot be read gives the reason, and the others go on.
    """

    def look(key: str) -> tuple[str, list[StageTrace] | InterleavedError]:
        try:
            return key, trace_sample(sample_id, key, settings) if _may_have(sample_id, key, settings) else []
        except InterleavedError as error:
            return key, error

    for key, found in parallel_map(look, keys, threads=READERS):
        if found:
            yield key, found


def _may_have(sample_id: str, key: str, settings: Settings) -> bool:
    """False where ``normalized`` has neither kept nor dropped the sample: no later stage can know it then."""
    options = settings.storage.options
    record = read_record(ShardPaths(output_root=settings.storage.output_root, key=key).record(normalized.NAME), options)
    if record is None:  # being redone, or lost: later stages may still have theirs
        return True
    places = [record.outputs["rows"].uri, *([record.outputs["ledger"].uri] if record.dropped else [])]
    return any(_has(sample_id, uri, options) for uri in places)


def _has(sample_id: str, uri: str, options: Mapping[str, object]) -> bool:
    with open_parquet(uri, options, advice=_ADVICE) as source:
        ids = source.read([_ID], _groups_with(sample_id, source.footer))[_ID]
        return bool(pc.any(pc.equal(ids, sample_id), min_count=0).as_py())


def _rows_of(sample_id: str, uri: str, options: Mapping[str, object]) -> pa.Table:
    with open_parquet(uri, options, advice=_ADVICE) as source:
        columns = [
            field.name
            for field in source.schema
            if not pa.types.is_large_binary(field.type) and not field.type.num_fields
        ]
        rows = source.read(columns, _groups_with(sample_id, source.footer))
        return rows.filter(pc.equal(rows[_ID], sample_id))


def _groups_with(sample_id: str, footer: Footer) -> list[int]:
    """The row groups whose smallest and largest id do not rule the sample out."""
    wanted = sample_id.encode()
    found = []
    for number, group in enumerate(footer.groups):
        (ids,) = (chunk for chunk in group.chunks if chunk.path == (_ID,))
        if ids.smallest is None or ids.largest is None or ids.smallest <= wanted <= ids.largest:
            found.append(number)
    return found
