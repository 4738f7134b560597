"""Time and memory of reading a tar follow the limits; the writer refuses what would not be read."""

import base64
import io
import struct
import tarfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from interleaved_assets.io.archive.index import BLOCK, index_tar
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.estimates import parsed_bytes
from interleaved_assets.io.tar.exact import read_exact
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import InterleavedWebdatasetReader, read_tar_shard
from interleaved_assets.io.tar.references import plain_name
from interleaved_assets.io.tar.writer import tar_shard
from interleaved_assets.model.batch import InterleavedBatch
from interleaved_assets.model.casting import concat_unified
from interleaved_assets.model.errors import OptionError, ShardError
from interleaved_assets.model.schema import align_or_reconcile
from interleaved_assets_tests.io.tars import encoded, pack, picture, pixels, rows, tiff, write_tar

SECONDS = 5  # of CPU; each of these took 5 to 60


def header(name: bytes, size: int | bytes, kind: bytes = b"0") -> bytes:
    field = b"%011o\0" % size if isinstance(size, int) else size
    info = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.USTAR_FORMAT))
    info[124:136], info[156:157], info[148:156] = field, kind, b" " * 8
    info[148:156] = b"%06o\0 " % sum(info)
    return bytes(info)


@cache
def pax_record(record: bytes) -> bytes:
    length = len(record) + 2
    while length != len(record) + 2 + len(str(length)):
        length = len(record) + 2 + len(str(length))
    return b"%d %s\n" % (length, record)


def pax(*records: bytes, then: bytes) -> bytes:
    data = b"".join(map(pax_record, records))
    return header(b"pax", len(data), b"x") + data + bytes(-len(data) % BLOCK) + then


def codes(uri: str, **options: Any) -> list[str | None]:
    return [row["materialize_error"] and row["materialize_error"].partition(":")[0] for row in rows(uri, **options)]


# Time


def test_a_field_that_repeats_behind_many_others_is_found_at_once(tmp_path: Path) -> None:
    body = b"{" + b",".join(b'"k%d":1' % number for number in range(40_000)) + b',"k39999":2}'
    uri = write_tar(tmp_path / "a.tar", ("a.json", body))
    start = time.process_time()
    (row,) = rows(uri)
    assert time.process_time() - start < SECONDS
    assert row["materialize_error"].startswith("document_too_large: with its fields the shard would have more columns")
    assert row["_unreferenced_members"] == [{"name": "a.json", "content": body}]


