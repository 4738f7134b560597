import numpy as np
import pyarrow as pa
import pytest

from interleaved_assets.pipeline.run.counts import column_facts, extents, unexplained
from interleaved_assets.pipeline.run.record import Extent


def test_column_types_and_required_columns() -> None:
    schema = pa.schema([pa.field("b", pa.int32(), nullable=False), pa.field("a", pa.list_(pa.string()))])
    facts = column_facts(schema)
    assert list(facts["columns"].items()) == [("b", "int32"), ("a", "list<item: string>")]
    assert facts["required"] == ("b",)


@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32(), pa.float16()])
def test_ranges_of_numbers(dtype: pa.DataType) -> None:
    values = pa.array([np.float16(2), None, np.float16("nan"), np.float16(-1), np.float16("inf")], pa.float16())
    table = pa.table({"position": [0, 1, 2, 3, 4], "x": values.cast(dtype), "text": ["a"] * 5, "n": [5, 4, 3, 2, 1]})
    assert extents(table) == {
        "x": Extent(values=4, not_finite=2, low=-1.0, high=2.0),
        "n": Extent(values=5, low=1.0, high=5.0),
    }


def test_columns_without_a_finite_value() -> None:
    table = pa.table({"none": pa.array([None], pa.float64()), "nan": [float("nan")]})
    assert extents(table) == {"none": Extent(values=0), "nan": Extent(values=1, not_finite=1)}


def test_ranges_of_vectors_are_of_their_lengths() -> None:
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(np.array([3, 4, 9, 9, 0, 1], np.float16)), 2, mask=pa.array([False, True, False])
    )
    table = pa.table({"embedding": pa.chunked_array([vectors.slice(0, 1), vectors.slice(1)])})
    assert extents(table) == {"embedding": Extent(values=2, low=1.0, high=5.0)}
    assert extents(table.slice(0, 0))["embedding"] == Extent(values=0)


def test_rows_with_neither_score_nor_reason() -> None:
    table = pa.table(
        {
            "low": pa.array([1, None, None, None]),
            "high": pa.array([1, 2, None, None]),
            "sharpness": pa.array([1.0, 1.0, 1.0, None]),
            "error": pa.array([None, None, None, "undecodable_image: no"]),
        }
    )
    assert unexplained(table, "error", {"range": ["low", "high"], "sharpness": ["sharpness"]}) == 1
    assert unexplained(table, "error", {"low": ["low"], "high": ["high"]}) == 2  # rows, not cells
    assert unexplained(table.slice(0, 0), "error", {"low": ["low"]}) == 0
    assert unexplained(table, "error", {}) == 0
