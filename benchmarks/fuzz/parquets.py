"""Parquet files: damaged bytes, damaged footers, and columns of types and values that no shard of ours has."""

import io
import random
import struct
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

_NOT_UTF8: Final = (b"\xff", b"\xed\xa0\x80", b"a\xc3", b"\x80" * 50)


def sound_table(dice: random.Random) -> pa.Table:
    """A few samples with nested passthrough columns."""
    rows: list[dict[str, Any]] = []
    for number in range(dice.choice((1, 3, 3, 40))):
        image = {
            "modality": "image",
            "content_type": "image/png",
            "binary_content": dice.randbytes(dice.choice((0, 50, 3000))),
        }
        parts: list[dict[str, Any]] = [
            {"modality": "metadata"},
            {"modality": "text", "text_content": f"text {number} " * 9},
            image,
        ]
        rows += [{"sample_id": f"s{number}", "position": at - 1, **part} for at, part in enumerate(parts)]
    columns = {field.name: pa.array([row.get(field.name) for row in rows], field.type) for field in INTERLEAVED_SCHEMA}
    table = pa.table(columns, schema=INTERLEAVED_SCHEMA)
    count = len(rows)
    extra = {
        "words": pa.array([["x", None, f"y{at}"] if at % 3 else None for at in range(count)]),
        "tags": pa.array([[("k", "v"), ("j", None)]] * count, pa.map_(pa.string(), pa.string())),
        "place": pa.array([{"a": at, "b": {"c": [1.5, None]}} if at % 2 else None for at in range(count)]),
        "number": pa.array([at * 7 - 3 for at in range(count)], pa.int64()),
        "kind": pa.array([f"k{at % 2}" for at in range(count)]),
    }
    for name in dice.sample(sorted(extra), dice.randint(0, 5)):
        table = table.append_column(name, extra[name])
    return table


def foreign_bytes(dice: random.Random, table: pa.Table, *, checksums: bool) -> bytes:
    """``table`` as another writer would write it, with any of pyarrow's options."""
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression=dice.choice(("none", "snappy", "zstd", "gzip", "lz4", "brotli")),
        use_dictionary=dice.choice((True, False)),
        data_page_version=dice.choice(("1.0", "2.0")),
        version=dice.choice(("1.0", "2.4", "2.6")),
        row_group_size=dice.choice((2, 7, 1000)),
        data_page_size=dice.choice((64, 4096, 2**20)),
        write_page_index=dice.random() < 0.5,
        write_page_checksum=checksums,
        store_schema=dice.random() < 0.7,
    )
    return sink.getvalue()


def footer_start(content: bytes) -> int:
    """Offset of the footer in the bytes of a Parquet file."""
    return len(content) - 8 - int(struct.unpack("<I", content[-8:-4])[0])


def column_ranges(content: bytes, column: str) -> list[tuple[int, int]]:
    """First offset and end of a top-level column's pages, in each row group of a sound file."""
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    found = []
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if chunk.path_in_schema.split(".")[0] == column:
                first = chunk.dictionary_page_offset or chunk.data_page_offset
                found.append((first, first + chunk.total_compressed_size))
    return found


def odd_table(dice: random.Random) -> pa.Table:
    """A table of the row model with odd types, values, names or keys."""
    table = sound_table(dice)
    for _ in range(dice.choice((1, 1, 2, 3))):
        table = dice.choice((_odd_reserved, _odd_strings, _odd_passthrough, _odd_passthrough, _odd_names, _odd_keys))(
            dice, table
        )
    return table


