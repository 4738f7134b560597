import hashlib
import random
import threading
import time
import zipfile
from collections import Counter
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from interleaved_assets.io import materialize
from interleaved_assets.io.formats.registry import JSONL
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.layout import ShardLayout
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.web_documents.jsonl import read_jsonl
from interleaved_assets.io.web_documents.settings import UrlSettings
from interleaved_assets.model.errors import IncompleteShard, ShardError, StorageError, error_code
from interleaved_assets.model.source_ref import build_source_ref, parse_source_ref
from interleaved_assets_tests.io.web_documents.stores import (
    SITE,
    image_url,
    lines,
    packed,
    write_parquet_store,
    write_store,
)
from interleaved_assets_tests.system_calls import disk_that_fails


def read(path: Path, store: Path | None = None, **options: Any) -> pa.Table:
    settings = UrlSettings(image_store=None if store is None else str(store))
    options = {"materialize": True, "allowed_roots": [str(path.parent)], "sections": {"urls": settings}, **options}
    return pa.concat_tables(read_jsonl(str(path), ReadOptions(**options)))


DOCUMENT = {
    "url": f"{SITE}/page",
    "texts": ["one", None, "two"],
    "images": [None, image_url(1), None],
    "score": 0.5,
    "nested": {"a": [1, 2]},
}


def written(path: Path, *documents: object) -> Path:
    path.write_bytes(lines(*documents))
    return path


def test_lines_in_a_bucket_take_the_time_of_local_ones(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", *[{"texts": ["word " * 200_000], "images": [None]}] * 4)
    MemoryFileSystem().pipe_file("/lines/a.jsonl", path.read_bytes())
    began = time.process_time()
    (table,) = read_jsonl("memory://lines/a.jsonl", ReadOptions())
    assert time.process_time() - began < 3
    assert table["text_content"].equals(read(path)["text_content"])


def test_a_line_is_a_document_with_the_images_of_the_store(tmp_path: Path) -> None:
    images = write_store(tmp_path / "store", [5], [1, 2])
    table = read(written(tmp_path / "a.jsonl", DOCUMENT), tmp_path / "store")
    rows = table.to_pylist()
    assert [(row["position"], row["modality"], row["text_content"], row["image_url"]) for row in rows] == [
        (-1, "metadata", None, None),
        (0, "text", "one", None),
        (1, "image", None, image_url(1)),
        (2, "text", "two", None),
    ]
    assert rows[2]["binary_content"] == images[image_url(1)]
    assert {row["sample_id"] for row in rows} == {f"{SITE}/page"}
    assert (rows[0]["url"], rows[0]["score"], rows[0]["nested"]) == (f"{SITE}/page", 0.5, {"a": [1, 2]})
    assert parse_source_ref(rows[2]["source_ref"]).path == str(tmp_path / "store/00001.tar")
    assert [row["materialize_error"] for row in rows] == [None] * 4


def test_without_bytes_rows_have_the_place_in_the_store(tmp_path: Path) -> None:
    images = write_store(tmp_path / "store", [1])
    table = read(written(tmp_path / "a.jsonl", DOCUMENT), tmp_path / "store", materialize=False)
    image = table.to_pylist()[2]
    ref = parse_source_ref(image["source_ref"])
    assert image["binary_content"] is None
    content = Path(ref.path or "").read_bytes()
    assert content[ref.byte_offset or 0 :][: ref.byte_size] == images[image_url(1)]


def test_images_that_the_store_lacks_keep_their_url(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [1])
    document = {"texts": [None, None], "images": [image_url(7), f"{SITE}/gone.jpg"]}
    rows = read(written(tmp_path / "a.jsonl", document), tmp_path / "store").to_pylist()
    assert [(row["image_url"], row["materialize_error"]) for row in rows[1:]] == [
        (image_url(7), f"image_not_in_store: {image_url(7)}"),
        (f"{SITE}/gone.jpg", f"image_not_in_store: {SITE}/gone.jpg"),
    ]
    assert rows[0]["sample_id"] == "a.jsonl:1"


def test_mmc4_and_columns_of_all_lines(tmp_path: Path) -> None:
    mmc4 = {
        "url": f"{SITE}/mmc4",
        "text_list": ["before", "at the image"],
        "image_info": [{"raw_url": image_url(1), "matched_text_index": 1, "matched_sim": 0.27}],
        "similarity_matrix": [[0.1, 0.27]],
        "score": "high",
    }
    table = read(written(tmp_path / "a.jsonl", DOCUMENT, mmc4))
    rows = [row for row in table.to_pylist() if row["sample_id"] == f"{SITE}/mmc4"]
    assert [(row["modality"], row["text_content"]) for row in rows[1:]] == [
        ("text", "before"),
        ("image", None),
        ("text", "at the image"),
    ]
    assert rows[2]["matched_sim"] == 0.27
    assert rows[0]["similarity_matrix"] == [[0.1, 0.27]]
    assert rows[0]["image_info"] == mmc4["image_info"]
    # a number and a string: the column is JSON, and both survive
    assert table["score"].type == pa.json_(pa.string())
    assert table["score"].drop_null().to_pylist() == ["0.5", '"high"']


def test_a_broken_line_is_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(DOCUMENT) + b"{broken\n\n[1]\n" + lines({**DOCUMENT, "url": "second"}))
    table = read(path)
    errors = {row["sample_id"]: row["materialize_error"] for row in table.to_pylist() if row["position"] == -1}
    assert errors["a.jsonl:2"].startswith("invalid_json: Expecting property name")
    assert errors["a.jsonl:4"] == "invalid_json: a document is a JSON object, this is a list"
    assert (errors[f"{SITE}/page"], errors["second"]) == (None, None)


