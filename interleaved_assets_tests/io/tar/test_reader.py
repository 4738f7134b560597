"""Reading tars: what a row is, what belongs to which sample, and that nothing is lost on the way."""

import gzip
import json
import logging
import tarfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from interleaved_assets.io.rows.fill import materialize
from interleaved_assets.io.storage import folders_of
from interleaved_assets.io.tar import reader as reader_module
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
from interleaved_assets.io.tar.writer import tar_shard
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.model.source_ref import parse_source_ref
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.tars import (
    Content,
    encoded,
    errors,
    frames_document,
    pack,
    picture,
    pixels,
    read,
    rows,
    tiff,
    write_tar,
)


def documents(tmp_path: Path, *bodies: Content) -> str:
    return write_tar(tmp_path / "a.tar", *((f"d{number}.json", body) for number, body in enumerate(bodies)))


def column(uri: str, name: str, **options: Any) -> tuple[str, list[Any]]:
    """Type of a passthrough column, and its values on the metadata rows."""
    table = read(uri, **options)
    values = [row[name] for row in table.to_pylist() if row["modality"] == "metadata"]
    return str(table.schema.field(name).type), values


# Rows


def test_the_rows_of_a_document(tmp_path: Path) -> None:
    png, jpeg = encoded(picture(1)), encoded(picture(2), "JPEG")
    uri = write_tar(
        tmp_path / "a.tar",
        ("doc.json", {"texts": ["one", None, "", None], "images": [None, "doc.1.png", None, "b.JPG"], "url": "u"}),
        ("doc.1.png", png),
        ("b.JPG", jpeg),
    )
    table = read(uri)
    assert InterleavedBatch(table).validate()
    assert table.schema.names == [*INTERLEAVED_SCHEMA.names, "url"]
    assert table.schema.field("binary_content").type == pa.large_binary()
    found = [tuple(row.values())[:6] for row in table.to_pylist()]
    assert found == [
        ("doc", -1, "metadata", "application/json", None, None),
        ("doc", 0, "text", "text/plain", "one", None),
        ("doc", 1, "image", "image/png", None, png),
        ("doc", 2, "text", "text/plain", "", None),
        ("doc", 3, "image", "image/jpeg", None, jpeg),
    ]
    assert table["materialize_error"].null_count == 5
    assert table["url"].to_pylist() == ["u", None, None, None, None]


def test_locators_name_the_member_and_its_bytes(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("d/x.json", frames_document("0.png", None, "page_0_image_1", "page_1_image_9")),
        ("d/0.png", b"png"),
        ("d/x.tif", tiff(picture(1), picture(2))),
    )
    data = Path(uri).read_bytes()
    refs = [parse_source_ref(row["source_ref"]) for row in rows(uri)]
    assert [(ref.path, ref.member, ref.frame_index) for ref in refs] == [
        (uri, "d/x.json", None),
        (uri, "d/0.png", None),
        (uri, "d/x.json", None),
        (uri, "d/x.tif", 0),
        (uri, "d/x.tif", 1),
    ]
    member = refs[1]
    assert data[member.byte_offset : member.byte_offset + member.byte_size] == b"png"  # type: ignore[operator]
    assert json.loads(data[refs[0].byte_offset :][: refs[0].byte_size])["images"][0] == "0.png"


def test_text_and_image_at_one_position_and_lists_of_different_length(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar", ("d.json", {"texts": ["a"], "images": ["p.png", None, "p.png"]}), ("p.png", b"x")
    )
    assert [(row["position"], row["modality"]) for row in rows(uri)] == [
        (-1, "metadata"),
        (0, "text"),
        (0, "image"),
        (2, "image"),
    ]
    bare = documents(tmp_path, {"texts": None}, {}, {"images": []})
    assert [row["modality"] for row in rows(bare)] == ["metadata"] * 3


def test_unknown_extensions_are_told_by_the_first_bytes(tmp_path: Path) -> None:
    names = ["a.bin", "b", "c.dat"]
    uri = write_tar(
        tmp_path / "a.tar",
        ("d.json", frames_document(*names)),
        ("a.bin", encoded(picture(1), "WEBP")),
        ("b", encoded(picture(1))),
        ("c.dat", b"?"),
    )
    assert [row["content_type"] for row in rows(uri)][1:] == ["image/webp", "image/png", None]


# Samples


def test_ids_are_paths_or_a_field(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("a/doc.v2.json", {"id": "first"}),
        ("b/doc.v2.json", {"id": 7}),
        ("./c.json", {"id": ["no id"]}),
        ("d.json", {}),
    )
    assert [row["sample_id"] for row in rows(uri)] == ["a/doc.v2", "b/doc.v2", "c", "d"]
    named = rows(uri, layout=ShardLayout(sample_id_field="id"))
    assert [row["sample_id"] for row in named] == ["first", "7", "c", "d"]
    assert [row["id"] for row in named] == ['"first"', "7", '["no id"]', None]


def test_repeated_ids_stay_apart_and_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = documents(
        tmp_path, *({"id": name, "texts": [str(n)]} for n, name in enumerate(["a", "a", "a~2", "a", "a~2"]))
    )
    notes: Counter[str] = Counter()
    found = rows(uri, layout=ShardLayout(sample_id_field="id"), notes=notes)
    ids = [row["sample_id"] for row in found if row["modality"] == "metadata"]
    assert ids == ["a", "a~3", "a~2", "a~4", "a~2~2"]
    assert notes["repeated_sample_ids"] == 3
    assert "repeated_sample_ids (3): samples have the id of an earlier one" in caplog.text
    assert [row["id"] for row in found if row["modality"] == "metadata"] == ["a", "a", "a~2", "a", "a~2"]


