"""Writing tars: plain MINT-1T to any reader, the same bytes each time, nothing half written, nothing lost."""

import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import webdataset
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.io.parquet.reader import InterleavedParquetReader
from interleaved_assets.io.parquet.writer import InterleavedParquetWriter
from interleaved_assets.io.rows.fill import materialize
from interleaved_assets.io.tar.json_columns import JSON_TYPE
from interleaved_assets.io.tar.layout import ShardLayout, column_name, json_field, member_key
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
from interleaved_assets.io.tar.writer import InterleavedWebdatasetWriter, tar_shard
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.errors import (
    InterleavedError,
    MaterializeError,
    OptionError,
    StorageError,
    UnsupportedModality,
)
from interleaved_assets_tests.io.row_tables import rows_table, sample
from interleaved_assets_tests.io.tars import encoded, members_of, picture, pixels, read, rows, tiff, write_tar
from interleaved_assets_tests.s3 import S3Server

PNG = encoded(picture(1))


def write(uri: Path | str, *tables: pa.Table, **options: Any) -> str:
    with tar_shard(str(uri), **options) as shard:
        for table in tables:
            shard.write(table)
    assert shard.rows == sum(table.num_rows for table in tables)
    return str(uri)


def bodies(uri: str) -> dict[str, dict[str, Any]]:
    return {name: json.loads(data) for name, data in members_of(uri).items() if name.endswith(".json")}


def copied(uri: str, target: Path, **options: Any) -> str:
    """``uri`` read in batches and written again."""
    return write(target, *read_tar_shard(uri, materialize=True, **options))


# The form


def test_a_sample_is_a_json_and_its_images(tmp_path: Path) -> None:
    table = rows_table(
        [
            {"sample_id": "a/b.c", "position": -1, "modality": "metadata", "content_type": "application/json"},
            {
                "sample_id": "a/b.c",
                "position": 0,
                "modality": "text",
                "text_content": "é",
                "content_type": "text/plain",
            },
            {"sample_id": "a/b.c", "position": 2, "binary_content": PNG, "content_type": "image/png"},
            {"sample_id": "a/b.c", "position": 3, "binary_content": b"jpeg", "content_type": "image/jpeg"},
        ],
        url=pa.array(["u", None, None, None]),
    )
    members = members_of(write(tmp_path / "a.tar", table))
    assert list(members) == ["a%2Fb%2Ec.json", "a%2Fb%2Ec.2.png", "a%2Fb%2Ec.3.jpg"]
    assert json.loads(members["a%2Fb%2Ec.json"]) == {
        "sample_id": "a/b.c",
        "texts": ["é", None, None, None],
        "images": [None, None, "a%2Fb%2Ec.2.png", "a%2Fb%2Ec.3.jpg"],
        "url": "u",
    }
    assert members["a%2Fb%2Ec.2.png"] == PNG


def test_webdataset_reads_one_sample_per_key(tmp_path: Path) -> None:
    ids = ["a.b", "a.c", "a/b", "", ".", "ü%2E", "__x__", "a%2Eb", "long" * 60]
    table = pa.concat_tables([rows_table(sample(name, PNG, PNG, text=name)) for name in ids])
    uri = write(tmp_path / "a.tar", table)
    found = list(webdataset.WebDataset(uri, shardshuffle=False))
    assert [one["__key__"] for one in found] == [member_key(name) for name in ids]
    for name, one in zip(ids, found, strict=True):
        body = json.loads(one["json"])
        assert (body["sample_id"], body["texts"][0]) == (name, name)
        assert [one[token.partition(".")[2]] for token in body["images"] if token] == [PNG, PNG]


@given(st.lists(st.text(), min_size=2, max_size=5, unique=True))
def test_keys_are_injective_and_plain(ids: list[str]) -> None:
    keys = [member_key(name) for name in ids]
    assert len(set(keys)) == len(ids)
    assert all(key.isascii() and key and "." not in key and "/" not in key for key in keys)


@given(st.text(), st.text())
def test_column_names_are_injective_and_reversed(one: str, other: str) -> None:
    assert json_field(column_name(one)) == one
    assert (column_name(one) == column_name(other)) == (one == other)


