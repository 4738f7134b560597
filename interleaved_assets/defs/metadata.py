"""The record of a stage as Dagster metadata and tags."""

from collections.abc import Mapping
from typing import Any, TypeVar

import dagster as dg

from interleaved_assets.pipeline.lineage.columns import column_lineage, deciding_columns
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.stage import StageOutcome
from interleaved_assets.settings import Settings

# Tag names of Dagster: its staleness and its UI read versions from them.
DATA_VERSION = "dagster/data_version"
DATA_VERSION_IS_OURS = "dagster/data_version_is_user_provided"
CODE_VERSION = "dagster/code_version"
INPUT_DATA_VERSION = "dagster/input_data_version"
INPUT_EVENT = "dagster/input_event_pointer"
NO_EVENT = "NULL"

_Value = TypeVar("_Value", int, float, str, float | int | str)


def version_tags(record: Record, code_version: str, input_events: Mapping[str, int]) -> dict[str, str]:
    """Tags with the versions of data, inputs and code for Dagster.

    Args:
        record: of the shard at this stage.
        code_version: of the asset.
        input_events: for each input, the id of the event with its version, where there is one; Dagster compares later
            events with it to find out whether the input has changed.
    """
    tags = {
        DATA_VERSION: record.data_version,
        DATA_VERSION_IS_OURS: "true",
        CODE_VERSION: code_version,
    }
    for name, version in record.inputs.items():
        if "." in name:
            continue  # a file that a setting names is not an asset: Dagster would count it as a removed input
        tags[f"{INPUT_DATA_VERSION}/{name}"] = version
        tags[f"{INPUT_EVENT}/{name}"] = str(input_events.get(name, NO_EVENT))
    return tags


def shard_metadata(outcome: StageOutcome, settings: Settings, extra: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """Metadata of one shard's materialization; figures are numbers, so that the UI plots them over time.

    Everything else about the shard is in its record, whose place is an entry: each entry takes 100 bytes and more of
    every event.

    Args:
        outcome: of the shard at this stage.
        settings: in force.
        extra: further entries, such as pictures, shown first.
    """
    record = outcome.record
    # in the order of interest: pictures, figures, places of the files
    rows = [*record.rows_files.values()]
    metadata: dict[str, Any] = {
        **extra,
        "dagster/partition_row_count": record.counts_out.rows,
        **_counts(record),
        "seconds": round(outcome.seconds, 3),
        **_speed(outcome),
        "unchanged": outcome.unchanged,
        **{name: _rounded(value) for name, value in record.notes.items()},
        "dagster/uri": record.rows_uri,
        "output_bytes": sum(file.size for file in rows),
        **({"output_sha256": rows[0].sha256} if len(rows) == 1 else {}),
        "record": dg.MetadataValue.path(settings.storage.shard(record.shard).record(record.stage)),
    }
    if record.source is not None:
        metadata |= {"source": dg.MetadataValue.path(record.source.uri), "source_version": record.source.version}
    if "ledger" in record.outputs:
        metadata["ledger"] = dg.MetadataValue.path(record.outputs["ledger"].uri)
    lineage = column_lineage(record, settings.reading)
    if record.columns:
        columns = [dg.TableColumn(name, type=dtype) for name, dtype in record.columns.items()]
        metadata["dagster/column_schema"] = dg.TableSchema(columns=columns)
    if lineage:
        metadata["dagster/column_lineage"] = dg.TableColumnLineage(
            {
                name: [dg.TableColumnDep(dg.AssetKey(source.stage), source.column) for source in sources]
                for name, sources in lineage.items()
            }
        )
    if deciding := deciding_columns(record, settings.scoring, settings.selection):
        metadata["rows_decided_by"] = ", ".join(f"{source.stage}.{source.column}" for source in deciding)
    return metadata


def _counts(record: Record) -> dict[str, int | float]:
    """Counts of input, output and drops, each with its own name."""
    before, after = record.counts_in, record.counts_out
    numbers: dict[str, int | float] = {"rows": after.rows}
    if "ledger" in record.outputs:  # a stage that passes rows on; a table of scores has one row for each image
        numbers = {
            "rows_in": before.rows,
            "rows": after.rows,
            "rows_dropped": sum(record.dropped.values()),
            "samples_in": before.samples,
            "samples": after.samples,
            "image_bytes": after.image_bytes,
            **{f"dropped/{reason}": count for reason, count in record.dropped.items()},
        }
        if before.rows:
            numbers["rows_keep_rate"] = _rounded(after.rows / before.rows)
        if before.images:
            numbers["images_keep_rate"] = _rounded(after.images / before.images)
    return {
        **numbers,
        "images_in": before.images,
        "images": after.images,
        "errors": sum(record.errors.values()),
        **{f"errors/{code}": count for code, count in record.errors.items()},
    }


def _speed(outcome: StageOutcome) -> dict[str, float]:
    """Images, and MB of images, per second of the shard; nothing for an unchanged shard or one without images."""
    counts = outcome.record.counts_in
    if outcome.unchanged or not counts.images:
        return {}
    return {
        "images_per_second": round(counts.images / outcome.seconds, 1),
        "mb_per_second": round(counts.image_bytes / 1e6 / outcome.seconds, 2),
    }


def _rounded(value: _Value) -> _Value:
    """A figure with 4 decimals; whole numbers and texts are unchanged."""
    return round(value, 4) if isinstance(value, float) else value
