"""What a stage's record says, as Dagster metadata and tags."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.stage import Outcome

# Dagster's own tag names: they are how its staleness, its automation conditions and its UI learn of versions.
DATA_VERSION = "dagster/data_version"
DATA_VERSION_IS_OURS = "dagster/data_version_is_user_provided"
CODE_VERSION = "dagster/code_version"
INPUT_DATA_VERSION = "dagster/input_data_version"
INPUT_EVENT = "dagster/input_event_pointer"
NO_EVENT = "NULL"


def version_tags(record: Record, code_version: str, input_events: Mapping[str, int]) -> dict[str, str]:
    """Tags that tell Dagster which data this is, and from which inputs and code it came.

    Args:
        record: of the shard at this stage.
        code_version: the asset's.
        input_events: for each input that has one, the id of the event that brought it; Dagster compares what came later
            with that event to tell whether the input has changed since.
    """
    tags = {
        DATA_VERSION: record.data_version,
        DATA_VERSION_IS_OURS: "true",
        CODE_VERSION: code_version,
    }
    for name, version in record.inputs.items():
        tags[f"{INPUT_DATA_VERSION}/{name}"] = version
        tags[f"{INPUT_EVENT}/{name}"] = str(input_events.get(name, NO_EVENT))
    return tags


def shard_metadata(outcome: Outcome, extra: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """Metadata of one shard's materialization; numbers stay numbers, so that the UI plots them over time."""
    record = outcome.record
    rows = record.outputs["rows"]
    metadata: dict[str, Any] = {
        "dagster/partition_row_count": record.counts_out.rows,
        "dagster/uri": rows.uri,
        "output": dg.MetadataValue.path(rows.uri),
        "output_bytes": rows.size,
        "output_sha256": rows.sha256,
        "rows_in": record.counts_in.rows,
        "rows": record.counts_out.rows,
        "samples_in": record.counts_in.samples,
        "samples": record.counts_out.samples,
        "images_in": record.counts_in.images,
        "images": record.counts_out.images,
        "image_bytes": record.counts_out.image_bytes,
        "rows_dropped": sum(record.dropped.values()),
        "errors": sum(record.errors.values()),
        "seconds": round(outcome.seconds, 3),
        "unchanged": outcome.unchanged,
        "settings": dg.MetadataValue.json(record.settings),
        **record.notes,
        **extra,
    }
    if record.source is not None:
        metadata |= {
            "source": dg.MetadataValue.path(record.source.uri),
            "source_bytes": record.source.size,
            "source_version": record.source.version,
        }
    if "ledger" in record.outputs:
        metadata["ledger"] = dg.MetadataValue.path(record.outputs["ledger"].uri)
    if record.dropped:
        metadata["dropped_by_reason"] = _count_table("reason", record.dropped)
    if record.errors:
        metadata["errors_by_code"] = _count_table("code", record.errors)
    if record.columns:
        columns = [dg.TableColumn(name, type=dtype) for name, dtype in record.columns.items()]
        metadata["dagster/column_schema"] = dg.TableSchema(columns=columns)
    return metadata


def _count_table(label: str, counts: Mapping[str, int]) -> dg.TableMetadataValue:
    return dg.MetadataValue.table(
        [dg.TableRecord({label: name, "rows": count}) for name, count in counts.items()],
        schema=dg.TableSchema(columns=[dg.TableColumn(label, type="string"), dg.TableColumn("rows", type="int")]),
    )
