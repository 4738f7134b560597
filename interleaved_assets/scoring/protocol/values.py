"""The type of values that filters compare with bounds, and access to columns of score tables of any origin."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from interleaved_assets.model.errors import OptionError

Values = NDArray[np.float64]


def score_column(scores: pa.Table, name: str, dtype: pa.DataType, table: str = "scores") -> pa.ChunkedArray:
    """Return the column ``name`` of ``scores`` as ``dtype``.

    Raises:
        OptionError: a value does not fit, or the types have no cast; the message calls the table ``table``.
    """
    column = scores[name]
    try:
        return column.cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise OptionError(f"{table}: column {name!r} is {column.type} and cannot become {dtype}: {error}") from error
