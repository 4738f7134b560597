"""Canonical types, alignment, and the precedence of schemas."""

import pyarrow as pa
import pytest

from interleaved_assets.model.columns import RESERVED_COLUMNS
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets.model.schema import (
    INTERLEAVED_SCHEMA,
    align_or_reconcile,
    align_table,
    reconcile_schema,
    resolve_schema,
)


def test_row_model_has_its_columns_and_types() -> None:
    assert [(field.name, str(field.type), field.nullable) for field in INTERLEAVED_SCHEMA] == [
        ("sample_id", "string", False),
        ("position", "int32", False),
        ("modality", "string", False),
        ("content_type", "string", True),
        ("text_content", "string", True),
        ("binary_content", "large_binary", True),
        ("source_ref", "string", True),
        ("materialize_error", "string", True),
    ]
    assert len(RESERVED_COLUMNS) == 8


def test_reserved_columns_get_canonical_types_and_passthrough_columns_keep_theirs() -> None:
    inferred = pa.schema(
        [
            ("extra", pa.int16()),
            ("binary_content", pa.binary()),
            ("position", pa.int64()),
            ("modality", pa.dictionary(pa.int8(), pa.string())),
            ("kind", pa.dictionary(pa.int8(), pa.large_string())),
            ("materialize_error", pa.null()),
            ("nested", pa.list_(pa.struct([("a", pa.timestamp("s"))]))),
        ],
        metadata={"own": "kept"},
    )
    reconciled = reconcile_schema(inferred)
    assert reconciled.names == inferred.names
    assert [str(dtype) for dtype in reconciled.types] == [
        "int16",
        "large_binary",
        "int32",
        "string",
        "large_string",
        "string",
        "list<item: struct<a: timestamp[s]>>",
    ]
    assert not reconciled.field("position").nullable
    assert reconciled.metadata == {b"own": b"kept"}
    assert reconcile_schema(reconciled) == reconciled


def test_a_large_column_is_not_made_small() -> None:
    inferred = pa.schema([("text_content", pa.large_string()), ("extra", pa.large_string()), ("e", pa.large_binary())])
    assert reconcile_schema(inferred) == inferred


def test_alignment_fills_drops_orders_and_casts() -> None:
    table = pa.table({"b": [1, 2], "position": pa.array([3, 4], pa.int64()), "gone": ["x", "y"]})
    target = pa.schema([("position", pa.int32()), ("new", pa.list_(pa.int8())), ("b", pa.float64())])
    assert align_table(table, target) == pa.table(
        {"position": pa.array([3, 4], pa.int32()), "new": pa.nulls(2, pa.list_(pa.int8())), "b": [1.0, 2.0]},
        schema=target,
    )


@pytest.mark.parametrize(("name", "value", "dtype"), [("n", 300, pa.int8()), ("position", 2**32 + 5, pa.int32())])
def test_a_number_that_does_not_fit_its_type_is_refused(name: str, value: int, dtype: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match=f"column {name!r} is int64 and .* {value} not in range"):
        align_table(pa.table({name: [value]}), pa.schema([(name, dtype)]))


def test_bytes_that_are_not_utf8_do_not_become_a_string() -> None:
    with pytest.raises(pa.ArrowInvalid, match="Invalid UTF8"):
        align_or_reconcile(pa.table({"sample_id": pa.array([b"\xff"])}), None)


def test_align_table_returns_exactly_the_target_schema() -> None:
    # not reconciled again: whoever passes a schema may want a reserved column otherwise
    target = pa.schema([("text_content", pa.large_string()), ("binary_content", pa.binary()), ("position", pa.int64())])
    table = pa.table({"text_content": ["a"], "binary_content": pa.array([b"b"], pa.large_binary()), "position": [1]})
    assert align_table(table, target).schema == target


@pytest.mark.parametrize("table", [pa.table({"position": [1, 2]}), pa.table({"sample_id": ["a", None]})])
def test_nulls_in_a_non_nullable_column_raise(table: pa.Table) -> None:
    with pytest.raises(ShardError, match=r"column 'sample_id' must not be null, but is null in [12] of 2 rows"):
        align_table(table, pa.schema([INTERLEAVED_SCHEMA.field("sample_id")]))


def test_without_a_target_a_table_is_reconciled() -> None:
    table = pa.table({"position": [1], "kind": pa.array(["x"]).dictionary_encode()})
    aligned = align_or_reconcile(table, None)
    assert [str(dtype) for dtype in aligned.schema.types] == ["int32", "string"]
    target = pa.schema([("kind", pa.string())])
    assert align_or_reconcile(table, target).schema == target


def test_schema_takes_precedence_over_overrides() -> None:
    schema = pa.schema([("a", pa.int8())])
    assert resolve_schema(None, None) is None
    assert resolve_schema(None, {}) is None
    assert resolve_schema(schema, None) is schema
    resolved = resolve_schema(None, {"text_content": pa.large_string(), "score": pa.float32()})
    assert resolved.names == [*INTERLEAVED_SCHEMA.names, "score"]
    assert resolved.field("text_content").type == pa.large_string()
    assert resolved.field("score").type == pa.float32()
    assert not resolved.field("sample_id").nullable
    with pytest.warns(UserWarning, match="schema_overrides is ignored because schema is given") as caught:
        assert resolve_schema(schema, {"b": pa.int8()}) is schema
    assert len(caught) == 1


def test_a_schema_that_would_leave_no_row_or_is_none_is_refused() -> None:
    with pytest.raises(OptionError, match="schema has no columns: no row would be left"):
        resolve_schema(pa.schema([]), None)
    with pytest.raises(OptionError, match=r"schema is a pyarrow\.Schema, got str"):
        resolve_schema("url", None)
    with pytest.raises(OptionError, match=r"the type of position is a pyarrow\.DataType, got 'int64'"):
        resolve_schema(None, {"position": "int64"})
    with pytest.raises(OptionError, match="types by the names of columns, got list"):
        resolve_schema(None, ["position"])
