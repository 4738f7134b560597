"""The JSON locator: building, parsing, and invalid locators."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.model.source_ref import SourceRef, build_source_ref, parse_source_ref, source_ref_array

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
numbers = st.none() | st.integers(0, 2**63 - 1)


@given(st.none() | texts, st.none() | texts, numbers, numbers, numbers, st.none() | texts)
def test_built_locators_parse_back(path, member, offset, size, frame, part) -> None:
    fields = (path, member, offset, size, frame, part)
    assert parse_source_ref(build_source_ref(*fields)) == fields


def test_locator_json_omits_only_a_missing_frame_index() -> None:
    assert json.loads(build_source_ref("/a.tar")) == {
        "path": "/a.tar",
        "member": None,
        "byte_offset": None,
        "byte_size": None,
    }
    assert build_source_ref("/ü.tar", "b.tiff", 1, 2, 3) == (
        '{"path": "/ü.tar", "member": "b.tiff", "byte_offset": 1, "byte_size": 2, "frame_index": 3}'
    )


def test_fields_are_read_by_name_as_in_a_mapping() -> None:
    ref = parse_source_ref(build_source_ref("/a.tar", "b.tiff", 1, 2, 3))
    assert (ref["path"], ref["frame_index"], ref.get("member"), ref.get("other", 5)) == ("/a.tar", 3, "b.tiff", 5)
    fields = {"path": "/a.tar", "member": "b.tiff", "byte_offset": 1, "byte_size": 2, "frame_index": 3, "part": None}
    assert dict(ref) == fields
    assert dict(parse_source_ref(None)) == dict.fromkeys(SourceRef._fields)
    assert (ref[0], ref[4], ref.path) == ("/a.tar", 3, "/a.tar")
    with pytest.raises(KeyError, match="other"):
        ref["other"]


@pytest.mark.parametrize("value", [None, "", "{}", '{"unknown": 1}'])
def test_empty_locators_parse_to_no_path(value: str | None) -> None:
    assert parse_source_ref(value) == SourceRef()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{broken", "Expecting property name"),
        ('["a"]', "source_ref must be a JSON object, got '\\[\"a\"\\]'"),
        ('"text"', "must be a JSON object"),
        ('{"path": 1}', "field 'path' must be a string or null, got 1"),
        ('{"member": ["a"]}', "field 'member' must be a string or null"),
        ('{"path": "\\ud800"}', "field 'path' has half of a surrogate pair"),
        ('{"byte_offset": -1}', "field 'byte_offset' must be a whole number from 0 to"),
        ('{"byte_offset": true}', "field 'byte_offset' must be a whole number"),
        ('{"byte_size": 1.5}', "field 'byte_size' must be a whole number"),
        ('{"frame_index": "1"}', "field 'frame_index' must be a whole number"),
        (f'{{"byte_size": {2**63}}}', "field 'byte_size' must be a whole number"),
        ("[" * 100_000, "source_ref is nested too deeply"),
    ],
)
def test_invalid_locators_raise(value: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_source_ref(value)


@given(
    texts,
    st.lists(st.tuples(st.none() | texts, numbers, numbers, numbers), max_size=6),
    st.booleans(),
)
def test_locator_arrays_equal_single_locators(path: str, rows: list, with_frames: bool) -> None:
    members, offsets, sizes, frames = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    found = source_ref_array(path, members, offsets, sizes, frames if with_frames else None)
    assert found.type == pa.string()
    assert found.to_pylist() == [
        None if member is None else build_source_ref(path, member, offset, size, frame if with_frames else None)
        for member, offset, size, frame in rows
    ]


def test_a_locator_is_built_from_a_path_and_integers_of_numpy() -> None:
    built = build_source_ref(Path("/a.tar"), "m", np.int64(3), np.uint32(4), np.int8(0))
    assert parse_source_ref(built) == SourceRef("/a.tar", "m", 3, 4, 0)
