"""Rows in the one order that a tar has for them, without moving the bytes of images."""

import numpy as np
import pyarrow as pa

from interleaved_assets.io.batches import binary_views
from interleaved_assets.io.tar.exact import MODALITIES
from interleaved_assets.model.casting import take


def canonical_order(table: pa.Table) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Row numbers of ``table``: samples by their first row, metadata first, then by position, texts before images.

    Also the first row and the end of each sample in that order.
    """
    samples = table["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    modalities = np.array([MODALITIES[name] for name in table["modality"].to_pylist()], np.int8)
    order = np.lexsort((modalities, table["position"].to_numpy(), samples))
    borders = np.flatnonzero(np.diff(samples[order])) + 1
    return order, list(zip([0, *borders.tolist()], [*borders.tolist(), len(order)], strict=True)) if len(order) else []


def others_in_order(table: pa.Table, order: np.ndarray) -> pa.Table:
    """The rows in ``order``, without the column that would be costly to put in order."""
    others = table.drop_columns([name for name in ("binary_content",) if name in table.column_names])
    if (np.diff(order) == 1).all():
        return others
    rows = pa.array(order)
    arrays = [take(column.combine_chunks(), rows) for column in others.columns]
    return pa.Table.from_arrays(arrays, schema=others.schema)


def contents_in_order(table: pa.Table, order: np.ndarray) -> list[memoryview | None]:
    """The bytes of each row as a view, in ``order``."""
    if "binary_content" not in table.column_names:
        return [None] * len(order)
    views = binary_views(table["binary_content"])
    return [views[row] for row in order.tolist()]
