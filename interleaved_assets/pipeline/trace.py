"""Where one sample went: its rows at every stage, and why those that are gone were dropped."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.io.storage import open_input
from interleaved_assets.model.ledger import empty_ledger
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.staleness import stage_records
from interleaved_assets.settings import Settings

_ROW_COLUMNS: Final = ("sample_id", "position", "modality")


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
    """
    options = settings.storage.options
    traces = []
    for record in stage_records(key, settings).values():
        kept = None
        if record.columns:
            kept = _rows_of(sample_id, record.outputs["rows"].uri, options)
        dropped = empty_ledger()
        if "ledger" in record.outputs:
            dropped = _rows_of(sample_id, record.outputs["ledger"].uri, options)
        traces.append(StageTrace(record, kept, dropped))
    known = any(trace.dropped.num_rows or (trace.kept is not None and trace.kept.num_rows) for trace in traces)
    return traces if known else []


def find_sample(sample_id: str, keys: Iterable[str], settings: Settings) -> Iterator[tuple[str, list[StageTrace]]]:
    """Every shard among ``keys`` that has ``sample_id``, with its path; ids are unique within a shard only."""
    for key in keys:
        if found := trace_sample(sample_id, key, settings):
            yield key, found


def _rows_of(sample_id: str, uri: str, options: Mapping[str, object]) -> pa.Table:
    with open_input(uri, options) as file:
        parquet = pq.ParquetFile(file)
        columns = [
            field.name
            for field in parquet.schema_arrow
            if not pa.types.is_large_binary(field.type) and not field.type.num_fields
        ]
        return pq.read_table(file, columns=columns, filters=[("sample_id", "=", sample_id)])