@pytest.mark.parametrize("record", [b"a=1", b"path=x", b"GNU.sparse.map="], ids=["foreign", "path", "sparse"])
def test_pax_headers_of_a_megabyte_are_read_once(record: bytes) -> None:
    data = pax(*[record] * (2**20 // (len(record) + 5)), then=header(b"a.json", 0) + bytes(2 * BLOCK))
    start = time.process_time()
    if record.startswith(b"GNU"):
        with pytest.raises(ShardError, match=r"a\.tar: member 'a\.json' is stored sparse"):
            index_tar(lambda offset, size: data[offset : offset + size], len(data), "a.tar")
    else:
        index = index_tar(lambda offset, size: data[offset : offset + size], len(data), "a.tar")
        assert [member.name for member in index.members] == ["x" if record == b"path=x" else "a.json"]
    assert time.process_time() - start < SECONDS


@pytest.mark.system
def test_a_table_of_thousands_of_columns_is_written(tmp_path: Path) -> None:
    """The names of all columns were once gone through for each column."""
    uri = write_tar(tmp_path / "a.tar", ("a.json", {f"k{number}": 1 for number in range(9000)}))
    table = next(read_tar_shard(uri, limits=TarLimits(max_columns=10_000)))
    start = time.process_time()
    aligned = align_or_reconcile(table, None)
    assert InterleavedBatch(aligned).problems() == []
    assert concat_unified([aligned, aligned]).num_columns == table.num_columns
    assert time.process_time() - start < SECONDS  # 0.2 and not 30


@pytest.mark.parametrize("rest", [b"garbage", b"12", b"x y=z\n", b"0 a=b\n", b"3 a=b\n"])
def test_a_pax_header_is_read_up_to_the_first_record_that_is_none(rest: bytes) -> None:
    """Behind a sound record, one without a length was once read again and again."""
    text = b"10 path=x\n" + rest
    data = header(b"pax", len(text), b"x") + text + bytes(-len(text) % BLOCK) + header(b"a.json", 0) + bytes(2 * BLOCK)
    index = index_tar(lambda offset, size: data[offset : offset + size], len(data), "a.tar")
    assert [member.name for member in index.members] == ["x"]


@pytest.mark.parametrize(
    "name", [b"." * 1_000_000, b"./" * 500_000 + b"a", b"a." * 500_000], ids=["dots", "here", "a."]
)
def test_a_member_name_of_a_megabyte(tmp_path: Path, name: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(
        pax(b"path=" + name, then=header(b"x", 0)) + pack([("a.json", {"texts": ["sound"]})])
    )
    start = time.process_time()
    found = rows(str(tmp_path / "a.tar"))
    assert time.process_time() - start < SECONDS
    assert "sound" in [row["text_content"] for row in found]


def test_a_name_in_front_of_nothing() -> None:
    assert [plain_name(name) for name in ("./a", "././a", "./", "a./b", "././", ".")] == [
        "a",
        "a",
        "./",
        "a./b",
        "./",
        ".",
    ]


def test_many_members_of_one_name(tmp_path: Path) -> None:
    body = b'{"texts":["x"],"images":["a.png"]}'
    one = [("a.json", body), ("a.png", b"1"), ("a.txt", b"2")]
    uri = write_tar(tmp_path / "a.tar", *one * 3000)
    start = time.process_time()
    (table,) = read_tar_shard(uri)
    assert time.process_time() - start < SECONDS
    assert table.num_rows == 9000
    assert [len(members or ()) for members in table["_unreferenced_members"].to_pylist()[::3]] == [1] * 3000


# Memory


def test_an_image_counts_as_often_as_it_is_named(tmp_path: Path) -> None:
    image = encoded(picture(1, 100, 100))
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"images": ["a.png"] * 100}), ("a.png", image), ("b.json", {}))
    room = 20 * len(image) + 100_000
    found = rows(uri, max_sample_bytes=room)
    held = [row["binary_content"] for row in found if row["binary_content"] is not None]
    assert 18 <= len(held) <= 24  # the rows themselves take some of the room
    assert set(held) == {image}
    wanting = found[len(held) + 1]
    assert wanting["materialize_error"].startswith("sample_too_large: ")
    assert "a.png" in wanting["source_ref"]
    assert (found[-1]["sample_id"], found[-1]["materialize_error"]) == ("b", None)
    assert set(codes(uri, max_sample_bytes=room, materialize=False)) == {None}
    assert set(codes(uri)) == {None}


def test_batches_are_cut_by_what_rows_take(tmp_path: Path) -> None:
    image = encoded(picture(1, 100, 100))
    documents = [(f"{number}.json", {"images": ["i.png"] * 10}) for number in range(10)]
    uri = write_tar(tmp_path / "a.tar", *documents, ("i.png", image))
    tables = list(read_tar_shard(uri, materialize=True, max_batch_bytes=11 * len(image)))
    assert [table["sample_id"].unique().to_pylist() for table in tables] == [[str(number)] for number in range(10)]


def test_frames_that_share_a_strip_count_each(tmp_path: Path) -> None:
    container = bytearray(tiff(*[picture(7, 64, 64)] * 2))
    images = ["page_0_image_0", "page_0_image_1"]
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"images": images}), ("a.tiff", bytes(container)))
    size = len(rows(uri)[1]["binary_content"])
    assert codes(uri, max_sample_bytes=size + 2000) == [None, None, "sample_too_large"]
    # as a leftover, too
    uri = write_tar(tmp_path / "b.tar", ("a.json", {"images": images[:1]}), ("a.tiff", bytes(container)))
    assert codes(uri, max_sample_bytes=size + 2000) == ["sample_too_large", None]


