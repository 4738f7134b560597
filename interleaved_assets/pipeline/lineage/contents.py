"""Contents of the rows of a ledger: the text, the fields of a document, or the name of the image."""

import json
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.source import open_parquet
from interleaved_assets.io.rows.blocks import IMAGE_URL
from interleaved_assets.model.cells import row_values
from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.lineage.images import image_name
from interleaved_assets.pipeline.lineage.sample import groups_with
from interleaved_assets.pipeline.run.record import record_of
from interleaved_assets.pipeline.stages.dag import rows_input
from interleaved_assets.settings.shard_paths import ShardPaths

_READ: Final = frozenset({"sample_id", "position", "modality", "text_content", "source_ref"})


class RowKey(NamedTuple):
    """The key of a row within its shard."""

    sample_id: str
    position: int
    modality: str


def row_keys(table: pa.Table) -> list[RowKey]:
    """Return the keys of the rows of ``table``, such as a ledger."""
    return [RowKey(*key) for key in zip(*(table[name].to_pylist() for name in RowKey._fields), strict=True)]


def dropped_contents(ledger: pa.Table, paths: ShardPaths) -> dict[RowKey, str]:
    """Return the contents of dropped rows of one shard, from ledgers of any of its stages; no image is read.

    The content of a text is the text, that of a metadata row its fields as JSON, and that of an image its name (see
    :func:`.image_name`). Rows that no stored output has are left out, such as those that ``normalized`` dropped.
    """
    found: dict[RowKey, str] = {}
    for stage in pc.unique(ledger["stage"]).to_pylist():
        record = record_of(paths, stage)
        source = rows_input(record.inputs) if record else None
        if source is not None:
            keys = row_keys(ledger.filter(pc.equal(ledger["stage"], stage)))
            found |= row_contents(keys, paths.output(source), paths)
    return found


def row_contents(keys: Collection[RowKey], uri: str, paths: ShardPaths) -> dict[RowKey, str]:
    """Return the same for rows of the output at ``uri``; none if it was deleted. Raises as :func:`dropped_contents`."""
    wanted = set(keys)
    ids = {key.sample_id for key in wanted}
    if not ids:
        return {}
    found: dict[RowKey, str] = {}
    try:
        with open_parquet(uri, paths.options) as source:
            plain = [
                field.name
                for field in source.schema
                if field.name in _READ or not (field.name in RESERVED_COLUMNS or field.type.num_fields)
            ]
            for group in groups_with(ids, source):
                rows = source.read(plain, [group])
                rows = rows.filter(pc.is_in(rows["sample_id"], pa.array(ids)))
                found |= _contents(rows, wanted)
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return found


def _contents(rows: pa.Table, wanted: Collection[RowKey]) -> Iterable[tuple[RowKey, str]]:
    for key, row in zip(row_keys(rows), row_values(rows), strict=True):
        if key not in wanted:
            continue
        if row["text_content"] is not None:
            yield key, row["text_content"]
        elif key.modality == "metadata":
            fields = {name: value for name, value in row.items() if name not in RESERVED_COLUMNS and value is not None}
            yield key, json.dumps(fields, ensure_ascii=False, default=str)
        else:
            yield key, image_name(row["source_ref"], row.get(IMAGE_URL), row.get("page"))