@pytest.mark.parametrize("name", ["position", "position_", "position__", "_interleaved", "_null_fields_", "sample_id"])
def test_column_names_like_ours(name: str) -> None:
    assert column_name(name) == f"{name}_"
    assert json_field(f"{name}_") == name
    assert json_field("position") is None


def test_plain_readers_see_gaps_as_null_and_huge_positions_cost_nothing(tmp_path: Path) -> None:
    table = rows_table(
        [
            {"sample_id": "a", "position": 1, "modality": "text", "text_content": "x"},
            {"sample_id": "b", "position": 2**31 - 1, "modality": "text", "text_content": "y"},
            {"sample_id": "b", "position": 5, "binary_content": PNG, "content_type": "image/png"},
        ]
    )
    uri = write(tmp_path / "a.tar", table)
    first, second = bodies(uri).values()
    assert first["texts"] == [None, "x"]
    assert (second["texts"], second["images"]) == ([None, "y"], ["b.5.png", None])
    assert sorted((row["sample_id"], row["position"]) for row in rows(uri)) == [("a", 1), ("b", 5), ("b", 2**31 - 1)]


def test_image_types_become_extensions(tmp_path: Path) -> None:
    contents = [(None, PNG), ("image/x-odd", PNG), ("image/x-odd", b"?"), (None, b"?"), ("image/tiff", b"?"), ("", b"")]
    table = rows_table(
        [{"sample_id": "a", "content_type": mime, "binary_content": data} for mime, data in contents],
    )
    uri = write(tmp_path / "a.tar", table)
    assert list(members_of(uri))[1:] == ["a.0.png", "a.1.png", "a.2.bin", "a.3.bin", "a.4.tiff", "a.5.bin"]
    assert [(row["content_type"], row["binary_content"]) for row in rows(uri)] == contents


def test_columns_on_image_rows_are_plain_lists(tmp_path: Path) -> None:
    table = rows_table(
        [*sample("a", PNG, PNG), *sample("b", PNG)],
        sharpness=pa.array([None, None, 1.5, None, None, None, None, 2.5]),
        image_metadata=pa.array([None, None, {"w": 1}, None, {"w": 2}, None, None, None]),
        words=pa.array([None, 2, None, 2, None, None, 2, None]),
    )
    uri = write(tmp_path / "a.tar", table)
    first, second = bodies(uri).values()
    assert (first["sharpness"], first["words"], first["image_metadata"]) == ([1.5, None], [2, 2], [{"w": 1}, {"w": 2}])
    assert first["_interleaved"]["per_image"] == ["sharpness", "image_metadata"]
    assert second["sharpness"] == [2.5]
    found = read(uri)
    assert [found[name].to_pylist() for name in ("sharpness", "image_metadata", "words")] == [
        table[name].to_pylist() for name in ("sharpness", "image_metadata", "words")
    ]


def test_plain_documents_have_nothing_of_ours(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "in.tar",
        ("a.json", {"texts": ["x", None], "images": [None, "a.1.png"], "url": "u", "image_metadata": [{"w": 1}]}),
        ("a.1.png", PNG),
        ("b.json", {"texts": ["y"], "images": [None], "url": "v"}),
    )
    written = copied(uri, tmp_path / "out.tar")
    assert [list(body) for body in bodies(written).values()] == [
        ["sample_id", "texts", "images", "url", "image_metadata"],
        ["sample_id", "texts", "images", "url"],
    ]


def test_only_the_first_document_says_what_does_not_show(tmp_path: Path) -> None:
    table = rows_table(
        [
            {"sample_id": name, "position": -1, "modality": "metadata", "content_type": "application/json"}
            for name in "abc"
        ]
    )
    table = table.append_column("small", pa.array([1, 2, None], pa.int8())).append_column(
        "none", pa.nulls(3, pa.date32())
    )
    with_exact = {name for name, body in bodies(write(tmp_path / "a.tar", table)).items() if "_interleaved" in body}
    assert with_exact == {"a.json"}
    assert read(str(tmp_path / "a.tar")).schema.field("none").type == pa.date32()