def test_a_member_name_that_comes_twice_loses_nothing(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("a.json", frames_document("a.png", n=1)),
        ("a.png", b"first"),
        ("a.json", frames_document("a.png", n=2)),
        ("a.png", b"second"),
        ("b.json", frames_document("b.png")),
        ("b.png", b"old"),
        ("b.png", b"new"),
    )
    notes: Counter[str] = Counter()
    found = rows(uri, notes=notes)
    images = {row["sample_id"]: row["binary_content"] for row in found if row["modality"] == "image"}
    assert images == {"a": b"first", "a~2": b"second", "b": b"new"}
    assert found[4]["_unreferenced_members"] == [{"name": "b.png", "content": b"old"}]
    assert notes["repeated_members"] == 3


def test_folders_keep_equal_stems_and_members_apart(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("a/doc.json", frames_document("doc.png")),
        ("a/doc.png", b"of a"),
        ("b/doc.json", frames_document("doc.png")),
        ("b/doc.png", b"of b"),
    )
    found = rows(uri)
    assert [row["sample_id"] for row in found] == ["a/doc", "a/doc", "b/doc", "b/doc"]
    assert [row["binary_content"] for row in found[1::2]] == [b"of a", b"of b"]


def test_a_token_may_lead_up_from_the_folder_of_its_document(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("docs/b/doc.json", frames_document("../../img/1.png", "../1.png", "../../../up.png", "")),
        ("img/1.png", b"of img"),
        ("docs/1.png", b"of docs"),
    )
    found = [row for row in rows(uri) if row["modality"] == "image"]
    assert [row["binary_content"] for row in found] == [b"of img", b"of docs", None, None]
    assert [row["materialize_error"] for row in found][2:] == [
        "missing_member: ../../../up.png is not in the tar",
        "missing_member: a token without a name is not in the tar",
    ]


def test_frames_are_found_whatever_the_case_of_the_ending(tmp_path: Path) -> None:
    for ending in ("tiff", "TIFF", "Tiff", "tif", "TIF", "Tif"):
        uri = write_tar(
            tmp_path / f"{ending}.tar",
            ("x.json", frames_document("page_0_image_1")),
            (f"x.{ending}", tiff(picture(1), picture(2))),
        )
        assert pixels(rows(uri)[1]["binary_content"]) == picture(1).tobytes(), ending


APPLE_DOUBLE = b"\0\5\x16\7\0\2\0\0Mac OS X        " + bytes(30)


def test_what_macos_packs_beside_a_file_is_no_sample(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("./d/._a.json", APPLE_DOUBLE + b"1"),
        ("./d/a.json", frames_document("a.png")),
        ("./d/._a.png", APPLE_DOUBLE + b"2"),
        ("./d/a.png", b"png"),
        ("./d/._b.json", {"texts": ["a document that is called so"]}),
        ("._", b"short"),
    )
    found = rows(uri)
    assert [(row["sample_id"], row["binary_content"], row["materialize_error"]) for row in found] == [
        ("d/a", None, None),
        ("d/a", b"png", None),
        ("d/._b", None, None),
        ("d/._b", None, None),
        ("._", None, None),
    ]
    assert found[0]["_unreferenced_members"] == [
        {"name": "d/._a.json", "content": APPLE_DOUBLE + b"1"},
        {"name": "d/._a.png", "content": APPLE_DOUBLE + b"2"},
    ]
    with tar_shard(str(tmp_path / "b.tar")) as shard:
        shard.write(read(uri))
    assert [{**row, "source_ref": None} for row in rows(str(tmp_path / "b.tar"))] == [
        {**row, "source_ref": None} for row in found
    ]
    found = rows(uri, layout=ShardLayout(layout="images"))
    assert [(row["sample_id"], row["binary_content"]) for row in found if row["position"] == 0] == [("d/a", b"png")]
    assert {row["sample_id"] for row in found} == {"d/a", "d/._b.json", "._"}


