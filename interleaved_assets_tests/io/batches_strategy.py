"""Hypothesis strategies for valid batches: unusual ids, gaps, all passthrough types, values that JSON lacks."""

import datetime
import string
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from interleaved_assets.io.tar.tar_rows import UNREFERENCED_TYPE
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA

TEXT = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "null", "a\u2028b", "\0", "é\U0001f600", "NaN", '{"a":1}', "\ufeff", "x" * 300]),
)
SAMPLE_IDS = st.one_of(
    st.sampled_from(["", "a", "a.b", "a.c", "a/b", "a%2Eb", "ü%2E", "../a", "/a", "a~2", "__a__", ".", "é" * 60]),
    st.text(max_size=12),
)
ODD_NAMES = [
    "",
    "a.b",
    "Ünï",
    "url",
    "url2",
    "image_metadata",
    "texts",
    "images",
    "sample_id_",
    "position_",
    "position__",
]
ODD_NAMES += ["_interleaved", "_interleaved_", "_null_fields", "_empty_lists", "_list_length", "_unreferenced_members"]
NAMES = st.one_of(st.sampled_from(ODD_NAMES), st.text(string.ascii_letters + "_. é", max_size=5)).filter(
    lambda name: name not in INTERLEAVED_SCHEMA.names
)

_FLOATS = [0.0, -0.0, 1.5, 1e300, 5e-324, float("nan"), float("inf"), float("-inf")]
JSON_TEXTS = ["{}", "[]", "null", '"a"', "1", "1.0", "1e400", "NaN", "-0.0", '{"a":1}', '{"a": 1}', '{"a":1,"a":2}']
JSON_TEXTS += ['"\\ud800"', '"é"', '"\\u00e9"', "[1,2", "", '{"b":{"c":[null,true]}}', "18446744073709551616", "[" * 80]


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


def _scalars(arrays_only: bool) -> list[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    timestamps = st.integers(-(2**44), 2**44)
    found: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
        (pa.bool_(), st.booleans()),
        (pa.int64(), _integers(64, signed=True)),
        (pa.int8(), _integers(8, signed=True)),
        (pa.uint64(), _integers(64, signed=False)),
        (pa.float64(), st.one_of(st.sampled_from(_FLOATS), st.floats())),
        (pa.float32(), st.one_of(st.sampled_from([0.5, float("nan"), float("inf")]), st.floats(width=32))),
        (pa.float16(), st.sampled_from([0.5, -1.0])),
        (pa.string(), TEXT),
        (pa.large_string(), TEXT),
        (pa.binary(), st.binary(max_size=4)),
        (pa.large_binary(), st.binary(max_size=4)),
        (pa.binary(2), st.binary(min_size=2, max_size=2)),
        (pa.timestamp("us"), timestamps),
        (pa.timestamp("ms", "Europe/Berlin"), timestamps),
        (pa.duration("us"), timestamps),
        (pa.date32(), st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31))),
        (pa.time64("us"), st.times()),
        (pa.decimal128(9, 3), st.integers(-(10**8), 10**8).map(lambda value: Decimal(value).scaleb(-3))),
        (pa.null(), st.none()),
    ]
    if not arrays_only:
        found.append((pa.json_(pa.string()), st.sampled_from(JSON_TEXTS)))
    return found


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 0) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """An Arrow type and a strategy for its values, nulls among those inside it."""
    kind = draw(st.sampled_from(["scalar"] * 4 + ["list", "large_list", "fixed", "struct", "map"] * (depth < 2)))
    if kind == "scalar":
        return draw(st.sampled_from(_scalars(arrays_only=depth > 0)))
    dtype, values = draw(typed_values(depth + 1))
    items = st.one_of(st.none(), values)
    if kind == "list":
        return pa.list_(dtype), st.lists(items, max_size=3)
    if kind == "large_list":
        return pa.large_list(dtype), st.lists(items, max_size=3)
    if kind == "fixed":
        return pa.list_(dtype, 2), st.lists(items, min_size=2, max_size=2)
    if kind == "map":
        keys = st.lists(st.text(max_size=3), max_size=2, unique=True)
        pairs = keys.flatmap(lambda names: st.tuples(*(st.tuples(st.just(name), items) for name in names)))
        return pa.map_(pa.string(), dtype), pairs.map(list)
    other, other_values = draw(typed_values(depth + 1))
    names = draw(st.sampled_from([("a", "b"), ("b", "a"), ("", "x"), ("a.b", "width")]))
    pairs = st.tuples(items, st.one_of(st.none(), other_values))
    objects = pairs.map(lambda pair: dict(zip(names, pair, strict=True)))
    return pa.struct(list(zip(names, (dtype, other), strict=True))), objects