def test_lists_of_one_length_are_such_again_unless_a_document_was_edited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    boxes = pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))
    table = rows_table([{"sample_id": name, "position": -1, "modality": "metadata"} for name in "ab"])
    written = write(tmp_path / "a.tar", table.append_column("box", boxes))
    assert read(written)["box"].combine_chunks() == boxes
    documents = bodies(written)
    documents["b.json"]["box"] = [5, 6, 7]
    found = read(write_tar(tmp_path / "b.tar", *documents.items()))["box"]
    assert found.type == JSON_TYPE
    assert found.to_pylist() == ["[1,2]", "[5,6,7]"]
    assert "the values of 1 columns do not fit the types that documents state" in caplog.text


@pytest.mark.parametrize("named", [["gone"], ["url"], ["note", "note"]])
def test_null_fields_that_are_no_columns_any_more_are_kept_as_they_are(tmp_path: Path, named: list[str]) -> None:
    # as after columns were left out, or filled in
    table = rows_table([{"sample_id": "a", "position": -1, "modality": "metadata"}])
    table = table.append_column("url", pa.array(["u"])).append_column("note", pa.array([None], pa.string()))
    found = read(write(tmp_path / "a.tar", table.append_column("_null_fields", pa.array([named]))))
    assert [found[name].to_pylist() for name in ("url", "note", "_null_fields")] == [["u"], [None], [named]]


def test_a_row_without_content_has_no_content_type_again(tmp_path: Path) -> None:
    rows_of = [{"sample_id": "a", "position": place, "modality": kind} for place, kind in enumerate(("text", "image"))]
    first = {"sample_id": "a", "position": -1, "modality": "metadata", "content_type": "application/json"}
    table = rows_table([first, *rows_of])
    found = read(write(tmp_path / "a.tar", table))
    assert found["modality"].to_pylist() == ["metadata", "text", "image"]
    assert found["content_type"].to_pylist() == ["application/json", None, None]


# What wild documents say


WILD: list[dict[str, Any]] = [
    {"url": "u", "null": None, "nested": {"a": [1, {"b": None}], "c": {}}, "mixed": 1, "big": 2**70, "f": 1e300},
    {"mixed": "one", "tags": [], "nested": {"a": 1}, "position": 3, "position_": 4, "sample_id": "mine", "url": None},
    {"mixed": {"a": [None]}, "tags": ["x", None], "text_content": "t", "_interleaved": {"theirs": True}, "big": 1},
    {
        "_null_fields": ["url"],
        "_unreferenced_members": 1,
        "content_type": None,
        "": 0,
        "ü": "\ud800",
        "image_metadata": [],
    },
    {"image_metadata": None, "f": -0.0, "int_as_float": 5},
    {"image_metadata": [], "int_as_float": 5.5, "deep": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]},
]


def test_every_json_value_of_wild_documents_survives(tmp_path: Path) -> None:
    documents = [{"texts": [str(n), None], "images": [None, f"{n}.png"], **body} for n, body in enumerate(WILD)]
    documents[4]["image_metadata"] = [None]
    documents[0]["image_metadata"] = [{"width": 8, "height": 6}]
    documents[3]["images"] = documents[5]["images"] = [None, None, None]
    documents[3]["texts"] = documents[5]["texts"] = ["x", "y", None]
    members: list[tuple[str, Any]] = []
    for number, body in enumerate(documents):
        members += [(f"{number}.json", body), (f"{number}.png", encoded(picture(number)))]
    uri = write_tar(tmp_path / "in.tar", *members)
    written = copied(uri, tmp_path / "out.tar")
    for body, found in zip(documents, bodies(written).values(), strict=True):
        exact = found.pop("_interleaved", None)
        assert found.pop("images") != body["images"] or not any(body["images"])
        if "sample_id" not in body:
            del found["sample_id"]
        else:
            assert exact["sample_id"] == "1"
        expected = {key: value for key, value in body.items() if key not in ("images", "_interleaved")}
        assert found == expected
    again = read(written).drop_columns("source_ref")
    assert again == read(uri).drop_columns("source_ref")
    assert members_of(copied(written, tmp_path / "again.tar")) == members_of(written)


