"""Cells that Python has no value for."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.model.cells import cell_values, row_values

FAR = pa.array([2**62, 5, None], pa.timestamp("us"))
SHOWN = [f"<value out of range: {2**62}>", datetime.datetime(1970, 1, 1, microsecond=5), None]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, None]), [1, None]),
        (FAR, SHOWN),
        (pa.chunked_array([FAR, FAR]).dictionary_encode(), SHOWN * 2),
        (pa.array([5], pa.timestamp("us", "Nowhere/None")), ["1970-01-01 00:00:00.000005Z"]),
        (pa.array([2**62], pa.duration("s")), [str(2**62)]),
        (pa.array([[2**62], None], pa.list_(pa.timestamp("us"))), [SHOWN[:1], None]),
        (pa.array([[(1, 2**62)]], pa.map_(pa.int64(), pa.timestamp("us"))), [[[("key", 1), ("value", SHOWN[0])]]]),
        (pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]), [[("a", 1), ("a", 2)]]),
    ],
    ids=lambda value: str(value.type) if hasattr(value, "type") else "",
)
def test_what_python_has_no_value_for_is_text(column: pa.Array, expected: list[Any]) -> None:
    assert cell_values(column) == expected


def test_rows_have_these_cells() -> None:
    assert row_values(pa.table({"far": FAR, "name": ["a", "b", "c"]})) == [
        {"far": far, "name": name} for far, name in zip(SHOWN, "abc", strict=True)
    ]
    assert row_values(pa.table({"name": pa.array([], pa.string())})) == []