def test_a_document_that_would_explode_is_kept_as_it_is(tmp_path: Path) -> None:
    bomb = b'{"a":[' + b"[]," * 1000 + b"1]}"
    uri = write_tar(tmp_path / "a.tar", ("a.json", bomb), ("b.json", {"texts": ["x"]}))
    for options, why in (
        ({"max_document_bytes": 1000}, "bytes of JSON"),
        ({"max_sample_bytes": 50_000}, "when parsed"),
    ):
        found = rows(uri, **options)
        assert [row["text_content"] for row in found] == [None, None, "x"]
        assert found[0]["materialize_error"].startswith("document_too_large: ")
        assert why in found[0]["materialize_error"]  # it is not parsed
        assert found[0]["_unreferenced_members"] == [{"name": "a.json", "content": bomb}]
    assert codes(uri) == [None, None, None]


def test_rows_that_repeat_a_long_name_count(tmp_path: Path) -> None:
    uri = write_tar(tmp_path / "a.tar", (f"{'k' * 200}.json", {"texts": ["x"] * 2000}), ("b.json", {"texts": ["y"]}))
    found = rows(uri, max_sample_bytes=1_000_000)
    assert [row["text_content"] for row in found] == [None, None, "y"]
    assert found[0]["materialize_error"].startswith("document_too_large: 2001 rows of about ")


def test_rows_with_many_columns_count(tmp_path: Path) -> None:
    wide = {f"k{number}": 1 for number in range(500)}
    uri = write_tar(
        tmp_path / "a.tar", ("a.json", wide), ("b.json", {"texts": ["x"] * 100}), ("c.json", {"texts": ["y"]})
    )
    found = rows(uri, max_sample_bytes=400_000)
    assert [row["text_content"] for row in found] == [None, None, None, "y"]
    assert found[1]["materialize_error"].startswith("sample_too_large: ") or found[1]["materialize_error"].startswith(
        "document_too_large: 101 rows take"
    )
    assert codes(uri) == [None] * 104


@pytest.mark.parametrize(
    ("limit", "left", "errors"),
    [
        (500_000, ("member", "image", "texts"), {}),
        (400_000, ("image", "texts"), {-1: "sample_too_large: with a.bin its rows exceed 400000 bytes"}),
        (
            250_000,
            ("texts",),
            {
                -1: "sample_too_large: with a.bin its rows exceed 250000 bytes",
                20: "sample_too_large: with 120366 bytes more the rows of the sample exceed 250000",
            },
        ),
        (150_000, ("member",), {-1: "document_too_large: 22 rows take 99000 bytes"}),
    ],
)
def test_members_that_no_document_names_go_before_images_and_images_before_texts(
    tmp_path: Path, limit: int, left: tuple[str, ...], errors: dict[int, str]
) -> None:
    body = {"texts": ["x"] * 20, "images": [None] * 20 + ["a.png"], **{f"k{number}": 1 for number in range(500)}}
    image, member = encoded(picture(1, 200, 200)), {"name": "a.bin", "content": bytes(120_000)}
    uri = write_tar(tmp_path / "a.tar", ("a.json", body), ("a.png", image), ("a.bin", bytes(120_000)))
    found = rows(uri, max_sample_bytes=limit)
    there = {
        "member": member in (found[0].get("_unreferenced_members") or []),
        "image": [row["binary_content"] for row in found if row["position"] == 20] == [image],
        "texts": sum(row["text_content"] == "x" for row in found) == 20,
    }
    assert [name for name, stayed in there.items() if stayed] == list(left)
    wrong = {row["position"]: row["materialize_error"] for row in found if row["materialize_error"]}
    assert wrong.keys() == errors.keys()
    for position, error in errors.items():
        assert wrong[position].startswith(error), position


