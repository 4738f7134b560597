"""What plain JSON cannot say comes back from ``_interleaved``, and damage to it is told."""

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.io.tar.exact import VERSION, Exact, is_exact, read_exact
from interleaved_assets_tests.io.tars import rows, write_tar

ROWS = pa.table(
    {
        "position": pa.array([-1, 0, 3], pa.int32()),
        "modality": ["metadata", "text", "image"],
        "when": pa.array([None, None, 5], pa.timestamp("us", "UTC")),
        "prices": pa.array([[1.5, float("nan")], None, []], pa.list_(pa.float32())),
    }
)
WHOLE = Exact(
    rows=ROWS,
    absent=frozenset({1, 2}),
    schema=ROWS.schema,
    sample_id="a/ü",
    per_image=("alt",),
    per_text=(),
    members={"a.extra0.bin": "../x"},
)


def damaged(**parts: Any) -> dict[str, Any]:
    said = WHOLE.to_json()
    assert said is not None
    return {**said, **parts}


def stream(table: pa.Table) -> str:
    said = Exact(rows=table).to_json()
    assert said is not None
    return said["rows"]


def test_all_parts_come_back_from_json() -> None:
    found = read_exact(json.loads(json.dumps(WHOLE.to_json())))
    assert found.rows is not None
    assert found.rows.schema == ROWS.schema
    assert repr(found.rows.to_pylist()) == repr(ROWS.to_pylist())
    assert found.schema == ROWS.schema
    assert (found.absent, found.sample_id, found.per_image, found.per_text) == ({1, 2}, "a/ü", ("alt",), ())
    assert found.members == {"a.extra0.bin": "../x"}


def test_nothing_to_say_is_no_field() -> None:
    assert Exact().to_json() is None
    assert Exact(per_image=()).to_json() == {"version": VERSION, "per_image": []}


def test_any_arrow_implementation_reads_the_rows() -> None:
    data = base64.b64decode(stream(ROWS))
    assert pa.ipc.open_stream(data).read_all()["when"].type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, {"version": "1"}, {"version": True}, {"rows": ""}])
def test_a_document_s_own_field_of_that_name_is_not_ours(value: Any) -> None:
    assert not is_exact(value)


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ({"version": 2}, "has version 2, and this release reads 1"),
        ({"rows": "no base64!"}, "is damaged"),
        ({"rows": ""}, "rows are no Arrow table"),
        ({"rows": base64.b64encode(b"\xff" * 40).decode()}, "rows are no Arrow table"),
        ({"rows": 5}, "rows must be a str"),
        ({"rows": stream(ROWS.slice(0, 0))}, "rows are empty"),
        ({"rows": stream(ROWS.drop_columns("position"))}, "have no position"),
        ({"rows": stream(ROWS.set_column(1, "modality", pa.array(["metadata", None, "image"])))}, "nulls in it"),
        ({"rows": stream(ROWS.set_column(1, "modality", pa.array(["metadata", "video", "image"])))}, "no place for"),
        (
            {"rows": stream(ROWS.set_column(1, "modality", pa.array(["metadata", "table", "image"]))), "absent": []},
            "absent lacks a row that no list can hold",
        ),
        ({"rows": stream(ROWS.set_column(0, "position", pa.array([1, 2, 3])))}, "column position with type int64"),
        ({"rows": stream(ROWS.append_column("when", ROWS["when"]))}, "two columns of one name"),
        ({"rows": stream(ROWS.append_column("text_content", ROWS["when"]))}, "column text_content with type timestamp"),
        ({"absent": [3]}, "absent names a row that is not there"),
        ({"absent": [-1]}, "absent must be a list of row numbers"),
        ({"absent": [True]}, "absent must be a list of row numbers"),
        ({"schema": "AAAA"}, "schema is no Arrow schema"),
        ({"schema": base64.b64encode(b"\x10\0\0\0" + 16 * b"\x07").decode()}, "schema is no Arrow schema"),
        ({"sample_id": 5}, "sample_id must be a str"),
        ({"sample_id": "\ud800"}, "sample_id is not Unicode"),
        ({"per_image": "alt"}, "per_image must be a list"),
        ({"per_image": [1]}, "per_image must be a list of names"),
        ({"members": {"a": 1}}, "members must be an object of names"),
        ({"members": {"a": "\ud800"}}, "members must be an object of names"),
    ],
)
def test_damage_is_told(parts: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_exact(damaged(**parts))


def test_a_corrupted_stream_never_leads_out_of_its_buffers() -> None:
    # any name of a time zone makes a type, though not all can be had as Python values
    data = bytearray(base64.b64decode(stream(ROWS.drop_columns("when"))))
    for at in range(0, len(data), 3):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        try:
            found = read_exact(damaged(rows=base64.b64encode(broken).decode(), absent=[]))
        except ValueError:
            continue
        assert found.rows is not None
        found.rows.to_pylist()


def test_a_document_with_damage_keeps_its_plain_rows(tmp_path: Path) -> None:
    bodies = {
        "a": {"texts": ["one"], "url": "u", "_interleaved": damaged(version=9)},
        "b": {"texts": ["two"], "_interleaved": damaged(rows="AAAA")},
        "c": {"texts": ["too", "many"], "_interleaved": damaged(absent=[])},
    }
    uri = write_tar(tmp_path / "a.tar", *((f"{key}.json", body) for key, body in bodies.items()))
    found = rows(uri)
    version, damage, misfit = [row["materialize_error"] for row in found if row["modality"] == "metadata"]
    assert version == "invalid_json: _interleaved has version 9, and this release reads 1"
    assert damage.startswith("invalid_json: _interleaved rows are no Arrow table: ")
    assert misfit == "invalid_json: _interleaved does not fit texts and images"
    assert [row["text_content"] for row in found if row["modality"] == "text"] == ["one", "two", "too", "many"]
    assert found[0]["_interleaved_"]["version"] == 9
