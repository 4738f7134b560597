"""Casts of columns, also nested ones, and selection of rows from columns of any type.

Arrow's cast makes arrays of invalid length when a ``list<null>`` keeps its type: inside a struct whose other field
changes, or cast to itself (pyarrow 26). Columns inferred from JSON have such types, so casts to a type that contains a
null type are done level by level here. Casts of list views are done here too, because Arrow makes lists of them that
lack an offset. All other casts are Arrow's.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def cast_column(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """Return ``column`` cast to ``dtype``; the same object if it has that type already.

    Raises:
        pa.ArrowInvalid: a value does not fit.
        pa.ArrowNotImplementedError: there is no cast between the types.
    """
    if column.type == dtype:
        return column
    if pa.types.is_dictionary(column.type) and not has_kernels(column.type.value_type):
        # Arrow cannot decode dictionaries of views, which polars makes of categories
        plain = _without_views(column.type.value_type)
        column = pa.chunked_array([chunk.dictionary.cast(plain).take(chunk.indices) for chunk in column.chunks], plain)
    if not any_type(dtype, pa.types.is_null) and not any_type(column.type, _is_list_view):
        found = column.cast(dtype)
        if pa.types.is_temporal(column.type) and (pa.types.is_string(dtype) or pa.types.is_large_string(dtype)):
            _refuse_without_text(found)
        return found
    return pa.chunked_array([_cast(chunk, dtype) for chunk in column.chunks], dtype)


def _refuse_without_text(times: pa.ChunkedArray) -> None:
    """Raise ArrowInvalid for a time that Arrow has written as ``<value out of range: 123>``."""
    odd = times.filter(pc.starts_with(times, "<"))
    if len(odd):
        raise pa.ArrowInvalid(f"{odd[0].as_py()[1:-1]}, so the time has no text")


def _as_lists(array: pa.Array) -> pa.Array:
    """Convert an array of list views to one of lists."""
    dtype = array.type
    is_large = pa.types.is_large_list_view(dtype)
    is_valid = np.asarray(array.is_valid(), dtype=bool)
    sizes = np.where(is_valid, np.asarray(array.sizes, np.int64), 0)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int64() if is_large else pa.int32())
    kind, lists = (pa.LargeListArray, pa.large_list) if is_large else (pa.ListArray, pa.list_)
    return kind.from_arrays(offsets, array.flatten(), type=lists(dtype.value_field), mask=pa.array(~is_valid))


def take(array: pa.Array | pa.ChunkedArray, indices: pa.Array) -> pa.Array | pa.ChunkedArray:
    """Return ``array.take(indices)`` for every type; a null index gives a null."""
    dtype = array.type
    if pa.types.is_run_end_encoded(dtype):
        return pc.run_end_encode(pc.run_end_decode(array).take(indices), dtype.run_end_type)
    # Arrow has no kernels to take or filter views (pyarrow 26), which polars writes
    plain = _without_views(dtype)
    return array.take(indices) if plain == dtype else array.cast(plain).take(indices).cast(dtype)


def take_rows(table: pa.Table, indices: pa.Array) -> pa.Table:
    """Return ``table.take(indices)`` for columns of every type; ``indices`` has no nulls."""
    return pa.Table.from_arrays([take(column, indices) for column in table.columns], schema=table.schema)


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. Arrow's ``empty_table()`` refuses extension types in structs, lists and maps."""
    return pa.Table.from_arrays([pa.nulls(0, dtype) for dtype in schema.types], schema=schema)


def has_kernels(dtype: pa.DataType) -> bool:
    """Return whether Arrow can filter values of ``dtype``."""
    return not pa.types.is_run_end_encoded(dtype) and _without_views(dtype) == dtype


def any_type(dtype: pa.DataType, matches: Callable[[pa.DataType], bool]) -> bool:
    """Return whether ``matches`` is true of ``dtype`` or of a type at any depth in it."""
    return matches(dtype) or any(any_type(dtype.field(index).type, matches) for index in range(dtype.num_fields))


def concat_unified(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate ``tables`` with the columns of all; each column gets a type that holds the values of all tables.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError: no type holds all types of a column.
    """
    schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    return pa.concat_tables([with_columns(table, schema) for table in tables])


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return ``table`` with exactly the columns of ``schema``, cast safely; columns that it lacks are null.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: as :func:`cast_column`, with the column's name.
    """
    # a table may have ten thousand columns, and each access to column_names builds the whole list
    present = dict(zip(table.column_names, table.columns, strict=True))
    columns = [
        _cast_named(present[field.name], field)
        if field.name in present
        else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _cast_named(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return cast_column(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        types = f"is {column.type} and cannot become {field.type}"
        raise type(error)(f"column {field.name!r} {types}: {error}") from error


def mapped_type(dtype: pa.DataType, rule: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return ``rule`` of ``dtype``, after applying it to the types in it; types in list views are left to ``rule``."""
    if pa.types.is_struct(dtype):
        return rule(pa.struct([mapped_field(field, rule) for field in dtype]))
    if pa.types.is_map(dtype):
        return pa.map_(mapped_field(dtype.key_field, rule), mapped_field(dtype.item_field, rule), dtype.keys_sorted)
    if pa.types.is_fixed_size_list(dtype):
        return pa.list_(mapped_field(dtype.value_field, rule), dtype.list_size)
    if pa.types.is_large_list(dtype):
        return pa.large_list(mapped_field(dtype.value_field, rule))
    return pa.list_(mapped_field(dtype.value_field, rule)) if pa.types.is_list(dtype) else rule(dtype)


def mapped_field(field: pa.Field, rule: Callable[[pa.DataType], pa.DataType]) -> pa.Field:
    """Return ``field`` with the type of :func:`mapped_type`."""
    return field.with_type(mapped_type(field.type, rule))


def _without_views(dtype: pa.DataType) -> pa.DataType:
    return mapped_type(dtype, _plain)


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(dtype):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary_view(dtype) else dtype


def _is_list_view(dtype: pa.DataType) -> bool:
    return pa.types.is_list_view(dtype) or pa.types.is_large_list_view(dtype)


def _cast(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if array.type == dtype:
        return array
    if _is_list_view(array.type):
        return _cast(_as_lists(array), dtype)
    if array.type.id != dtype.id:
        return array.cast(dtype)
    if pa.types.is_struct(dtype):
        return _cast_struct(array, dtype)
    if pa.types.is_map(dtype):
        entries = pa.StructArray.from_arrays(
            [_cast(array.keys, dtype.key_type), _cast(array.items, dtype.item_type)],
            fields=[dtype.key_field, dtype.item_field],
        )
        return _with_values(array, dtype, entries)
    if pa.types.is_fixed_size_list(dtype) and array.type.list_size != dtype.list_size:
        return array.cast(dtype)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return _with_values(array, dtype, _cast(array.values, dtype.value_type))
    return array.cast(dtype)


def _cast_struct(array: pa.StructArray, dtype: pa.StructType) -> pa.StructArray:
    names = [field.name for field in array.type]
    children = [
        _cast(array.field(field.name), field.type) if field.name in names else pa.nulls(len(array), field.type)
        for field in dtype
    ]
    if not children:
        return array.cast(dtype)
    return pa.StructArray.from_arrays(children, fields=list(dtype), mask=array.is_null())


def _with_values(array: pa.Array, dtype: pa.DataType, values: pa.Array) -> pa.Array:
    """Return ``array`` with its child values replaced; validity and offsets stay."""
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(dtype) else 2]
    return pa.Array.from_buffers(dtype, len(array), own, array.null_count, array.offset, [values])