def test_ids_that_had_to_change_keep_what_the_document_says(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "in.tar",
        *((f"{n}.json", {"sample_id": name, "texts": [str(n)]}) for n, name in enumerate(["a", "a", 5])),
    )
    written = copied(uri, tmp_path / "out.tar", layout=ShardLayout(sample_id_field="sample_id"))
    assert list(members_of(written)) == ["a.json", "a~2.json", "5.json"]
    assert [body["sample_id"] for body in bodies(written).values()] == ["a", "a", 5]
    for field in ("sample_id", None):
        found = read(written, layout=ShardLayout(sample_id_field=field))
        assert found["sample_id"].to_pylist()[::2] == ["a", "a~2", "5"]


def test_unreferenced_members_are_written_beside_their_sample(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "in.tar",
        ("d/a.json", {"texts": [None], "images": ["page_0_image_1"]}),
        ("d/a.tiff", tiff(picture(1), picture(2))),
        ("d/a.txt", b"note"),
        ("b.json", b"{broken"),
        ("c.jpg", b"no document"),
    )
    written = copied(uri, tmp_path / "out.tar")
    members = members_of(written)
    assert list(members) == [
        *("d%2Fa.json", "d%2Fa.0.tiff", "d%2Fa.extra0.tiff", "d%2Fa.extra1.txt"),
        *("b.json", "b.extra0.bin"),
        *("c.json", "c.jpg"),
    ]
    assert pixels(members["d%2Fa.extra0.tiff"]) == picture(2).tobytes()
    assert members["b.extra0.bin"] == b"{broken"
    assert len({one["__key__"] for one in webdataset.WebDataset(written, shardshuffle=False)}) == 3
    assert read(written)["_unreferenced_members"] == read(uri)["_unreferenced_members"]
    # not in the JSON as well
    assert "rows" not in json.loads(members["c.json"]).get("_interleaved", {})


def test_member_names_differ_in_lower_case_and_are_none_of_webdatasets_own(tmp_path: Path) -> None:
    note_names = ["a.1.png", "a.1.PNG", "a.1.Png", "a.Note.txt", "a.note.TXT", "a.__key__", "a.__bad__", "a.x__"]
    uri = write_tar(
        tmp_path / "in.tar",
        ("a.json", {"texts": ["t", None], "images": [None, "a.1.PNG"]}),
        *((name, PNG if name == "a.1.PNG" else name.encode()) for name in note_names),
        ("A.json", {"texts": ["upper"], "images": [None]}),
        ("A.1.png", b"beside A"),
        ("__b.json", {"texts": ["b"], "images": [None]}),
        ("__b.x__", b"skipped by webdataset under this name"),
    )
    written = copied(uri, tmp_path / "out.tar")
    samples = list(webdataset.WebDataset(written, shardshuffle=False))
    assert [one["__key__"] for one in samples] == ["a", "A", "__b"]
    assert [{key for key in one if key[0] != "_"} for one in samples] == [
        {"json", "1.png", "note.txt", *(f"extra{number}.png" for number in (0, 1)), "extra3.txt"}
        | {f"extra{number}.bin" for number in (4, 5, 6)},
        {"json", "1.png"},
        {"json", "extra0.bin"},
    ]
    assert read(written)["_unreferenced_members"] == read(uri)["_unreferenced_members"]
    assert sum(len(found or ()) for found in read(uri)["_unreferenced_members"].to_pylist()) == 9


def test_json_columns_are_plain_json_unless_the_text_would_change(tmp_path: Path) -> None:
    texts = ['{"a":1}', '{"a": 1}', "1.0", "null", None, "[NaN]", '{"a":1,"a":2}', "no json", "[" * 50_000]
    rows_of = [{"sample_id": str(n), "position": -1, "modality": "metadata"} for n in range(len(texts))]
    uri = write(tmp_path / "a.tar", rows_table(rows_of, j=pa.array(texts, JSON_TYPE)))
    assert [body.get("j", "-") for body in bodies(uri).values()] == [{"a": 1}, "-", 1.0, *"------"]
    assert read(uri)["j"].to_pylist() == texts
    assert read(uri).schema.field("j").type == JSON_TYPE


def test_documents_are_strict_json(tmp_path: Path) -> None:
    table = rows_table(sample("a"), x=pa.array([float("nan")]), y=pa.array([[float("inf"), 1.0]]))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for data in members_of(write(tmp_path / "a.tar", table)).values():
        json.loads(data, parse_constant=refuse)