def test_frames_that_point_to_one_huge_directory(tmp_path: Path) -> None:
    """Each frame's Exif directory was read with its 65,535 entries."""
    out, link = bytearray(struct.pack("<2sHIH", b"II", 42, 0, 65535)) + bytes(12 * 65535 + 6), 4
    for _ in range(500):
        struct.pack_into("<I", out, link, len(out))
        tags = {256: 8, 257: 6, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 6, 279: 48, 34665: 8}
        out += struct.pack("<H", len(tags))
        out += b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
        link = len(out)
        out += bytes(4)
    tokens = [f"page_0_image_{number}" for number in range(500)]
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"images": tokens}), ("a.tiff", bytes(out)))
    start = time.process_time()
    assert set(codes(uri)) == {None}
    assert time.process_time() - start < SECONDS


def damaged_frames(count: int) -> bytes:
    """A TIFF whose strips all lie behind its end, while its directories are sound."""
    out, link = bytearray(struct.pack("<2sHI", b"II", 42, 0)), 4
    for _ in range(count):
        struct.pack_into("<I", out, link, len(out))
        tags = {256: 8, 257: 6, 258: 8, 259: 1, 262: 1, 273: 10**6, 277: 1, 278: 6, 279: 48}
        out += struct.pack("<H", len(tags))
        out += b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
        link = len(out)
        out += bytes(4)
    return bytes(out)


def test_damage_is_logged_once_for_many_frames_and_links(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    container = ("a.tiff", damaged_frames(1001))
    links = b"".join(header(b"l%d" % number, 0, b"2") for number in range(1000))
    packed = pack([("a.json", {"images": ["page_0_image_0"]}), container])
    (tmp_path / "a.tar").write_bytes(links + packed)
    assert codes(str(tmp_path / "a.tar")) == [None, "invalid_tiff"]
    assert len(caplog.messages) < 20
    (message,) = [message for message in caplog.messages if "cannot be cut out" in message]
    assert "a: 1000 frames that no document names cannot be cut out and are left out; the first is a.tiff" in message


def test_a_shard_has_no_more_columns_than_the_limit(tmp_path: Path) -> None:
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"p": 1, "q": 2}), ("b.json", {"p": 3}), ("c.json", {"r": 4}))
    assert codes(uri, max_columns=2) == [None, None, "document_too_large"]
    assert [row["p"] for row in rows(uri, max_columns=2)] == [1, 3, None]


def test_mappings_with_many_keys_are_json(tmp_path: Path) -> None:
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"m": {f"k{number}": 1 for number in range(1001)}}))
    (table,) = read_tar_shard(uri)
    assert isinstance(table.schema.field("m").type, pa.JsonType)


def test_objects_beyond_a_thousand_fields_of_a_shard_are_json(tmp_path: Path) -> None:
    """Each field is a column in Parquet: 300 objects of 1,000 fields each took gigabytes."""
    inner = {f"l{number}": 1 for number in range(300)}
    one, two = {"m": {f"k{number}": 1 for number in range(600)}, "n": [{"a": inner}]}, {"o": inner, "p": {"q": "r"}}
    uri = write_tar(tmp_path / "a.tar", ("a.json", one), ("b.json", two))
    (table,) = read_tar_shard(uri)
    kinds = {name: isinstance(table.schema.field(name).type, pa.JsonType) for name in "mnop"}
    assert kinds == {"m": False, "n": False, "o": True, "p": False}
    with tar_shard(str(tmp_path / "b.tar")) as shard:
        shard.write(table)
    (back,) = read_tar_shard(str(tmp_path / "b.tar"))
    assert back.drop_columns("source_ref") == table.drop_columns("source_ref")


def stated(*columns: pa.Field) -> dict[str, Any]:
    text = base64.b64encode(pa.schema(columns).serialize()).decode()
    return {"_interleaved": {"version": 1, "schema": text}}