def test_names_are_never_paths(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    uri = write_tar(
        tmp_path / "in" / "a.tar",
        ("/etc/x.json", frames_document("../secret.png", str(tmp_path / "secret.png"))),
        ("../y.json", frames_document("../y.png")),
        ("../y.png", b"in the tar"),
    )
    found = rows(uri)
    assert [row["binary_content"] for row in found] == [None, None, None, None, b"in the tar"]
    assert [row["sample_id"] for row in found][::3] == ["/etc/x", "../y"]


# What belongs to no row


def test_members_that_no_document_names_are_kept(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("a.json", frames_document("a.0.png")),
        ("a.0.png", b"0"),
        ("a.thumb.png", b"thumb"),
        ("a.b.json", {"texts": ["x"]}),
        ("a.b.txt", b"note"),
        ("c.jpg", b"jpg"),
        ("c.txt", b"caption"),
        ("README", b"read me"),
    )
    notes: Counter[str] = Counter()
    kept = {
        row["sample_id"]: [tuple(member.values()) for member in row["_unreferenced_members"] or ()]
        for row in rows(uri, notes=notes)
        if row["modality"] == "metadata"
    }
    assert kept == {
        "a": [("a.thumb.png", b"thumb")],
        "a.b": [("a.b.txt", b"note")],
        "c": [("c.jpg", b"jpg"), ("c.txt", b"caption")],
        "README": [("README", b"read me")],
    }
    assert notes["unreferenced_members"] == 5
    assert rows(uri, materialize=False)[0]["_unreferenced_members"] == [{"name": "a.thumb.png", "content": b"thumb"}]


def test_frames_behind_the_last_token_are_kept(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("x.json", frames_document("page_0_image_1")),
        ("x.tiff", tiff(picture(1), picture(2), picture(3))),
        ("y.json", {"texts": ["no image"]}),
        ("y.tiff", tiff(picture(4))),
    )
    found = {row["sample_id"]: row["_unreferenced_members"] for row in rows(uri) if row["modality"] == "metadata"}
    assert [member["name"] for member in found["x"]] == ["x.tiff#frame=1", "x.tiff#frame=2"]
    assert [pixels(member["content"]) for member in found["x"]] == [picture(2).tobytes(), picture(3).tobytes()]
    assert found["y"] == [{"name": "y.tiff", "content": tiff(picture(4))}]


# Columns


def test_columns_are_the_union_over_the_whole_shard(tmp_path: Path) -> None:
    uri = documents(tmp_path, {"a": 1}, {"b": "x"}, {"c": True, "a": 2})
    table = read(uri)
    assert [(field.name, str(field.type)) for field in table.schema][8:] == [
        ("a", "int64"),
        ("b", "string"),
        ("c", "bool"),
    ]
    assert [table[name].to_pylist() for name in "abc"] == [[1, None, 2], [None, "x", None], [None, None, True]]
    batches = list(read_tar_shard(uri, max_batch_bytes=1))
    assert [batch.num_rows for batch in batches] == [1, 1, 1]
    assert {batch.schema for batch in batches} == {table.schema}
    assert pa.concat_tables(batches).drop_columns("source_ref") == table.drop_columns("source_ref")


JSON = "extension<arrow.json>"


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2.5], "double", [1.0, 2.5]),
        ([2**53 + 1, 2.5], JSON, ["9007199254740993", "2.5"]),
        ([2**63 - 1, -(2**63)], "int64", [2**63 - 1, -(2**63)]),
        ([2**63, 1], JSON, ["9223372036854775808", "1"]),
        ([1, "one"], JSON, ["1", '"one"']),
        ([1, True], JSON, ["1", "true"]),
        ([{"a": 1}, 5], JSON, ['{"a":1}', "5"]),
        ([{"a": 1}, {"a": 2}], "struct<a: int64>", [{"a": 1}, {"a": 2}]),
        (
            [{"a": 1, "b": None}, {"b": "x", "a": None}],
            "struct<a: int64, b: string>",
            [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        ),
        ([{"en": 0.9}, {"de": 0.8}], JSON, ['{"en":0.9}', '{"de":0.8}']),
        ([{"a": {"b": 1}}, {"a": {}}], JSON, ['{"a":{"b":1}}', '{"a":{}}']),
        ([{}, {}], JSON, ["{}", "{}"]),
        ([["a", None], []], "list<item: string>", [["a", None], []]),
        ([[1], ["a"]], JSON, ["[1]", '["a"]']),
        ([[[1], [2, 3]], [[]]], "list<item: list<item: int64>>", [[[1], [2, 3]], [[]]]),
        ([[{"a": 1}], [{"a": None}]], "list<item: struct<a: int64>>", [[{"a": 1}], [{"a": None}]]),
        ([[], []], "list<item: null>", [[], []]),
        (["ü", "\ud800"], JSON, ['"ü"', '"\\ud800"']),
        ([{"\ud800": 1}], JSON, ['{"\\ud800":1}']),
        ([{"": 1}], JSON, ['{"":1}']),
        ([float("nan"), 1], "double", [float("nan"), 1.0]),
        (["1.50", "x"], "string", ["1.50", "x"]),
    ],
)
def test_types_hold_every_value_as_it_is(tmp_path: Path, values: list[Any], dtype: str, expected: list[Any]) -> None:
    found, cells = column(documents(tmp_path, *({"key": value} for value in values)), "key")
    assert (found, repr(cells)) == (dtype, repr(expected))


def test_deep_values_are_json(tmp_path: Path) -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    assert column(documents(tmp_path, {"key": value}), "key") == (JSON, ["[" * 40 + "1" + "]" * 40])


def test_null_and_missing_are_told_apart(tmp_path: Path) -> None:
    uri = documents(tmp_path, {"a": None, "b": 1}, {"b": None}, {"a": "x", "b": 2})
    assert column(uri, "_null_fields") == ("list<item: string>", [["a"], ["b"], None])
    assert column(uri, "a") == ("string", [None, None, "x"])
    assert column(documents(tmp_path, {"a": None}), "a") == ("null", [None])
    assert "_null_fields" not in read(documents(tmp_path, {"a": 1}, {})).column_names


