"""Positions after drops: gaps stay unless somebody closes them."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def reindex_positions(rows: pa.Table) -> pa.Table:
    """``rows`` with positions that count from 0 without gaps within each sample, in the order of the old ones.

    Rows of one sample that share a position share the new one. Metadata rows stay at -1; order and other columns stay.

    Args:
        rows: ``sample_id``, ``position``, ``modality`` and anything else.
    """
    samples = rows["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    old = rows["position"].to_numpy()
    content = np.flatnonzero(pc.not_equal(rows["modality"], "metadata").to_numpy())
    new = old.copy()
    order = content[np.lexsort((old[content], samples[content]))]
    if len(order):
        first = np.diff(samples[order], prepend=-1) != 0
        step = first | (np.diff(old[order], prepend=-1) != 0)
        counted = np.cumsum(step)
        # what the count was at the first row of each sample
        start = np.repeat(counted[first], np.diff(np.append(np.flatnonzero(first), len(order))))
        new[order] = counted - start
    place = rows.column_names.index("position")
    return rows.set_column(place, rows.schema.field(place), pa.array(new, pa.int32()))