def test_types_that_documents_state_are_limited_together(tmp_path: Path) -> None:
    wide = [pa.field(name, pa.struct([(f"k{number}", pa.int8()) for number in range(600)])) for name in "ab"]
    long = [pa.field(name, pa.binary(600_000)) for name in "cd"]
    documents = [(f"{number}.json", stated(column)) for number, column in enumerate(wide + long)]
    uri = write_tar(tmp_path / "a.tar", *documents, ("4.json", {"texts": ["x"]}))
    assert codes(uri) == [None, "document_too_large", None, "document_too_large", None, None]
    uri = write_tar(tmp_path / "b.tar", ("a.json", stated(*wide)), ("b.json", stated(*long)))
    assert [row["materialize_error"] for row in rows(uri)] == [
        "invalid_json: _interleaved has more than 1000 fields in structs",
        "invalid_json: _interleaved has columns that take more than 1048576 bytes in each row",
    ]
    with pytest.raises(OptionError, match="the table has more than 1000 fields"), tar_shard(uri) as shard:
        shard.write(metadata("a", **{column.name: pa.nulls(1, column.type) for column in wide}))


def test_columns_without_values_share_memory(tmp_path: Path) -> None:
    wide = {f"k{number}": "x" for number in range(900)}
    uri = write_tar(tmp_path / "a.tar", ("a.json", wide), *((f"b{number}.json", {}) for number in range(9)))
    tables = list(read_tar_shard(uri, max_batch_bytes=10_000))
    assert len(tables) == 10
    assert len({table[name].chunk(0).buffers()[1].address for table in tables[1:2] for name in wide}) == 1


@pytest.mark.system
def test_samples_with_few_of_many_columns_are_written_in_time_that_follows_their_cells(tmp_path: Path) -> None:
    documents = [(f"{number}.json", {f"k{number % 900}": number}) for number in range(3000)]
    (table,) = read_tar_shard(write_tar(tmp_path / "a.tar", *documents))
    start = time.process_time()
    with tar_shard(str(tmp_path / "b.tar")) as shard:
        shard.write(table)
    assert time.process_time() - start < 3  # 1 and not 6
    (back,) = read_tar_shard(str(tmp_path / "b.tar"))
    assert back.drop_columns("source_ref") == table.drop_columns("source_ref")


def test_a_batch_is_in_memory_once(tmp_path: Path) -> None:
    """Members that no document names were copied five times, and the members of images stayed beside their rows."""
    content = bytes(4_200_000)
    body = {"texts": ["x"], "images": [None, "i.png"]}
    uri = write_tar(tmp_path / "a.tar", ("a.json", body), *((f"a.{number}.bin", content) for number in range(5)))
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        (table,) = read_tar_shard(uri, materialize=True)
        assert [len(member["content"]) for member in table["_unreferenced_members"][0].as_py()] == [len(content)] * 5
        # the members and their copy in the column, and the last member once more
        assert pool.max_memory() < 2.3 * 5 * len(content)
        documents = [(f"{number}.json", {"images": ["i.png"]}) for number in range(3)]
        uri = write_tar(tmp_path / "b.tar", *documents, ("i.png", content))
        del table
        tables = read_tar_shard(uri, materialize=True, max_batch_bytes=2 * len(content) - 1)
        held = pool.bytes_allocated()
        for table in tables:
            # the table, and the one member that is kept for the next row
            assert pool.bytes_allocated() - held < 2.1 * len(content)
            del table
    finally:
        pa.set_memory_pool(before)


def test_a_long_field_of_one_document_is_not_reserved_for_all(tmp_path: Path) -> None:
    bodies = [{"texts": ["x"], "images": [None]} | ({} if number else {"html": "x" * 10**6}) for number in range(300)]
    uri = write_tar(tmp_path / "a.tar", *((f"{number:03}.json", body) for number, body in enumerate(bodies)))
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        (table,) = read_tar_shard(uri)
        assert [len(value) for value in table["html"].drop_null().to_pylist()] == [10**6]
        assert pool.max_memory() < 10 * 10**6
        del table  # its memory belongs to the pool
    finally:
        pa.set_memory_pool(before)