def test_fields_named_like_columns_of_ours(tmp_path: Path) -> None:
    body = {
        "position": 1,
        "position_": 2,
        "position__": 3,
        "sample_id": "elsewhere",
        "_null_fields": 4,
        "_interleaved": 5,
    }
    table = read(documents(tmp_path, {**body, "text_content": "x"}))
    names = ["position_", "position__", "position___", "_null_fields_", "_interleaved_", "text_content_", "sample_id_"]
    assert table.column_names[8:] == names
    assert [table[name][0].as_py() for name in names] == [1, 2, 3, 4, 5, "x", "elsewhere"]


def test_lists_per_image_and_per_text_are_spread(tmp_path: Path) -> None:
    layout = ShardLayout(per_image_fields=("alt", "image_metadata"), per_text_fields=("lang",))
    body = {"texts": ["a", None, None, "b"], "images": [None, "p.png", "p.png", None]}
    uri = write_tar(
        tmp_path / "a.tar",
        ("d.json", {**body, "alt": ["one", None], "lang": ["en", "de"], "image_metadata": [{"w": 1}, {"w": 2}]}),
        ("p.png", b"x"),
    )
    table = read(uri, layout=layout)
    assert table["alt"].to_pylist() == [None, None, "one", None, None]
    assert table["lang"].to_pylist() == [None, "en", None, None, "de"]
    assert table["image_metadata"].to_pylist() == [None, None, {"w": 1}, {"w": 2}, None]


def test_lists_of_another_length_stay_whole(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = write_tar(tmp_path / "a.tar", ("d.json", frames_document("p.png", image_metadata=[1, 2])), ("p.png", b"x"))
    assert read(uri)["image_metadata"].to_pylist() == [[1, 2], None]
    assert "uneven_lists (1): lists do not have one entry per image or text" in caplog.text


def test_empty_lists_are_told_apart_from_missing_ones(tmp_path: Path) -> None:
    uri = documents(tmp_path, {"texts": ["a"], "image_metadata": []}, {"texts": ["b"]})
    assert column(uri, "_empty_lists")[1] == [["image:image_metadata"], None]
    assert column(uri, "image_metadata") == ("null", [None, None])


def test_only_the_columns_asked_for(tmp_path: Path) -> None:
    uri = documents(tmp_path, {"a": 1, "b": None}, {"b": "x", "c": 2})
    table = read(uri, layout=ShardLayout(fields=("c", "missing", "a")))
    assert table.column_names[8:] == ["c", "missing", "a"]
    assert table["missing"].type == pa.null()
    assert read(uri, layout=ShardLayout(fields=())).column_names == INTERLEAVED_SCHEMA.names
    assert "_null_fields" in read(uri, layout=ShardLayout(fields=("b", "_null_fields"))).column_names


def test_wished_types_are_taken_where_nothing_is_lost(tmp_path: Path) -> None:
    uri = documents(tmp_path, {"n": 1, "m": 300, "s": {"a": 1}, "t": "x"})
    wished = {"n": pa.int8(), "m": pa.int8(), "s": pa.json_(), "t": pa.large_string(), "none": pa.int8()}
    reader = InterleavedWebdatasetReader(uri, schema_overrides=wished)
    with pytest.raises(ShardError, match="column 'm' is int64 and cannot become int8"):
        list(reader)
    uri_of_lists = write_tar(tmp_path / "b.tar", *((f"{n}.json", {"v": list(range(n))}) for n in (3, 2)))
    with pytest.raises(ShardError, match="column 'v' is list<item: int64> and cannot become fixed_size_list"):
        list(InterleavedWebdatasetReader(uri_of_lists, schema_overrides={"v": pa.list_(pa.int64(), 2)}))
    (batch,) = InterleavedWebdatasetReader(uri, schema_overrides=wished | {"m": pa.int16()})
    schema = batch.to_pyarrow().schema
    assert [str(schema.field(name).type) for name in "nmst"] == ["int8", "int16", JSON, "large_string"]


def test_documents_that_are_not_kept_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("a.json", {"texts": ["one", None], "images": [None, "a.png"], "image_metadata": [{"n": 1}], "url": "u"}),
        ("a.png", b"png"),
        ("b.json", b"{"),
        ("c.json", {"texts": ["two"], "images": []}),
        ("c.txt", b"named by no document"),
    )
    expected = rows(uri)
    stand_in(monkeypatch, reader_module, "KEPT_BYTES", 0)
    assert rows(uri) == expected
    assert [row["text_content"] for row in expected if row["modality"] == "text"] == ["one", "two"]


def test_other_field_names(tmp_path: Path) -> None:
    layout = ShardLayout(texts_field="paragraphs", images_field="figures", json_extensions=(".JSONX", ".meta"))
    body = {"paragraphs": ["p"], "figures": [None, "f.png"], "texts": "kept"}
    uri = write_tar(tmp_path / "a.tar", ("a.jsonx", body), ("f.png", b"x"), ("b.Meta", {}), ("c.json", b"{}"))
    found = rows(uri, layout=layout)
    assert [(row["sample_id"], row["modality"]) for row in found] == [
        ("a", "metadata"),
        ("a", "text"),
        ("a", "image"),
        ("b", "metadata"),
        ("c", "metadata"),
    ]
    assert found[0]["texts"] == "kept"
    assert found[4]["_unreferenced_members"] == [{"name": "c.json", "content": b"{}"}]


@pytest.mark.parametrize(
    "options",
    [
        {"texts_field": "x", "images_field": "x"},
        {"json_extensions": (".",)},
        {"json_extensions": ()},
        {"image_extensions": (1,)},
        {"image_extensions": "jpg"},
        {"fields": "url"},
        {"per_image_fields": ("a",), "per_text_fields": ("a",)},
    ],
)
def test_layouts_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        ShardLayout(**options)


