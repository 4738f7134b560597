"""Where one sample went: its rows at every stage, and why those that are gone were dropped."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from interleaved_assets.io.storage import open_input
from interleaved_assets.model.errors import InterleavedError, ShardError
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.record import Record, ShardPaths, read_record
from interleaved_assets.pipeline.stages import normalized
from interleaved_assets.pipeline.status import stage_records
from interleaved_assets.settings import Settings

_ID: Final = "sample_id"


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
    with open_input(uri, options) as file:
        try:
            parquet = pq.ParquetFile(file)
            ids = parquet.read_row_groups(_groups_with(sample_id, parquet.metadata), columns=[_ID])[_ID]
            return bool(pc.any(pc.equal(ids, sample_id), min_count=0).as_py())
        except pa.ArrowException as error:
            raise _damaged(uri, error) from error


def _groups_with(sample_id: str, metadata: pq.FileMetaData) -> list[int]:
    """The row groups whose smallest and largest id do not rule the sample out."""
    found = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        (column,) = (
            group.column(index) for index in range(group.num_columns) if group.column(index).path_in_schema == _ID
        )
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max or statistics.min <= sample_id <= statistics.max:
            found.append(number)
    return found


def _rows_of(sample_id: str, uri: str, options: Mapping[str, object]) -> pa.Table:
    with open_input(uri, options) as file:
        try:
            parquet = pq.ParquetFile(file)
            columns = [
                field.name
                for field in parquet.schema_arrow
                if not pa.types.is_large_binary(field.type) and not field.type.num_fields
            ]
            return pq.read_table(file, columns=columns, filters=[(_ID, "=", sample_id)])
        except pa.ArrowException as error:
            raise _damaged(uri, error) from error


def _damaged(uri: str, error: Exception) -> ShardError:
    return ShardError(f"{uri} is not the Parquet that its record speaks of: {error}. Materialize its shard again.")
