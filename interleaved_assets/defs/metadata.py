"""The record of a stage as Dagster metadata and tags."""

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import dagster as dg

from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stage import StageOutcome
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.reporting.served.places import url_of
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import CHANGES

# Tag names of Dagster, from which its staleness and its UI read versions.
DATA_VERSION = "dagster/data_version"
DATA_VERSION_IS_OURS = "dagster/data_version_is_user_provided"
CODE_VERSION = "dagster/code_version"
INPUT_DATA_VERSION = "dagster/input_data_version"
INPUT_EVENT = "dagster/input_event_pointer"
NO_EVENT = "NULL"

_BY_SETTINGS: Final = frozenset({"filters"})
"""Notes that are the same for all shards with the same settings. Events leave them out; the record has them."""

_Value = TypeVar("_Value", int, float, str, float | int | str)


def version_tags(record: Record, code_version: str, input_events: Mapping[str, int]) -> dict[str, str]:
    """Return tags with the versions of data, inputs and code for Dagster.

    Args:
        record: the record of the shard at this stage.
        input_events: for each input, the id of the event with its version, if there is one; Dagster compares later
            events with it to find out whether the input has changed.
    """
    tags = {
        DATA_VERSION: record.data_version,
        DATA_VERSION_IS_OURS: "true",
        CODE_VERSION: code_version,
    }
    for name, version in record.inputs.items():
        if "." in name:
            continue  # a file that a setting names is not an asset, and Dagster would count it as a removed input
        tags[f"{INPUT_DATA_VERSION}/{name}"] = version
        tags[f"{INPUT_EVENT}/{name}"] = str(input_events.get(name, NO_EVENT))
    return tags


def shard_metadata(outcome: StageOutcome, settings: Settings, extra: Mapping[str, dg.MetadataValue]) -> dict[str, Any]:
    """Return the metadata of one shard's materialization; figures are numbers, so that the UI plots them over time.

    Counts of 0 are left out, except those of dropped rows. All other facts of the shard are in its record, whose place
    is an entry. The entries of an unchanged shard are those of its earlier event, since Dagster shows the last event.

    Args:
        outcome: the outcome of the shard at this stage.
        extra: further entries, such as pictures, shown first.
    """
    record = outcome.record
    # ordered by interest: pictures, figures, places of the files
    metadata: dict[str, Any] = {
        **extra,
        "dagster/partition_row_count": record.counts_out.rows,
        **_counts(record),
        **_made(record),
    }
    if outcome.unchanged:
        metadata["unchanged"] = True
    if record.dropped:
        metadata["ledger"] = place_of(record.outputs["ledger"].uri, settings)
    if CHANGES in record.outputs:
        metadata[CHANGES] = dg.MetadataValue.path(record.outputs[CHANGES].uri)
    metadata["record"] = place_of(settings.storage.shard(record.shard).record(record.stage), settings)
    return metadata


def place_of(uri: str, settings: Settings) -> dg.UrlMetadataValue | dg.PathMetadataValue:
    """Return a link to a file below the output root in ``interleaved serve`` if ``serve.url`` is set, else its path."""
    url = url_of(uri, settings)
    return dg.MetadataValue.url(url) if url else dg.MetadataValue.path(uri)


def _counts(record: Record) -> dict[str, int | float]:
    """Return counts of output, drops and errors, each with its own name, and of the input if it differs."""
    before, after = record.counts_in, record.counts_out
    numbers: dict[str, int | float] = {}
    if "ledger" in record.outputs:  # a stage that passes rows on; a table of scores has a row per image
        numbers |= {"images": after.images, "rows_dropped": sum(record.dropped.values())}
    if record.dropped:
        numbers |= {
            "rows_in": before.rows,
            "images_in": before.images,
            **{f"dropped/{reason}": count for reason, count in record.dropped.items()},
            "rows_keep_rate": rounded(after.rows / before.rows),
        }
        if before.images:
            numbers["images_keep_rate"] = rounded(after.images / before.images)
    if record.errors:
        numbers |= {
            "errors": sum(record.errors.values()),
            **{f"errors/{code}": count for code, count in record.errors.items()},
        }
    return numbers


def _made(record: Record) -> dict[str, Any]:
    """Return the seconds and the speed with which the shard was made, and the size of the files written."""
    made: dict[str, Any] = {}
    if record.seconds:
        made["seconds"] = record.seconds
        if record.counts_out.images and record.extents:  # scores of images: other stages are as fast as their storage
            made["images_per_second"] = round(record.counts_in.images / record.seconds, 1)
    made |= {
        name: rounded(value)
        for name, value in record.notes.items()
        if (value or isinstance(value, float)) and name not in _BY_SETTINGS
    }
    if record.stage == NORMALIZED:
        others = {name: dtype for name, dtype in record.columns.items() if name not in RESERVED_COLUMNS}
        if others:
            made["passthrough_columns"] = ", ".join(f"{name}: {dtype}" for name, dtype in others.items())
    if record.source is not None:
        made["source"] = dg.MetadataValue.path(record.source.uri)
    return made | {
        "dagster/uri": record.rows_uri,
        "output_bytes": sum(file.size for file in record.rows_files.values()),
    }


def rounded(value: _Value) -> _Value:
    """Return a figure with 4 decimals, a small one with 4 digits, and none rounded to 1; others are unchanged."""
    if not isinstance(value, float):
        return value
    shown = round(value, 3 - math.floor(math.log10(abs(value))) if 0 < abs(value) < 0.1 else 4)
    return value if shown == 1 else shown