def test_repeated_ids_are_told_apart_and_counted(tmp_path: Path) -> None:
    notes = Counter[str]()
    table = read(written(tmp_path / "a.jsonl", DOCUMENT, DOCUMENT), notes=notes)
    assert table["sample_id"].unique().to_pylist() == [f"{SITE}/page", f"{SITE}/page~2"]
    assert notes == {"repeated_sample_ids": 1}


def test_a_line_over_the_limit_is_refused_and_the_next_one_read(tmp_path: Path) -> None:
    long = {"url": "long", "texts": ["x" * 5000], "images": []}
    path = written(tmp_path / "a.jsonl", DOCUMENT, long, {**DOCUMENT, "url": "last"})
    table = read(path, limits=TarLimits(max_document_bytes=1000))
    errors = {row["sample_id"]: row["materialize_error"] for row in table.to_pylist() if row["position"] == -1}
    assert errors["a.jsonl:2"] == "document_too_large: a line of more than max_document_bytes 1000"
    assert (errors[f"{SITE}/page"], errors["last"]) == (None, None)


@pytest.mark.parametrize("ending", [".gz", ".zst", ".zip"])
def test_packed_files_and_cut_ones(tmp_path: Path, ending: str) -> None:
    plain = lines(*({**DOCUMENT, "url": f"{SITE}/{number}"} for number in range(500)))
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(packed(plain, ending))
    whole = read(path)
    assert JSONL.shortfall(str(path), ReadOptions()) is None
    assert len(whole["sample_id"].unique()) == 500
    assert parse_source_ref(whole["source_ref"][0].as_py()).byte_offset is None
    (tmp_path / "b.jsonl").write_bytes(plain)
    expected = read(tmp_path / "b.jsonl")
    assert whole.drop_columns("source_ref").equals(expected.drop_columns("source_ref"))
    second = parse_source_ref(expected["source_ref"][4].as_py())
    assert plain[second.byte_offset or 0 :][: second.byte_size] == lines({**DOCUMENT, "url": f"{SITE}/1"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    cut = rf"a\.jsonl\{ending}: truncated_shard: line \d+ cannot be unpacked: "
    with pytest.raises(IncompleteShard, match=cut):
        read(path, accept_incomplete=False)
    assert "cannot be unpacked" in (JSONL.shortfall(str(path), ReadOptions()) or "")
    # the directory of a ZIP file is at its end, and the first block of zstd is as large as this file
    assert (0 if ending != ".gz" else 1) <= len(read(path)["sample_id"].unique()) < 500


def test_zstd_may_begin_with_a_frame_to_skip(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zst"
    path.write_bytes(b"\x50\x2a\x4d\x18\x04\0\0\0size" + packed(lines(DOCUMENT), ".zst"))
    assert read(path)["sample_id"].unique().to_pylist() == [DOCUMENT["url"]]


@pytest.mark.parametrize("ending", ["", ".gz", ".zst", ".zip"])
def test_a_disk_that_fails_is_no_cut_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    texts = [random.Random(1).randbytes(400_000).hex()]
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(packed(lines({"url": "long", "texts": texts, "images": [None]}), ending))
    disk_that_fails(monkeypatch)
    with pytest.raises(StorageError, match=rf"cannot read {path}: the disk is away"):
        read(path, accept_incomplete=True)


def test_a_zip_file_has_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("docs")
        archive.writestr("docs/a.jsonl", lines(DOCUMENT))
        archive.writestr("__MACOSX/docs/._a.jsonl", b"attributes")
    assert read(path)["sample_id"][0].as_py() == DOCUMENT["url"]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("docs/b.jsonl", lines(DOCUMENT))
    with pytest.raises(ShardError, match=r"a\.jsonl\.zip has 2 files, and a shard is one: unpack it"):
        read(path)


def test_a_zip_file_with_a_password_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.zip"
    content = bytearray(packed(lines(DOCUMENT), ".zip"))
    for header, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        content[content.index(header) + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(ShardError, match=r"a\.jsonl\.zip: .*encrypted.*\. Unpack it into the raw root\.$"):
        read(path)


def test_batches_are_bounded_and_of_one_schema(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", *({**DOCUMENT, "url": str(number)} for number in range(50)))
    parts = list(read_jsonl(str(path), ReadOptions(max_batch_bytes=5000)))
    assert len(parts) > 3
    assert len({part.schema for part in parts}) == 1
    assert sum(part.num_rows for part in parts) == 200


def test_an_empty_file_gives_one_empty_table(tmp_path: Path) -> None:
    (table,) = read_jsonl(str(written(tmp_path / "a.jsonl")), ReadOptions())
    assert table.num_rows == 0
    assert table.column_names[:3] == ["sample_id", "position", "modality"]


def test_own_fields_with_names_of_the_row_model_survive(tmp_path: Path) -> None:
    own = {"sample_id": "id9", "position": 3, "source_ref": "x", "image_url": "keep", "matched_sim": 0.5}
    other = {"sample_id": {"a": 1}, "url": "second"}
    rows = read(written(tmp_path / "a.jsonl", {**DOCUMENT, **own}, {**DOCUMENT, **other})).to_pylist()
    first, second = (row for row in rows if row["position"] == -1)
    assert (first["sample_id"], second["sample_id"]) == ("id9", "second")
    assert (first["position_"], first["source_ref_"], first["image_url_"], first["matched_sim_"]) == (
        3,
        "x",
        "keep",
        0.5,
    )
    assert second["sample_id_"] == {"a": 1}


def test_a_tar_that_the_store_lacks_is_named_with_its_list(tmp_path: Path) -> None:
    write_store(tmp_path / "store", [1])
    (tmp_path / "store/00000.tar").unlink()
    with pytest.raises(StorageError, match=r"00000\.tar is missing, and .*00000\.parquet in reading.urls.image_store"):
        read(written(tmp_path / "a.jsonl", DOCUMENT), tmp_path / "store")


def test_a_store_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", DOCUMENT)
    with pytest.raises(StorageError, match="nowhere"):
        read(path, tmp_path / "nowhere")
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other/0.parquet")
    with pytest.raises(ShardError, match=r"0\.parquet is not a list of images .* lacks the columns url, key"):
        read(path, tmp_path / "other")


def test_half_a_surrogate_pair_in_a_url_is_an_error_of_its_row(tmp_path: Path) -> None:
    """JSON can spell it, and no URL of a store has it."""
    images = write_store(tmp_path / "store", [1])
    document = {"texts": [None, None], "images": ["https://a.example/\ud800.png", image_url(1)]}
    rows = read(written(tmp_path / "a.jsonl", document), tmp_path / "store").to_pylist()
    assert rows[1]["materialize_error"] == "invalid_token: an entry of images is not Unicode"
    assert rows[2]["binary_content"] == images[image_url(1)]


def test_the_whole_url_of_an_absent_image_is_in_its_error(tmp_path: Path) -> None:
    url = f"{SITE}/{'x' * 1000}.jpg?size=large"
    rows = read(written(tmp_path / "a.jsonl", {"texts": [None], "images": [url]})).to_pylist()
    assert url in rows[1]["materialize_error"]


def test_lists_of_texts_and_images_are_spread_over_their_rows(tmp_path: Path) -> None:
    lists = {"texts": ["a", None, "b", None], "images": [None, image_url(1), None, image_url(2)]}
    spread = {"url": "spread", **lists, "alts": ["one", {"two": 2}], "scores": [0.1, 0.2], "image_url": ["x", "y"]}
    uneven = {"url": "uneven", **lists, "alts": ["one"], "scores": [0.5]}
    layout = ShardLayout(per_image_fields=("alts", "image_url"), per_text_fields=("scores",))
    rows = read(written(tmp_path / "a.jsonl", spread, uneven), layout=layout).to_pylist()
    found = [(row["alts"], row["scores"], row["image_url_"]) for row in rows]
    assert found == [
        *[(None, None, None), (None, "0.1", None), ('"one"', None, "x"), (None, "0.2", None), ('{"two":2}', None, "y")],
        *[('["one"]', "[0.5]", None), *[(None, None, None)] * 4],
    ]


def test_a_signed_url_is_no_part_of_an_id_or_a_locator(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", {"texts": ["a"], "images": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        host = f"127.0.0.1:{server.server_address[1]}"
        signed = f"http://{host}/a.jsonl?X-Amz-Signature=5ec2e7"
        table = pa.concat_tables(read_jsonl(signed, ReadOptions()))
        server.shutdown()
    assert table["sample_id"].unique().to_pylist() == ["a.jsonl:1"]
    assert parse_source_ref(table["source_ref"][0].as_py()).path == f"http://{host}/a.jsonl"


def test_images_of_a_store_in_parquet_are_found_by_url_and_by_hash(tmp_path: Path) -> None:
    images = write_parquet_store(tmp_path / "store", [1, 2, 3], [4])
    third, fourth = (hashlib.sha256(images[image_url(number)]).hexdigest() for number in (3, 4))
    names = [image_url(2), third, f"sha256:{fourth}", f"{SITE}/gone.jpg", image_url(2)]
    document = {"texts": [None] * 5, "images": names}
    rows = read(written(tmp_path / "a.jsonl", document), tmp_path / "store").to_pylist()
    assert [row["binary_content"] for row in rows[1:]] == [
        *(images[image_url(number)] for number in (2, 3, 4)), None, images[image_url(2)],
    ]  # fmt: skip
    assert rows[4]["materialize_error"] == f"image_not_in_store: {SITE}/gone.jpg"
    assert parse_source_ref(rows[1]["source_ref"]).part == "2:jpg"
    (tmp_path / "store/00001.parquet").unlink()
    lazily = read(written(tmp_path / "a.jsonl", document), tmp_path / "store", materialize=False)
    filled = materialize(lazily, allowed_roots=[str(tmp_path)])
    assert filled["binary_content"][1].as_py() == images[image_url(2)]


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("9:jpg", "missing_member"),
        ("0:jpg", "missing_member"),
        ("x:jpg", "invalid_source_ref"),
        ("0:url", "missing_member"),
        (f"{'9' * 30}:jpg", "invalid_source_ref"),
        (f"{'9' * 5000}:jpg", "invalid_source_ref"),
    ],
)
def test_a_cell_that_is_none_is_an_error_of_its_row(part: str, error: str, tmp_path: Path) -> None:
    write_parquet_store(tmp_path / "store", [1])
    ref = build_source_ref(str(tmp_path / "store/00000.parquet"), part=part)
    rows = pa.table({"sample_id": ["a"], "position": [0], "modality": ["image"], "source_ref": [ref]})
    filled = materialize(rows, allowed_roots=[str(tmp_path)])
    assert error_code(filled["materialize_error"][0].as_py()) == error


def test_an_image_that_documents_name_by_url_and_by_hash_is_found_by_both(tmp_path: Path) -> None:
    images = write_store(tmp_path / "store", [1])
    rows = pq.read_table(tmp_path / "store/00000.parquet").to_pylist()
    digest = hashlib.sha256(images[image_url(1)]).hexdigest()
    rows[0]["sha256"] = digest
    rows.append({**rows[0], "url": image_url(9), "sha256": None})  # another address of the same image
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "store/00000.parquet")
    document = {"texts": [None] * 3, "images": [image_url(1), digest, image_url(9)]}
    found = read(written(tmp_path / "a.jsonl", document), tmp_path / "store")
    assert found["binary_content"].to_pylist()[1:] == [images[image_url(1)]] * 3


def test_keys_of_a_store_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """As numbers they have lost their zeros, and name no member of the tar."""
    write_store(tmp_path / "store", [1])
    table = pq.read_table(tmp_path / "store/00000.parquet")
    keys = table["key"].cast(pa.int64())
    pq.write_table(table.set_column(table.column_names.index("key"), "key", keys), tmp_path / "store/00000.parquet")
    with pytest.raises(ShardError, match=r"00000\.parquet has keys of the type int64"):
        read(written(tmp_path / "a.jsonl", DOCUMENT), tmp_path / "store")


def test_a_store_whose_tar_is_cut_is_refused_unless_such_shards_are_accepted(tmp_path: Path) -> None:
    images = write_store(tmp_path / "store", [1, 2])
    tar = tmp_path / "store/00000.tar"
    tar.write_bytes(tar.read_bytes()[: 1024 + len(images[image_url(1)])])
    path = written(tmp_path / "a.jsonl", {"texts": [None] * 2, "images": [image_url(1), image_url(2)]})
    with pytest.raises(IncompleteShard, match=r"00000\.tar in reading\.urls\.image_store: .* Fetch the tar again"):
        read(path, tmp_path / "store", accept_incomplete=False)
    rows = read(path, tmp_path / "store").to_pylist()
    assert rows[1]["binary_content"] == images[image_url(1)]
    assert error_code(rows[2]["materialize_error"]) == "image_not_in_store"
    assert read(written(path, {"texts": ["a"], "images": [None]}), tmp_path / "store", accept_incomplete=False)