def _replaced(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = table.column_names.index(name)
    return table.set_column(at, pa.field(name, values.type), values)


def _odd_strings(dice: random.Random, table: pa.Table) -> pa.Table:
    """Strings that are no UTF-8, in one column."""
    name = dice.choice([field.name for field in table.schema if pa.types.is_string(field.type)] or ["sample_id"])
    values = [dice.choice(_NOT_UTF8) if dice.random() < 0.3 else b"a%d" % at for at in range(table.num_rows)]
    array = pa.array(values, pa.binary())
    if name not in table.column_names:
        return table
    return _replaced(table, name, pa.Array.from_buffers(pa.string(), len(values), array.buffers()))


def _odd_reserved(dice: random.Random, table: pa.Table) -> pa.Table:
    """A reserved column of another type, with nulls, or absent."""
    count = table.num_rows
    name = dice.choice([name for name in INTERLEAVED_SCHEMA.names if name in table.column_names])
    kind = dice.random()
    if kind < 0.15:
        return table.remove_column(table.column_names.index(name))  # a name may come twice
    if kind < 0.3:
        return _replaced(table, name, pa.nulls(count, table.column(table.column_names.index(name)).type))
    odd = (
        pa.array([dice.choice((-2, -1, 0, 0, 5, 2**31 - 1, 2**31, 2**40, -(2**63))) for _ in range(count)], pa.int64()),
        pa.array([dice.choice((0.0, 1.5, float("nan"), 1e300)) for _ in range(count)]),
        pa.array([["x"]] * count),
        pa.array([b"bytes"] * count),
        pa.array([dice.choice(("text", "image", "metadata", "table", "", "\0", "IMAGE")) for _ in range(count)]),
        pa.array([dice.choice(("a", "a", "b", None)) for _ in range(count)]).dictionary_encode(),
        pa.array(["v"] * count, pa.string_view()),
        pa.array([b"v"] * count, pa.binary_view()),
        pa.array(["L"] * count, pa.large_string()),
        pa.array([True] * count),
        pa.array([b"0123"] * count, pa.binary(4)),
        pa.array(['{"path":"a.tar","byte_offset":-5}'] * count),
    )
    return _replaced(table, name, dice.choice(odd))


def _odd_passthrough(dice: random.Random, table: pa.Table) -> pa.Table:
    """A passthrough column of one of Arrow's rarer types, at the edges of its range."""
    count = table.num_rows
    deep: Any = pa.int8()
    for _ in range(dice.choice((5, 30, 90, 120))):
        deep = pa.struct([("a", deep)]) if dice.random() < 0.5 else pa.list_(deep)
    zone = timezone(timedelta(hours=14))
    odd = (
        pa.array([dice.choice((0, 2**31 - 1, -5, 86_400_000)) for _ in range(count)], pa.int32()).cast(
            pa.time32("ms"), safe=False
        ),
        pa.array([dice.choice((0, 2**63 - 1, -1, 86_400 * 10**9)) for _ in range(count)], pa.int64()).cast(
            pa.time64("ns")
        ),
        pa.array([dice.choice((-(2**63), 2**63 - 1, 0)) for _ in range(count)], pa.int64()).cast(
            pa.timestamp("us", "Europe/Berlin")
        ),
        pa.array([dice.choice((-(2**31), 2**31 - 1, 0)) for _ in range(count)], pa.int32()).cast(pa.date32()),
        pa.array([2**63 - 1] * count, pa.int64()).cast(pa.duration("ms")),
        pa.array([Decimal("9" * 38), *[None] * (count - 1)], pa.decimal128(38, 0)),
        pa.array([Decimal("-1e-70")] * count, pa.decimal256(76, 70)),
        pa.array([dice.choice((float("nan"), float("inf"), -0.0, 5e-324)) for _ in range(count)]),
        pa.array([2**64 - 1] * count, pa.uint64()),
        pa.array(["w" * dice.choice((0, 12, 13, 5000)) for _ in range(count)], pa.string_view()),
        pa.array([b"\xff"] * count, pa.binary_view()),
        pa.array([date(1, 1, 1), *[None] * (count - 1)]),
        pa.array([datetime.max.replace(tzinfo=zone), *[None] * (count - 1)], pa.timestamp("us", "+14:00")),
        pa.array([time.max] * count),
        pa.array([[1, 2]] * count, pa.list_(pa.int8(), 2)),
        pa.nulls(count),
        pa.nulls(count, deep),
        pa.array([[("k", 1), ("k", 2)]] * count, pa.map_(pa.string(), pa.int8())),
        pa.array([f"d{at % 3}" for at in range(count)]).dictionary_encode(),
        pa.array(["one long value " * 5000] * count).dictionary_encode(),
        pa.array([1.5] * count, pa.float16()),
        pa.array([{}] * count, pa.struct([])),
        pa.array([{"x": {"y": [{"z": None}]}}] * count),
    )
    name = dice.choice(("extra", "extra2", "texts", "images", "_interleaved", "_src_path", "", "score_error"))
    while name in table.column_names:
        name += "x"
    return table.append_column(name, dice.choice(odd))


def _odd_names(dice: random.Random, table: pa.Table) -> pa.Table:
    """A column renamed to a name that is taken, empty or hard to write."""
    names = list(table.column_names)
    names[dice.randrange(len(names))] = dice.choice(
        (*names, "", "\0", "a.b", "A" * 5000, "SAMPLE_ID", "\U0001f600", "a\nb")
    )
    return table.rename_columns(names)


def _odd_keys(dice: random.Random, table: pa.Table) -> pa.Table:
    """Repeated, shuffled or very long sample ids."""
    if "sample_id" not in table.column_names:
        return table
    if dice.random() < 0.3:
        order = list(range(table.num_rows))
        dice.shuffle(order)
        return table.take(order)
    ids = ("a", "A", "", "a/b", "../a", "a.b", "%", "x" * 300_000, "ü" * 300_000, "a\0b", "s1", "\n", ".", "a~2")
    return _replaced(table, "sample_id", pa.array([dice.choice(ids) for _ in range(table.num_rows)]))
