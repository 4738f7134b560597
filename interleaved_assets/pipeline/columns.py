"""What a record says of the columns of a table: their types, and how far the values of scores reach."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.pipeline.record import Extent

UNEXPLAINED: Final = "rows_without_score_or_reason"
_KEY_COLUMNS: Final = ("sample_id", "position")


def column_facts(schema: pa.Schema) -> dict[str, Any]:
    """``columns`` and ``required`` of :class:`~interleaved_assets.pipeline.record.Facts`, for a file of ``schema``."""
    return {
        "columns": {field.name: str(field.type) for field in schema},
        "required": tuple(field.name for field in schema if not field.nullable),
    }


def extents(scores: pa.Table) -> dict[str, Extent]:
    """How far each column of numbers reaches, the keys aside; of a column of vectors, how far their lengths do.

    Args:
        scores: columns of numbers and of fixed-size lists of them; others are passed over.
    """
    found: dict[str, Extent] = {}
    for field in scores.schema:
        if field.name in _KEY_COLUMNS:
            continue
        column = scores[field.name]
        if pa.types.is_integer(field.type) or pa.types.is_floating(field.type):
            found[field.name] = _extent(column.drop_null().cast(pa.float64(), safe=False).to_numpy())
        elif pa.types.is_fixed_size_list(field.type) and pa.types.is_floating(field.type.value_type):
            found[field.name] = _extent(_lengths(column, field.type.list_size))
    return found


def unexplained(scores: pa.Table, error_column: str, groups: Mapping[str, Sequence[str]]) -> int:
    """Rows that have no error, and all the same lack every column of one of the ``groups``, one group a scorer."""
    lacking = pa.chunked_array([pa.repeat(pa.scalar(False), scores.num_rows)])
    for columns in groups.values():
        empty = pa.chunked_array([pa.repeat(pa.scalar(True), scores.num_rows)])
        for name in columns:
            empty = pc.and_(empty, scores[name].is_null())
        lacking = pc.or_(lacking, empty)
    return int(pc.sum(pc.and_(lacking, scores[error_column].is_null()), min_count=0).as_py())


def _lengths(vectors: pa.ChunkedArray, width: int) -> np.ndarray:
    """Euclidean length of each vector that is not null, float32."""
    parts = [chunk.drop_null().flatten().to_numpy(zero_copy_only=False) for chunk in vectors.chunks]
    flat = np.concatenate(parts) if parts else np.zeros(0)
    return np.linalg.norm(flat.astype(np.float32).reshape(-1, width), axis=1)


def _extent(values: np.ndarray) -> Extent:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return Extent(values=len(values), not_finite=len(values))
    return Extent(
        values=len(values), not_finite=len(values) - len(finite), low=float(finite.min()), high=float(finite.max())
    )