# Bytes


def test_bytes_depend_on_the_rows_alone(tmp_path: Path) -> None:
    table = pa.concat_tables([rows_table(sample(name, PNG, bytes(100_000), PNG)) for name in "abcd"])
    whole = Path(write(tmp_path / "a.tar", table)).read_bytes()
    shuffled = table.take(pa.array([*range(6, -1, -1), *range(7, 28)]))
    parts = [table.slice(0, 7), table.slice(7, 14), table.slice(21)]
    rechunked = pa.Table.from_batches(table.to_batches(max_chunksize=3))
    for name, tables in {"b": [shuffled], "c": parts, "d": [rechunked]}.items():
        assert Path(write(tmp_path / f"{name}.tar", *tables)).read_bytes() == whole
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert {(info.mtime, info.uid, info.gid, info.uname, info.mode) for info in tar} == {(0, 0, 0, "", 0o644)}
    assert len(whole) % 10240 == 0


def test_size_and_hash_are_those_of_the_file(tmp_path: Path) -> None:
    with tar_shard(str(tmp_path / "a.tar")) as shard:
        shard.write(rows_table(sample("a", PNG)))
        assert (shard.output.checksum, (tmp_path / "a.tar").exists()) == (None, False)
    content = (tmp_path / "a.tar").read_bytes()
    assert (shard.output.size, shard.output.checksum) == (len(content), xxhash.xxh3_128_hexdigest(content))
    with tar_shard(str(tmp_path / "b.tar")) as shard:
        pass
    assert (shard.output.size, list(read_tar_shard(str(tmp_path / "b.tar")))) == (10240, [])


@pytest.mark.parametrize("extension", ["tar.gz", "tgz"])
def test_compressed_tars(tmp_path: Path, extension: str) -> None:
    table = rows_table(sample("a", PNG))
    packed = Path(write(tmp_path / f"a.{extension}", table)).read_bytes()
    assert gzip.decompress(packed) == Path(write(tmp_path / "a.tar", table)).read_bytes()
    assert Path(write(tmp_path / f"b.{extension}", table)).read_bytes() == packed


def test_s3_in_both_directions(s3_server: S3Server, bucket: str, tmp_path: Path) -> None:
    table = pa.concat_tables([rows_table(sample(name, PNG, tiff(picture(2)))) for name in "abc"])
    local = write(tmp_path / "a.tar", table)
    options = {"storage_options": s3_server.storage_options}
    uri = write(f"{bucket}/a.tar", table, **options)
    assert s3_server.fs.cat(uri) == Path(local).read_bytes()
    eager = read(uri, **options)
    assert eager.drop_columns("source_ref") == read(local).drop_columns("source_ref")
    lazy = read(uri, materialize=False, **options)
    assert materialize(lazy, allowed_roots=[bucket], **options) == eager
    reader = InterleavedWebdatasetReader(f"{bucket}/*.tar", read_kwargs=options)
    writer = InterleavedWebdatasetWriter(f"{bucket}/out", **options)
    ((path,),) = [writer.write(batch) for batch in reader]
    assert s3_server.fs.cat(path) == Path(local).read_bytes()


def test_large_images_are_written_as_they_are(tmp_path: Path) -> None:
    images = [np.random.default_rng(seed).bytes(size) for seed, size in enumerate((65_536, 65_537, 3_000_000, 511, 0))]
    table = rows_table([{"sample_id": "a", "content_type": "image/png", "binary_content": data} for data in images])
    sliced = pa.concat_tables([table.slice(0, 2), table.slice(2, 2), table.slice(4)])
    for number, one in enumerate((table, sliced, pa.concat_tables([table.slice(3), table.slice(0, 3)]))):
        members = members_of(write(tmp_path / f"{number}.tar", one))
        assert [members[f"a.{position}.png"] for position in range(5)] == images


def test_nothing_is_left_of_a_tar_that_fails(tmp_path: Path) -> None:
    table = rows_table(sample("a", PNG))

    def fail_halfway() -> None:
        with tar_shard(str(tmp_path / "a.tar")) as shard:
            shard.write(table)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert list(tmp_path.iterdir()) == []


# What a tar has no place for


