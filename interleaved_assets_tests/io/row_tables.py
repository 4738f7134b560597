"""Small tables of the row model for the tests of reading and writing."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from interleaved_assets.model.schema import INTERLEAVED_SCHEMA


def rows_table(rows: Sequence[Mapping[str, object]], **passthrough: pa.Array) -> pa.Table:
    """A table with all reserved columns from rows that give some of them; ``position`` and ``modality`` by default."""
    columns = {
        name: pa.array([row.get(name) for row in rows], INTERLEAVED_SCHEMA.field(name).type)
        for name in INTERLEAVED_SCHEMA.names
    }
    columns["modality"] = pa.array([row.get("modality", "image") for row in rows], pa.string())
    columns["position"] = pa.array([row.get("position", number) for number, row in enumerate(rows)], pa.int32())
    table = pa.table(columns, schema=INTERLEAVED_SCHEMA)
    for name, values in passthrough.items():
        table = table.append_column(name, values)
    return table


def sample(sample_id: str, *images: bytes | None, text: str = "some words") -> list[dict[str, object]]:
    """Rows of one sample: metadata, then a text and an image in turn."""
    rows: list[dict[str, object]] = [{"sample_id": sample_id, "position": -1, "modality": "metadata"}]
    for data in images:
        rows.append({"modality": "text", "text_content": text})
        rows.append({"modality": "image", "content_type": "image/png", "binary_content": data})
    return [{"sample_id": sample_id, "position": number - 1, **row} for number, row in enumerate(rows)]


def image_bytes(seed: int, size: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)
