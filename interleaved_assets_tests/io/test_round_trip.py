"""Every valid batch comes back from a tar, and from Parquet behind it, as it was."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings

from interleaved_assets.io.parquet_reader import read_parquet_shard
from interleaved_assets.io.parquet_writer import parquet_shard
from interleaved_assets.io.webdataset_reader import read_tar_shard
from interleaved_assets.io.webdataset_writer import tar_shard
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets_tests.io.batches_strategy import batches


def canonical(table: pa.Table) -> pa.Table:
    """Samples by their first row, metadata first, then by position, texts before images."""
    samples = table["sample_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    ranks = np.array([("metadata", "text", "image").index(name) for name in table["modality"].to_pylist()])
    return table.take(pa.array(np.lexsort((ranks, table["position"].to_numpy(), samples))))


def without_dictionaries(table: pa.Table) -> pa.Table:
    """Columns as they come back: how a column is encoded in memory is no part of its type."""
    encoded = (pa.types.is_dictionary(column.type) for column in table.columns)
    columns = [
        column.cast(column.type.value_type) if is_encoded else column
        for column, is_encoded in zip(table.columns, encoded, strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def cells(table: pa.Table) -> dict[str, str]:
    """Every cell as text that tells NaN, -0.0 and 0.0, 1 and True apart."""
    return {name: repr(table[name].to_pylist()) for name in table.column_names if name != "source_ref"}


def types(table: pa.Table) -> list[tuple[str, pa.DataType]]:
    return [(column.name, column.type) for column in table.schema]


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    # a reader gives all reserved columns, those that the batch did not have as well
    extra = [name for name in INTERLEAVED_SCHEMA.names if name not in expected.column_names]
    found = canonical(found.drop_columns([name for name in extra if name in found.column_names]))
    assert types(found) == types(expected)
    assert cells(found) == cells(expected)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches())
def test_batch_to_tar_to_batch_to_parquet_to_batch(table: pa.Table) -> None:
    assert InterleavedBatch(table).validate()
    expected = canonical(without_dictionaries(table))
    with tempfile.TemporaryDirectory() as folder:
        uri, parquet = str(Path(folder, "a.tar")), str(Path(folder, "a.parquet"))
        with tar_shard(uri) as shard:
            shard.write(table)
        (back,) = read_tar_shard(uri, materialize=True)
        assert back.schema.field("source_ref").type in (pa.string(), pa.large_string())
        assert_same(back, expected)
        with parquet_shard(parquet, back.schema) as shard:
            shard.write(back)
        (again,) = read_parquet_shard(parquet)
        assert_same(again, expected)