def test_other_modalities_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = rows_table([*sample("a", PNG), {"sample_id": "a", "position": 9, "modality": "video"}])
    with pytest.raises(ValueError, match="none for video") as caught:
        InterleavedWebdatasetWriter(tmp_path / "out").write(InterleavedBatch(table, ("shard-7.tar",)))
    assert isinstance(caught.value, UnsupportedModality)
    assert "shard-7.tar" in str(caught.value)
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnsupportedModality), tar_shard(str(tmp_path / "a.tar")) as shard:
        shard.write(table)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ([("a", 0, "image"), ("a", 0, "image")], "1 rows repeat the key"),
        ([("a", 0, "metadata")], "metadata rows, and only they, have position -1"),
        ([("a", -1, "image")], "metadata rows, and only they, have position -1"),
        ([("a", -2, "text")], "a position is below -1"),
        ([(None, 0, "image")], "sample_id"),
        ([("a", 0, None)], "modality"),
    ],
)
def test_rows_that_are_no_batch_are_refused(tmp_path: Path, keys: list[tuple[Any, ...]], problem: str) -> None:
    columns = zip(("sample_id", "position", "modality"), zip(*keys, strict=True), strict=True)
    with pytest.raises(InterleavedError, match=problem), tar_shard(str(tmp_path / "a.tar")) as shard:
        shard.write(pa.table({name: list(values) for name, values in columns}))
    assert list(tmp_path.iterdir()) == []


def test_a_sample_is_written_once(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="sample 'a' was written before"):
        write(tmp_path / "a.tar", rows_table(sample("a")), rows_table(sample("a")))
    assert list(tmp_path.iterdir()) == []


def test_all_tables_of_a_tar_have_the_same_columns(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="other columns than those before"):
        write(tmp_path / "a.tar", rows_table(sample("a")), rows_table(sample("b"), url=pa.array(["u"])))


# The writer of batches


def test_a_chain_without_anything_else(tmp_path: Path) -> None:
    source = write_tar(
        tmp_path / "in" / "shard.tar",
        ("x.json", {"texts": [None, "a", None], "images": ["page_0_image_1", None, "page_0_image_2"]}),
        ("x.tiff", tiff(picture(1), picture(2))),
    )
    paths = []
    writer = InterleavedWebdatasetWriter(str(tmp_path / "out"))
    for batch in InterleavedWebdatasetReader(source):
        table = batch.to_pyarrow()
        paths += writer.write(
            batch.delete_rows(pa.array([position == 0 for position in table["position"].to_pylist()]))
        )
    assert [Path(path).suffix for path in paths] == [".tar"]
    found = rows(paths[0])
    assert [(row["position"], row["modality"]) for row in found] == [(-1, "metadata"), (1, "text"), (2, "image")]
    assert pixels(found[2]["binary_content"]) == picture(2).tobytes()
    assert writer.ledger.num_rows == 0


def test_rows_of_a_sample_may_lie_apart(tmp_path: Path) -> None:
    table = rows_table([*sample("a", PNG), *sample("b", PNG)])
    apart = table.take(pa.array([0, 3, 1, 4, 2, 5]))
    (one,) = InterleavedWebdatasetWriter(tmp_path / "one").write(InterleavedBatch(apart))
    (other,) = InterleavedWebdatasetWriter(tmp_path / "other").write(InterleavedBatch(table))
    assert Path(one).read_bytes() == Path(other).read_bytes()


@pytest.mark.parametrize(("extension", "is_packed"), [("tar", False), ("tar.gz", True), ("wds", False)])
def test_the_extension_is_an_option(tmp_path: Path, extension: str, is_packed: bool) -> None:
    writer = InterleavedWebdatasetWriter(tmp_path, file_extension=extension)
    (path,) = writer.write(InterleavedBatch(rows_table(sample("a", PNG)), ("raw/s.tar",)))
    assert path.endswith(f".{extension}")
    assert (Path(path).read_bytes()[:2] == b"\x1f\x8b") == is_packed
    assert len(rows(path)) == 3


@pytest.mark.parametrize("extension", ["", ".tar", "a/b", "tar/../x"])
def test_extensions_that_are_none(tmp_path: Path, extension: str) -> None:
    with pytest.raises(OptionError, match="file_extension"):
        InterleavedWebdatasetWriter(tmp_path, file_extension=extension)