# Bad input


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (b'{"texts": ["a", ', "invalid_json: Expecting value"),
        (b"[1, 2]", "invalid_json: a document is a JSON object, this is a list"),
        (b"\xff\xfe\xfa", "invalid_json: "),
        (b"", "invalid_json: Expecting value"),
        (b"[" * 100_000, "invalid_json: "),
        (b'{"n": ' + b"9" * 5000 + b"}", "invalid_json: "),
        (b'{"\\ud800": 1}', "invalid_json: field '\\ud800' has a name that is not Unicode"),
    ],
)
def test_broken_json_is_a_row_with_all_there_was(tmp_path: Path, content: bytes, detail: str) -> None:
    uri = write_tar(tmp_path / "a.tar", ("a.json", content), ("a.0.png", b"0"), ("b.json", {"texts": ["fine"]}))
    first, *others = rows(uri)
    assert (first["sample_id"], first["modality"], first["position"]) == ("a", "metadata", -1)
    assert first["materialize_error"].startswith(detail)
    kept = {member["name"]: member["content"] for member in first["_unreferenced_members"]}
    assert kept == {"a.json": content, "a.0.png": b"0"}
    assert [row["text_content"] for row in others] == [None, "fine"]
    assert [row["materialize_error"] for row in others] == [None, None]


def test_json_with_a_field_twice_is_an_error_that_keeps_the_rows(tmp_path: Path) -> None:
    uri = write_tar(tmp_path / "a.tar", ("a.json", b'{"url": 1, "texts": ["x"], "url": 2}'))
    found = rows(uri)
    assert found[0]["materialize_error"] == "invalid_json: field 'url' is there twice; the last one is taken"
    assert (found[0]["url"], found[1]["text_content"]) == (2, "x")


def test_entries_that_are_no_strings(tmp_path: Path) -> None:
    body = {"texts": ["a", 5, {"b": [1]}, None, "\ud83d"], "images": [None, None, None, 7, None, ["x"]]}
    found = rows(documents(tmp_path, body))[1:]
    assert [(row["text_content"], row["materialize_error"]) for row in found] == [
        ("a", None),
        ("5", "invalid_text: entry 1 is a int and not a string"),
        ('{"b":[1]}', "invalid_text: entry 2 is a dict and not a string"),
        (None, "invalid_token: 7 is no name of a member or a frame"),
        ('"\\ud83d"', "invalid_text: entry 4 is not Unicode"),
        (None, 'invalid_token: ["x"] is no name of a member or a frame'),
    ]
    assert [row["modality"] for row in found] == ["text", "text", "text", "image", "text", "image"]


def test_lists_that_are_none_stay_as_columns(tmp_path: Path) -> None:
    found = rows(documents(tmp_path, {"texts": "all of it", "images": {"0": "a.png"}}))
    assert [row["materialize_error"] for row in found] == ["invalid_text: texts is a str and not a list"]
    assert (found[0]["texts"], found[0]["images"]) == ("all of it", {"0": "a.png"})


def test_members_over_the_limit_are_errors(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("a.json", frames_document("a.png", "b.png")),
        ("a.png", bytes(2000)),
        ("b.png", bytes(100)),
        ("c.json", {"texts": ["x" * 2000]}),
        ("d.bin", bytes(2000)),
    )
    found = {(row["sample_id"], row["position"]): row["materialize_error"] for row in rows(uri, max_member_bytes=1000)}
    assert found == {
        ("a", -1): None,
        ("a", 0): "member_too_large: a.png: 2000 bytes, over 1000",
        ("a", 1): None,
        ("c", -1): "member_too_large: c.json: 2015 bytes, over 1000",
        ("d", -1): "member_too_large: d.bin: 2000 bytes, over 1000",
    }


def cut(data: bytes, name: str, extra: int) -> bytes:
    """``data`` up to so many bytes into the member ``name``."""
    at = data.index(name.encode() + b"\0") + 512
    return data[: at + extra]


SHARD = [
    ("a.json", frames_document("a.png")),
    ("a.png", bytes(600)),
    ("b.json", frames_document("b.0.png", "b.1.png", None)),
    ("b.0.png", b"0" * 600),
    ("b.1.png", b"1" * 600),
]


@pytest.mark.parametrize(
    ("member", "extra", "expected"),
    [
        ("b.1.png", 100, [None, None, None, None, "truncated_shard", None]),
        ("b.1.png", -100, [None, None, None, None, "truncated_shard", None]),
        ("b.1.png", -512, [None, None, None, None, "truncated_shard", None]),
        ("b.0.png", 100, [None, None, None, "truncated_shard", "truncated_shard", None]),
        ("b.json", 10, [None, None, "truncated_shard"]),
        ("b.json", -10, ["truncated_shard", None]),
        ("a.png", 100, [None, "truncated_shard"]),
    ],
)
def test_a_truncated_shard_is_sound_up_to_the_cut(
    tmp_path: Path, member: str, extra: int, expected: list[str | None]
) -> None:
    (tmp_path / "a.tar").write_bytes(cut(pack(SHARD), member, extra))
    found = errors(str(tmp_path / "a.tar"))
    assert [error and error.partition(":")[0] for error in found] == expected
    assert InterleavedBatch(read(str(tmp_path / "a.tar"))).validate()


