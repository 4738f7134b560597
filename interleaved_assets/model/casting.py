"""Casts of columns, also nested ones, and the plain types that columns get in this package.

Arrow's cast makes arrays of invalid length when a ``list<null>`` keeps its type: inside a struct whose other field
changes, or cast to itself (pyarrow 26). Columns inferred from JSON have such types, so casts to a type that contains a
null type are done level by level here. Casts of list views are done here too, because Arrow makes lists of them that
lack an offset. All other casts are Arrow's.

Dictionaries, runs and views are ways to store values. Arrow lacks kernels to take or filter most of them (pyarrow 26),
so columns of them become plain where a table enters the package.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PLAIN_TYPES: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def cast_column(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """Return ``column`` cast to ``dtype``; the same object if it has that type already.

    Raises:
        pa.ArrowInvalid: a value does not fit.
        pa.ArrowNotImplementedError: there is no cast between the types.
    """
    if column.type == dtype:
        return column
    if pa.types.is_dictionary(column.type) and column.type.value_type in _PLAIN_TYPES:
        # Arrow cannot decode dictionaries of views, which polars makes of categories
        plain = _PLAIN_TYPES[column.type.value_type]
        column = pa.chunked_array([chunk.dictionary.cast(plain).take(chunk.indices) for chunk in column.chunks], plain)
    if not any_type(dtype, pa.types.is_null) and not any_type(column.type, _is_view_or_runs):
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


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. Arrow's ``empty_table()`` refuses extension types in structs, lists and maps."""
    return pa.Table.from_arrays([pa.nulls(0, dtype) for dtype in schema.types], schema=schema)


def any_type(dtype: pa.DataType, matches: Callable[[pa.DataType], bool]) -> bool:
    """Return whether ``matches`` is true of ``dtype`` or of a type at any depth in it."""
    return matches(dtype) or any(any_type(inner, matches) for inner in _inner_types(dtype))


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
        cast_named(present[field.name], field)
        if field.name in present
        else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def cast_named(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Return ``column`` cast to the type of ``field``.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError: as :func:`cast_column`, with the column's name.
    """
    try:
        return cast_column(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowIndexError) as error:
        types = f"is {column.type} and cannot become {field.type}"
        # an index beyond the dictionary is damage as any other
        kind = pa.ArrowInvalid if isinstance(error, pa.ArrowIndexError) else type(error)
        raise kind(f"column {field.name!r} {types}: {error}") from error


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


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Return ``dtype`` without dictionaries, runs and views at any depth, also views of lists; extension types stay."""
    return mapped_type(dtype, _plain)


def _plain(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(dtype) or pa.types.is_run_end_encoded(dtype):
        return plain_type(dtype.value_type)
    if pa.types.is_list_view(dtype):
        return pa.list_(mapped_field(dtype.value_field, _plain))
    if pa.types.is_large_list_view(dtype):
        return pa.large_list(mapped_field(dtype.value_field, _plain))
    return _PLAIN_TYPES.get(dtype, dtype)


def may_share(dtype: pa.DataType) -> bool:
    """Return whether values of ``dtype`` may have bytes in common, so that they take more than is stored of them."""
    if isinstance(dtype, pa.BaseExtensionType):
        return may_share(dtype.storage_type)
    return pa.types.is_union(dtype) or plain_type(dtype) != dtype or any(map(may_share, _inner_types(dtype)))


def _inner_types(dtype: pa.DataType) -> list[pa.DataType]:
    return [dtype.field(index).type for index in range(dtype.num_fields)]


def _is_view_or_runs(dtype: pa.DataType) -> bool:
    return pa.types.is_list_view(dtype) or pa.types.is_large_list_view(dtype) or pa.types.is_run_end_encoded(dtype)


def _cast(array: pa.Array, dtype: pa.DataType) -> pa.Array:
    if array.type == dtype:
        return array
    if pa.types.is_run_end_encoded(array.type):
        return _cast(pc.run_end_decode(array), dtype)
    if _is_view_or_runs(array.type):
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
    return pa.StructArray.from_arrays(children, fields=list(dtype), mask=array.is_null())


def _with_values(array: pa.Array, dtype: pa.DataType, values: pa.Array) -> pa.Array:
    """Return ``array`` with its child values replaced; validity and offsets stay."""
    own = array.buffers()[: 1 if pa.types.is_fixed_size_list(dtype) else 2]
    return pa.Array.from_buffers(dtype, len(array), own, array.null_count, array.offset, [values])
