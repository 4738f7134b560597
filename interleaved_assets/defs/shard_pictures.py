"""The entries of a shard in the UI besides its figures: pictures, dropped rows, and a page with more of them."""

import shlex

import dagster as dg

from interleaved_assets.defs.metadata import place_of
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.reporting.shard.stored_pictures import store_pictures
from interleaved_assets.settings import Settings


def shard_pictures(record: Record, settings: Settings) -> dict[str, dg.MetadataValue]:
    """Return the entries of a shard's page: its first dropped rows, its pictures as one entry, its page's place.

    Raises:
        InterleavedError: an output of the shard cannot be read, or the pictures cannot be written.
    """
    stored = store_pictures(record, settings)
    if stored is None:
        return {}
    metadata: dict[str, dg.MetadataValue] = {}
    if stored.drops:
        dropped = sum(record.dropped.values())
        command = f"interleaved drops --shard {shlex.quote(record.shard)}"
        metadata["dropped_rows"] = dg.MetadataValue.table([dg.TableRecord(row) for row in stored.drops])
        metadata["all_dropped_rows"] = dg.MetadataValue.text(
            f"{len(stored.drops)} of {dropped:,} shown. All: {command}"
        )
    if stored.report:
        metadata["pictures"] = dg.MetadataValue.md(stored.report)
    if stored.page:
        metadata["page"] = place_of(settings.storage.shard(record.shard).page(), settings)
    return metadata