def test_a_cut_member_without_a_document_is_not_blamed_on_the_sample_before(tmp_path: Path) -> None:
    data = pack([*SHARD, ("c.0.png", bytes(600)), ("c.json", frames_document("c.0.png"))])
    (tmp_path / "a.tar").write_bytes(cut(data, "c.0.png", 100))
    found = [(row["sample_id"], row["materialize_error"]) for row in rows(str(tmp_path / "a.tar"))]
    assert [sample for sample, error in found if error] == ["c"]
    assert found[-1][1].startswith("truncated_shard: the tar is cut at byte")


def test_a_container_that_is_cut_or_too_large(tmp_path: Path) -> None:
    container = tiff(picture(1), picture(2))
    data = pack([("x.json", frames_document("page_0_image_1")), ("x.tiff", container)])
    (tmp_path / "a.tar").write_bytes(cut(data, "x.tiff", 100))
    assert [error and error.partition(":")[0] for error in errors(str(tmp_path / "a.tar"))] == [None, "truncated_shard"]
    (tmp_path / "a.tar").write_bytes(data)
    assert errors(str(tmp_path / "a.tar"), max_member_bytes=len(container) - 1) == [
        None,
        f"member_too_large: x.tiff: {len(container)} bytes, over {len(container) - 1}",
    ]


def test_damaged_frames_that_no_document_names_are_counted(tmp_path: Path) -> None:
    container = tiff(picture(1), picture(2))
    # the width of the second frame gets a type that there is none of
    width = container.rindex(b"\x00\x01\x04\x00\x01\x00")
    broken = container[: width + 2] + b"\xff\xff" + container[width + 4 :]
    uri = write_tar(tmp_path / "a.tar", ("x.json", frames_document("page_0_image_1")), ("x.tiff", broken))
    notes: Counter[str] = Counter()
    assert errors(uri, notes=notes) == [None, None]
    assert notes["damaged_frames"] == 1


def test_truncated_gzip_is_read_up_to_the_cut(tmp_path: Path) -> None:
    packed = gzip.compress(pack([*SHARD[:4], ("b.1.png", b"".join(bytes([n % 251] * n) for n in range(600)))]))
    (tmp_path / "a.tar.gz").write_bytes(packed[:-400])
    codes = [error and error.partition(":")[0] for error in errors(str(tmp_path / "a.tar.gz"))]
    assert codes == [None, None, None, None, "truncated_shard", None]


def test_a_tar_without_samples_gives_one_batch_without_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = write_tar(tmp_path / "a.tar")
    assert list(read_tar_shard(uri)) == []
    (batch,) = InterleavedWebdatasetReader(uri, fields=["url"])
    assert batch.to_pyarrow().column_names == [*INTERLEAVED_SCHEMA.names, "url"]
    assert (batch.count(), batch.source_files) == (0, (uri,))
    assert "there is no sample in it" in caplog.text
    assert "is named url" not in caplog.text


def test_empty_tars_of_a_partition_make_no_batch_beside_rows(tmp_path: Path) -> None:
    empty = [write_tar(tmp_path / name) for name in ("a.tar", "c.tar")]
    full = write_tar(tmp_path / "b.tar", ("x.json", {"texts": ["t"], "images": [None]}))
    (batch,) = InterleavedWebdatasetReader(tmp_path, files_per_partition=3, max_batch_bytes=1)
    assert (batch.num_items, batch.source_files) == (1, (full,))
    (batch,) = InterleavedWebdatasetReader(empty, files_per_partition=2)
    assert (batch.num_items, batch.source_files) == (0, tuple(empty))


def test_names_in_options_that_no_document_has_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    document = {"texts": ["t"], "images": [None], "url": "u", "lang": None, "sample_id": 1, "scores": [0.5]}
    uri = write_tar(tmp_path / "a.tar", ("x.json", document))
    options = {"fields": ["url", "lang", "sample_id_", "_null_fields", "ulr"], "per_text_fields": ["scores", "scroes"]}
    reader = InterleavedWebdatasetReader(uri, **options, per_image_fields=["image_metadata", "alt"])
    (batch,) = reader
    assert batch.to_pyarrow()["ulr"].to_pylist() == [None, None]
    assert reader.notes["absent_fields"] == 3
    (warning,) = [record.getMessage() for record in caplog.records if "is named" in record.getMessage()]
    assert warning == (
        f"{uri}: no document or column is named alt, scroes, ulr; check fields, per_image_fields and per_text_fields. "
        "Known names: lang, sample_id_, scores, url"
    )
    caplog.clear()
    list(InterleavedWebdatasetReader(uri))
    assert caplog.text == ""


def test_lists_to_spread_are_kept_beside_the_fields(tmp_path: Path) -> None:
    document = {"texts": ["t", None], "images": [None, "x.png"], "url": "u", "lang": "en", "alt": ["a"], "score": [2]}
    uri = write_tar(tmp_path / "a.tar", ("x.json", {**document, "image_metadata": [{"a": 1}]}), ("x.png", b"png"))
    layout = ShardLayout(fields=["url"], per_image_fields=["alt", "image_metadata"], per_text_fields=["score"])
    found = read(uri, layout=layout)
    assert found.column_names == [*INTERLEAVED_SCHEMA.names, "url", "alt", "score"]
    assert found["alt"].to_pylist() == [None, None, "a"]
    assert found["score"].to_pylist() == [None, 2, None]