@pytest.mark.parametrize(("text", "least"), [(b'["a"]', 100), (b"[[],[]]", 200), ("é😀".encode(), 20)])
def test_parsed_sizes_are_estimated_high(text: bytes, least: int) -> None:
    assert parsed_bytes(text) >= least


def test_compressed_rows_are_not_decompressed() -> None:
    table = pa.table({"position": pa.array([-1], pa.int32()), "modality": ["metadata"], "z": [bytes(10**6)]})
    for options, problem in ((pa.ipc.IpcWriteOptions(compression="zstd"), "are compressed"), (None, None)):
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
            stream.write_table(table)
        value = {"version": 1, "rows": base64.b64encode(sink.getvalue()).decode()}
        if problem is None:
            assert read_exact(value).rows == table
        else:
            with pytest.raises(ValueError, match=problem):
                read_exact(value)


def test_limits_are_options_of_the_reader(tmp_path: Path) -> None:
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"texts": ["x"]}))
    (batch,) = InterleavedWebdatasetReader(uri, read_kwargs={"max_document_bytes": "4B", "max_columns": 3})
    assert batch.to_pyarrow()["materialize_error"][0].as_py().startswith("document_too_large")
    for options in ({"max_columns": 0}, {"max_columns": True}):
        with pytest.raises(OptionError, match="max_columns must be a whole number from 1"):
            InterleavedWebdatasetReader(uri, read_kwargs=options)


# Sizes in headers

SIZES = {
    "2^80": b"\x80" + (2**80).to_bytes(11, "big"),
    "negative": b"\xff" * 12,
    "no number": b"abc" + bytes(9),
    "2^63 - 1": b"\x80" + (2**63 - 1).to_bytes(11, "big"),
}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_sizes_that_no_member_has_are_damage(tmp_path: Path, size: bytes) -> None:
    sound = pack([("a.json", {"texts": ["sound"]})])[: 2 * BLOCK]
    (tmp_path / "a.tar").write_bytes(sound + header(b"b.json", size) + bytes(1024))
    (tmp_path / "b.tar").write_bytes(header(b"b.json", size) + bytes(1024))
    assert [row["text_content"] for row in rows(str(tmp_path / "a.tar"))] == [None, "sound"]
    assert codes(str(tmp_path / "a.tar")) == ["truncated_shard", None]
    with pytest.raises(ShardError, match=r"b\.tar: .*member 'b\.json'"):
        list(read_tar_shard(str(tmp_path / "b.tar")))


@pytest.mark.parametrize("size", [b"-1", b"abc", b"9" * 19, b"9" * 5000, b"1.5", "²".encode()])
def test_sizes_in_pax_records_that_are_none_are_damage(tmp_path: Path, size: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(pax(b"size=" + size, then=header(b"b.json", 2)) + b"{}" + bytes(1534))
    with pytest.raises(ShardError, match=r"a\.tar: .*member 'b\.json'"):
        list(read_tar_shard(str(tmp_path / "a.tar")))


@pytest.mark.parametrize("size", [b"", b"2", b"0" * 5000 + b"2"])
def test_sizes_in_pax_records_that_are_odd_and_right(tmp_path: Path, size: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(pax(b"size=" + size, then=header(b"b.json", 2)) + b"{}" + bytes(1534))
    assert codes(str(tmp_path / "a.tar")) == [None]


def test_checksums_of_signed_bytes_are_taken() -> None:
    data = bytearray(header(b"a.json", 0))
    data[3], data[148:156] = 0xE9, b" " * 8
    data[148:156] = b"%06o\0 " % (sum(data) - 256)
    assert [member.name for member in index_tar(lambda at, size: bytes(data)[at : at + size], 512, "a").members] == [
        "a.j\\xe9on"
    ]


# Writing


def metadata(sample_id: str, **columns: pa.Array) -> pa.Table:
    reserved = {"sample_id": [sample_id], "position": pa.array([-1], pa.int32()), "modality": ["metadata"]}
    return pa.table({**reserved, **columns})


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (metadata("é" * 200_000), "sample 'é.*its longest member name takes"),
        (metadata("a", t=pa.array([86_400_000], pa.time32("ms"))), "sample 'a', column 't': time32"),
        (metadata("a", t=pa.array([[-1]], pa.list_(pa.time64("us")))), "sample 'a', column 't': .*time64"),
        pytest.param(
            metadata("a", b=pa.array([b"x" * 50 * 2**20])), "sample 'a': its JSON takes", marks=pytest.mark.system
        ),
    ],
    ids=["id", "time32", "nested time64", "document"],
)
def test_what_would_not_be_read_back_is_refused(tmp_path: Path, table: pa.Table, problem: str) -> None:
    with pytest.raises(OptionError, match=problem), tar_shard(str(tmp_path / "a.tar")) as shard:
        shard.write(table)
    assert list(tmp_path.iterdir()) == []