def test_errors_of_rows_are_settled_by_the_policy(tmp_path: Path) -> None:
    source = write_tar(
        tmp_path / "in.tar", ("a.json", {"texts": ["t"], "images": [None, "a.png", "gone.png"]}), ("a.png", PNG)
    )
    (batch,) = InterleavedWebdatasetReader(source)
    with pytest.raises(MaterializeError, match=r"gone\.png"):
        InterleavedWebdatasetWriter(tmp_path / "error").write(batch)
    assert not (tmp_path / "error").exists() or not list((tmp_path / "error").iterdir())
    writer = InterleavedWebdatasetWriter(tmp_path / "drop", on_materialize_error="drop_row")
    assert [row["position"] for row in rows(writer.write(batch)[0])] == [-1, 0, 1]
    assert writer.ledger["reason"].to_pylist() == ["missing_member"]
    (kept,) = InterleavedWebdatasetWriter(tmp_path / "warn", on_materialize_error="warn").write(batch)
    assert rows(kept)[3]["materialize_error"] == "missing_member: gone.png is not in the tar"
    # positions stay, whatever is missing
    assert bodies(kept)["a.json"]["images"] == [None, "a.1.png", None]


def test_a_file_that_is_there_is_not_replaced_unless_told(tmp_path: Path) -> None:
    batch = InterleavedBatch(rows_table(sample("a", PNG)))
    (path,) = InterleavedWebdatasetWriter(tmp_path).write(batch)
    with pytest.raises(StorageError, match="the file exists"):
        InterleavedWebdatasetWriter(tmp_path).write(batch)
    assert InterleavedWebdatasetWriter(tmp_path, mode="overwrite").write(batch) == [path]


def test_both_directions_with_parquet_between(tmp_path: Path) -> None:
    source = write_tar(
        tmp_path / "in.tar",
        *(
            (f"{n}.json", {"texts": [None], "images": [f"{n}.png"], "language": {lang: 0.5}})
            for n, lang in enumerate("abc")
        ),
        *((f"{n}.png", encoded(picture(n))) for n in range(3)),
    )
    (batch,) = InterleavedWebdatasetReader(source)
    (parquet,) = InterleavedParquetWriter(tmp_path / "p").write(batch)
    (back,) = InterleavedParquetReader(parquet)
    (path,) = InterleavedWebdatasetWriter(tmp_path / "t").write(back)
    assert [body["language"] for body in bodies(path).values()] == [{"a": 0.5}, {"b": 0.5}, {"c": 0.5}]
    assert read(path).drop_columns("source_ref") == read(source).drop_columns("source_ref")


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
FIELDS = st.one_of(
    st.sampled_from(["url", "sample_id", "position_", "image_metadata", "_null_fields"]), st.text(max_size=4)
).filter(lambda name: name not in ("texts", "images"))


@given(st.lists(st.dictionaries(FIELDS, VALUES, max_size=4), min_size=1, max_size=4))
def test_any_json_survives(wild: list[dict[str, Any]]) -> None:
    # lists that end in nulls keep their length, too
    documents = [{"texts": ["x", None], "images": [None, None], **body} for body in wild]
    with tempfile.TemporaryDirectory() as folder:
        uri = write_tar(Path(folder, "in.tar"), *((f"{n}.json", body) for n, body in enumerate(documents)))
        written = copied(uri, Path(folder, "out.tar"))
        for body, found in zip(documents, bodies(written).values(), strict=True):
            assert {name: found[name] for name in body} == body
        first, second = read(uri).drop_columns("source_ref"), read(written).drop_columns("source_ref")
        assert first.schema == second.schema
        assert repr(first.to_pylist()) == repr(second.to_pylist())


def test_members_reach_tarfile_in_a_stream(tmp_path: Path) -> None:
    uri = write(tmp_path / "a.tar", rows_table(sample("a", PNG, bytes(200_000))))
    with tarfile.open(fileobj=io.BytesIO(Path(uri).read_bytes()), mode="r|") as tar:
        assert [info.name for info in tar] == ["a.json", "a.1.png", "a.3.png"]