def test_extensions_may_lack_their_dot(tmp_path: Path) -> None:
    document = {"texts": [None, None], "images": ["other.PNG", "page_0_image_1"]}
    write_tar(tmp_path / "a.tar", ("x.json5", document), ("x.tiff", tiff(picture(1))))
    write_tar(tmp_path / "b.nottar", ("x.json", document))
    options = {"json_extensions": ["JSON5"], "image_extensions": ["png"], "file_extensions": ["tar"]}
    (batch,) = InterleavedWebdatasetReader(tmp_path, **options)
    errors = batch.to_pyarrow()["materialize_error"].to_pylist()
    assert [error and error.partition(":")[0] for error in errors] == [None, "missing_member", None]
    assert ShardLayout(image_extensions=["png", ".Jpg"]).image_extensions == (".png", ".jpg")


def test_what_is_no_tar_names_the_shard(tmp_path: Path) -> None:
    (tmp_path / "page.tar").write_bytes(b"<html>404</html>" * 100)
    with pytest.raises(ShardError, match=r"page\.tar is not a tar"):
        list(InterleavedWebdatasetReader(tmp_path / "page.tar"))
    with pytest.raises(StorageError, match=r"none\.tar"):
        list(read_tar_shard(str(tmp_path / "none.tar")))


# Lazy reading, compressed and remote tars


def lazy_and_fetched(uri: str, **options: Any) -> tuple[pa.Table, pa.Table]:
    (lazy,) = read_tar_shard(uri, materialize=False, **options)
    return lazy, materialize(lazy, allowed_roots=folders_of([uri]), **options)


MIXED = [
    ("x.json", frames_document("page_0_image_1", "x.png", "page_0_image_2", None)),
    ("x.png", encoded(picture(5))),
    ("x.tiff", tiff(picture(1), picture(2))),
]


def test_lazy_rows_have_locators_that_lead_to_the_same_bytes(tmp_path: Path) -> None:
    uri = write_tar(tmp_path / "a.tar", *MIXED)
    lazy, fetched = lazy_and_fetched(uri)
    assert lazy["binary_content"].null_count == lazy.num_rows
    assert fetched == read(uri)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "compressed-all-the-same.tar"])
def test_compressed_tars_have_locators_without_offsets(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(pack(MIXED)))
    uri = str(tmp_path / name)
    lazy, fetched = lazy_and_fetched(uri)
    refs = [parse_source_ref(row["source_ref"]) for row in lazy.to_pylist()]
    assert {(ref.byte_offset, ref.byte_size) for ref in refs} == {(None, None)}
    assert [ref.member for ref in refs] == ["x.json", "x.tiff", "x.png", "x.tiff", "x.json"]
    assert fetched == read(uri)
    plain = rows(write_tar(tmp_path / "plain" / "a.tar", *MIXED))
    assert [row["binary_content"] for row in fetched.to_pylist()] == [row["binary_content"] for row in plain]


@pytest.mark.parametrize("is_lazy", [False, True])
def test_remote_tars(tmp_path: Path, is_lazy: bool) -> None:
    uri = f"memory://{tmp_path.name}/a.tar"
    with fsspec.open(uri, "wb") as file:
        file.write(pack([*MIXED, ("x.extra", b"left over")]))
    lazy, fetched = lazy_and_fetched(uri)
    found = fetched if is_lazy else read(uri)
    local = read(write_tar(tmp_path / "a.tar", *MIXED, ("x.extra", b"left over")))
    assert found.drop_columns("source_ref") == local.drop_columns("source_ref")
    assert {parse_source_ref(row["source_ref"]).path for row in lazy.to_pylist()} == {uri}


def test_lazy_remote_reading_fetches_documents_only_and_says_what_it_did_not_check(tmp_path: Path) -> None:
    uri = f"memory://{tmp_path.name}/a.tar"
    with fsspec.open(uri, "wb") as file:
        file.write(pack(MIXED))
    notes: Counter[str] = Counter()
    list(read_tar_shard(uri, notes=notes))
    assert notes["unchecked_frames"] == 1
    assert "unchecked_frames" not in +_notes(write_tar(tmp_path / "a.tar", *MIXED))


def _notes(uri: str) -> Counter[str]:
    notes: Counter[str] = Counter()
    list(read_tar_shard(uri, notes=notes))
    return notes


def test_rows_without_bytes_are_fetched_from_the_locator_that_was_written(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "raw" / "a.tar", *MIXED)
    (lazy,) = read_tar_shard(source)
    with tar_shard(str(tmp_path / "thin" / "b.tar")) as shard:
        shard.write(lazy)
    thin = str(tmp_path / "thin" / "b.tar")
    assert rows(thin, materialize=False)[1]["source_ref"] == lazy["source_ref"][1].as_py()
    refused = rows(thin)
    assert refused[1]["materialize_error"].startswith(f"forbidden_path: {source} is not below")
    allowed = rows(thin, allowed_roots=[str(tmp_path)])
    assert [row["binary_content"] for row in allowed] == read(source)["binary_content"].to_pylist()


# Batches