_MEMBER_NAMES = st.one_of(st.sampled_from(["a.txt", "a.json", "a.0.jpg", "x.tiff#frame=2", "a.b.c"]), TEXT, st.none())
_MEMBERS = st.fixed_dictionaries({"name": _MEMBER_NAMES, "content": st.one_of(st.none(), st.binary(max_size=4))})
_LISTS = st.one_of(NAMES, NAMES.map("image:{}".format), NAMES.map("text:{}".format))
_OWN_COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "_null_fields": (pa.list_(pa.string()), st.lists(st.one_of(NAMES, st.none()), max_size=3)),
    "_empty_lists": (pa.list_(pa.string()), st.lists(_LISTS, max_size=3)),
    "_list_length": (pa.int64(), st.integers(-1, 8)),
    "_unreferenced_members": (UNREFERENCED_TYPE, st.lists(st.one_of(st.none(), _MEMBERS), max_size=3)),
}


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of a few samples, in any order: with gaps, two modalities at a position, no bytes, no text, no metadata."""
    found: list[dict[str, Any]] = []
    positions = st.one_of(st.integers(0, 4), st.sampled_from([7, 2000, 2**31 - 1]))
    modalities = st.sampled_from(["text", "image", "table", "audio"])
    for sample_id in draw(st.lists(SAMPLE_IDS, min_size=1, max_size=3, unique=True)):
        content = draw(st.lists(st.tuples(positions, modalities), max_size=4, unique=True))
        keys = [(-1, "metadata")] * draw(st.sampled_from([1, 1, 1, 0])) + content
        for position, modality in keys or [(-1, "metadata")]:
            row: dict[str, Any] = {"sample_id": sample_id, "position": position, "modality": modality}
            row |= draw(_usual_cells(modality)) if draw(st.booleans()) else draw(_odd_cells())
            found.append(row)
    return draw(st.permutations(found)) if draw(st.booleans()) else found


def _usual_cells(modality: str) -> st.SearchStrategy[dict[str, Any]]:
    if modality == "text":
        return st.fixed_dictionaries({"content_type": st.just("text/plain"), "text_content": TEXT})
    if modality == "image":
        types = st.sampled_from(["image/jpeg", "image/png", "image/tiff", "image/webp"])
        return st.fixed_dictionaries({"content_type": types, "binary_content": st.binary(max_size=6)})
    if modality == "table":
        types = st.sampled_from(["text/markdown", "text/html"])
        return st.fixed_dictionaries({"content_type": types, "text_content": TEXT})
    if modality == "audio":
        return st.fixed_dictionaries({"content_type": st.just("audio/wav"), "binary_content": st.binary(max_size=6)})
    return st.just({"content_type": "application/json"})


def _odd_cells() -> st.SearchStrategy[dict[str, Any]]:
    types = st.sampled_from([None, "image/png", "image/x-unknown", "text/markdown", "", "application/json"])
    contents = st.one_of(st.none(), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0 jpeg"]))
    return st.fixed_dictionaries(
        {
            "content_type": types,
            "text_content": st.one_of(st.none(), TEXT),
            "binary_content": contents,
            "materialize_error": st.sampled_from([None, None, "missing_member: a.png is not in the tar", "odd"]),
        }
    )


@st.composite
def batches(draw: st.DrawFn) -> pa.Table:
    """A table of a valid batch: all types of columns, some reserved columns missing or large, columns in any order."""
    found = draw(rows())
    columns: dict[str, pa.Array] = {}
    for column in INTERLEAVED_SCHEMA:
        if column.nullable and draw(st.integers(0, 9)) == 0:
            continue
        is_large = pa.types.is_string(column.type) and draw(st.integers(0, 9)) == 0
        dtype = pa.large_string() if is_large else column.type
        columns[column.name] = pa.array([row.get(column.name) for row in found], dtype)
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        columns[name] = draw(_column(name, [row["modality"] for row in found]))
    names = list(columns)
    if draw(st.integers(0, 4)) == 0:
        names = draw(st.permutations(names))
    return pa.table({name: columns[name] for name in names})


@st.composite
def _column(draw: st.DrawFn, name: str, modalities: list[str]) -> pa.Array:
    if name in _OWN_COLUMNS and draw(st.booleans()):
        dtype, values = _OWN_COLUMNS[name]
    else:
        dtype, values = draw(typed_values())
    everywhere = {"metadata", "text", "image", "table", "audio"}
    where = draw(st.sampled_from([{"metadata"}, {"metadata"}, {"image"}, {"text"}, {"table"}, everywhere, set()]))
    cells = [draw(st.one_of(st.none(), values)) if modality in where else None for modality in modalities]
    array = pa.array(cells, dtype)
    return array.dictionary_encode() if dtype == pa.string() and draw(st.booleans()) else array
