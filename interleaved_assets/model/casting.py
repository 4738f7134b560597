"""Casts of columns, also nested ones.

Arrow's cast makes arrays of invalid length when a ``list<null>`` keeps its type: inside a struct whose other field
changes, or cast to itself (pyarrow 26). Columns inferred from JSON have such types, so casts to a type that contains a
null type are done level by level here; all other casts are Arrow's.
"""

from collections.abc import Sequence

import pyarrow as pa


def cast_column(column: pa.ChunkedArray, dtype: pa.DataType, *, safe: bool = True) -> pa.ChunkedArray:
    """``column`` cast to ``dtype``; the same object if it has that type already.

    Raises:
        pa.ArrowInvalid: ``safe`` is set and a value does not fit.
        pa.ArrowNotImplementedError: there is no cast between the types.
    """
    if column.type == dtype:
        return column
    if not _has_null_type(dtype):
        return column.cast(dtype, safe=safe)
    return pa.chunked_array([_cast(chunk, dtype, safe) for chunk in column.chunks], dtype)


def cast_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast ``table`` safely to ``schema``, which has the same columns in the same order."""
    columns = [cast_column(column, field.type) for column, field in zip(table.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def concat_unified(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate ``tables`` with the columns of all; each column gets a type that holds the values of all tables.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError: no type holds all types of a column.
    """
    schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    aligned = []
    for table in tables:
        present = dict(zip(table.column_names, table.columns, strict=True))
        columns = [
            cast_column(present[field.name], field.type)
            if field.name in present
            else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
            for field in schema
        ]
        aligned.append(pa.Table.from_arrays(columns, schema=schema))
    return pa.concat_tables(aligned)


def _has_null_type(dtype: pa.DataType) -> bool:
    if pa.types.is_null(dtype):
        return True
    return any(_has_null_type(dtype.field(index).type) for index in range(dtype.num_fields))


def _cast(array: pa.Array, dtype: pa.DataType, safe: bool) -> pa.Array:
    if array.type == dtype:
        return array
    if array.type.id != dtype.id:
        return array.cast(dtype, safe=safe)
    if pa.types.is_struct(dtype):
        return _cast_struct(array, dtype, safe)
    if pa.types.is_map(dtype):
        entries = pa.StructArray.from_arrays(
            [_cast(array.keys, dtype.key_type, safe), _cast(array.items, dtype.item_type, safe)],
            fields=[dtype.key_field, dtype.item_field],
        )
        return _with_values(array, dtype, entries)
    if pa.types.is_fixed_size_list(dtype) and array.type.list_size != dtype.list_size:
        return array.cast(dtype, safe=safe)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return _with_values(array, dtype, _cast(array.values, dtype.value_type, safe))
    return array.cast(dtype, safe=safe)


def _cast_struct(array: pa.StructArray, dtype: pa.StructType, safe: bool) -> pa.StructArray:
    names = [field.name for field in array.type]
    children = [
        _cast(array.field(field.name), field.type, safe) if field.name in names else pa.nulls(len(array), field.type)
        for field in dtype
    ]
    if not children:
        return array.cast(dtype, safe=safe)
    return pa.StructArray.from_arrays(children, fields=list(dtype), mask=array.is_null())


def _with_values(array: pa.Array, dtype: pa.DataType, values: pa.Array) -> pa.Array:
    """``array`` with its child values replaced; validity and offsets stay."""
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(dtype) else 2]
    return pa.Array.from_buffers(dtype, len(array), own, array.null_count, array.offset, [values])