def many(tmp_path: Path, name: str, samples: int = 10, prefix: str = "s", **fields: Any) -> str:
    members: list[tuple[str, Content]] = []
    for number in range(samples):
        members += [
            (f"{prefix}{number}.json", frames_document(f"{prefix}{number}.png", None, **fields)),
            (f"{prefix}{number}.png", bytes([number]) * 1000),
        ]
    return write_tar(tmp_path / name, *members)


def test_batches_are_bounded_and_samples_are_whole(tmp_path: Path) -> None:
    uri = many(tmp_path, "a.tar")
    for limit in (1, 5000, 10_000, None):
        batches = list(InterleavedWebdatasetReader(uri, max_batch_bytes=limit, materialize_on_read=True))
        tables = [batch.to_pyarrow() for batch in batches]
        assert pa.concat_tables(tables) == read(uri)
        assert all(batch.source_files == (uri,) for batch in batches)
        assert all(table.num_rows % 3 == 0 for table in tables)
        if limit == 10_000:
            assert 1 < len(tables) < 10
        if limit is not None:
            assert all(batch.num_items == 1 or batch.to_pyarrow().nbytes < 1.5 * limit for batch in batches)


def test_partitions_share_columns_and_never_merge_samples(tmp_path: Path) -> None:
    paths = [
        many(tmp_path, "a.tar", 2, label={"en": 1}),
        many(tmp_path, "b.tar", 2, label={"de": 1}),
        many(tmp_path, "c.tar", 2, "other", extra=[1]),
    ]
    batches = list(InterleavedWebdatasetReader(tmp_path, files_per_partition=3, materialize_on_read=True))
    assert [batch.source_files for batch in batches] == [(paths[0],), (paths[1], paths[2])]
    assert [batch.num_items for batch in batches] == [2, 4]
    schema = batches[0].to_pyarrow().schema
    assert batches[1].to_pyarrow().schema == schema
    assert (str(schema.field("label").type), str(schema.field("extra").type)) == (JSON, "list<item: int64>")
    alone = list(InterleavedWebdatasetReader(tmp_path))
    assert [str(batch.to_pyarrow().schema.field("label").type) for batch in alone[:2]] == [
        "struct<en: int64>",
        "struct<de: int64>",
    ]


def test_a_reader_takes_all_its_options(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("x.meta", {"words": ["w"], "pics": [None, "one"], "alt": ["a"], "lang": ["en"], "file": "y.tif", "id": "i"}),
        ("y.tif", tiff(picture(1))),
    )
    reader = InterleavedWebdatasetReader(
        [uri],
        sample_id_field="id",
        image_extensions=(".png",),
        json_extensions=(".meta",),
        texts_field="words",
        images_field="pics",
        image_member_field="file",
        per_image_fields=("alt",),
        per_text_fields=("lang",),
        materialize_on_read=True,
        fields=("lang", "alt"),
        schema_overrides={"alt": pa.large_string(), "lang": pa.string()},
        read_kwargs={"max_member_bytes": "1MiB"},
    )
    (batch,) = reader
    found = batch.to_pyarrow()
    assert found.schema.field("alt").type == pa.large_string()
    assert [(row["sample_id"], row["alt"], row["lang"]) for row in found.to_pylist()] == [
        ("i", None, None),
        ("i", None, "en"),
        ("i", "a", None),
    ]
    assert pixels(found["binary_content"][2].as_py()) == picture(1).tobytes()
    assert reader.notes["repeated_sample_ids"] == 0


@pytest.mark.parametrize(
    "options",
    [{"fields": ["position"]}, {"read_kwargs": {"colums": 1}}, {"json_extensions": [""]}, {"blocksize": "x"}],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        InterleavedWebdatasetReader("a.tar", **options)


def test_reading_is_lazy_by_default(tmp_path: Path) -> None:
    (batch,) = InterleavedWebdatasetReader(many(tmp_path, "a.tar", 1))
    assert batch.to_pyarrow()["binary_content"].null_count == 3


def test_hard_links_have_the_bytes_they_lead_to(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, content in (("a.png", b"png"), ("a.json", json.dumps(frames_document("a.png", "b.png")).encode())):
            path = tmp_path / name
            path.write_bytes(content)
            tar.add(path, name)
        link = tarfile.TarInfo("b.png")
        link.type, link.linkname = tarfile.LNKTYPE, "a.png"
        tar.addfile(link)
    assert [row["binary_content"] for row in rows(str(tmp_path / "a.tar"))] == [None, b"png", b"png"]


def test_notes_are_logged_once_per_kind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    uri = write_tar(tmp_path / "a.tar", *((f"{number}.bin", b"x") for number in range(20)))
    with caplog.at_level(logging.WARNING):
        read(uri)
    assert [record.message for record in caplog.records] == [
        f"{uri}: unreferenced_members (20): members or frames are named by no document, "
        "and are kept beside their sample"
    ]


def test_only_remote_tars_are_read_ahead_in_a_thread(tmp_path: Path) -> None:
    # rows of a tar are built in Python: a second thread would take turns with the caller's
    local = write_tar(tmp_path / "a.tar", ("x.json", {"texts": ["one"]}))
    remote = "memory://read-ahead/a.tar"
    fsspec.filesystem("memory").pipe(remote, Path(local).read_bytes())
    names = {}
    for uri in (local, remote):
        batches = iter(InterleavedWebdatasetReader(uri))
        next(batches)
        names[uri] = [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]
        assert list(batches) == []
    assert names == {local: [], remote: ["prefetch_0"]}