def test_the_longest_id_that_is_written_is_read(tmp_path: Path) -> None:
    table = metadata("a" * 1_047_000)
    with tar_shard(str(tmp_path / "a.tar")) as shard:
        shard.write(table)
    assert rows(str(tmp_path / "a.tar"))[0]["sample_id"] == "a" * 1_047_000


# What users of NeMo Curator expect


def images(uri: str) -> list[bytes | None]:
    return [row["binary_content"] for row in rows(uri) if row["modality"] == "image"]


def test_a_tiff_named_several_times_gives_its_frames(tmp_path: Path) -> None:
    container = tiff(picture(1), picture(2), picture(3))
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"images": ["a.tiff", None, "a.tiff"]}), ("a.tiff", container))
    found = rows(uri)
    assert [pixels(row["binary_content"]) for row in found[1:]] == [picture(1).tobytes(), picture(2).tobytes()]
    assert [member["name"] for member in found[0]["_unreferenced_members"]] == ["a.tiff#frame=2"]
    assert [row["source_ref"].rpartition(", ")[2] for row in rows(uri, materialize=False)[1:]] == [
        '"frame_index": 0}',
        '"frame_index": 1}',
    ]
    uri = write_tar(tmp_path / "b.tar", ("a.json", {"images": ["a.tiff"] * 4}), ("a.tiff", container))
    assert codes(uri) == [None, None, None, None, "frame_out_of_range"]
    # named once it is whole; a single frame is a picture that comes twice
    assert images(write_tar(tmp_path / "c.tar", ("a.json", {"images": ["a.tiff"]}), ("a.tiff", container))) == [
        container
    ]
    one = tiff(picture(1))
    assert images(write_tar(tmp_path / "d.tar", ("a.json", {"images": ["a.tiff"] * 2}), ("a.tiff", one))) == [one] * 2


def test_a_container_that_is_another_image_is_that_image(tmp_path: Path) -> None:
    image = encoded(picture(1))
    tokens = ["page_0_image_0", "page_0_image_1"]
    uri = write_tar(tmp_path / "a.tar", ("a.json", {"images": tokens}), ("a.tiff", image))
    _, first, second = rows(uri)
    assert (first["binary_content"], first["content_type"], first["materialize_error"]) == (image, "image/png", None)
    assert second["materialize_error"] == (
        "frame_out_of_range: frame 1 of a.tiff, which is image/png and no TIFF: its one image is frame 0"
    )


def test_the_container_may_have_the_name_of_the_id(tmp_path: Path) -> None:
    uri = write_tar(
        tmp_path / "a.tar",
        ("a.json", {"id": "doc", "images": ["page_0_image_0"]}),
        ("doc.tiff", tiff(picture(1))),
        ("b.json", {"id": "other", "images": ["page_0_image_0"]}),
    )
    layout = ShardLayout(sample_id_field="id")
    found = rows(uri, layout=layout)
    assert pixels(found[1]["binary_content"]) == picture(1).tobytes()
    assert found[3]["materialize_error"] == (
        "missing_member: page_0_image_0 needs b.tiff or other.tiff, which is not in the tar"
    )
