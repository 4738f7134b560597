"""Tars of images with their texts and a JSON beside them: each group of members is a sample."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interleaved_assets.io import InterleavedWebdatasetReader, ShardLayout, materialize, read_tar_shard
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar import reader
from interleaved_assets.io.tar.groups import find_groups
from interleaved_assets.io.tar.layout import webdataset_key
from interleaved_assets.model import OptionError
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.io.tars import Content, encoded, pack, picture, tiff, write_tar
from interleaved_assets_tests.layouts import SAMPLES, foreign_tar
from interleaved_assets_tests.s3 import S3Server

LAYOUT = ShardLayout(layout="images")
PNG = encoded(picture(1))


def read(path: Path, *members: tuple[str, Content], **options: Any) -> list[dict[str, Any]]:
    tables = read_tar_shard(write_tar(path / "a.tar", *members), **{"layout": LAYOUT, "materialize": True, **options})
    return [row for table in tables for row in table.to_pylist()]


def short(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Sample, position and modality of each row, and its text, content type or bytes, or error."""
    found = []
    for row in rows:
        what = row["materialize_error"] or row["text_content"] or (row["content_type"], row["binary_content"])
        found.append((row["sample_id"], row["position"], row["modality"][0], what))
    return found


META = ("application/json", None)


def test_an_image_its_text_and_its_json_are_a_sample(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        ("f/1.jpg", b"\xff\xd8\xffjpeg"),
        ("f/1.txt", "a caption, ü".encode()),
        ("f/1.json", {"url": "https://x", "width": 3, "texts": ["kept"], "sample_id": "own", "none": None}),
        ("f/2.PNG", PNG),
        ("g/1.webp", b"webp"),
        ("g/1.txt", b""),
    )
    assert short(found) == [
        ("f/1", -1, "m", META),
        ("f/1", 0, "i", ("image/jpeg", b"\xff\xd8\xffjpeg")),
        ("f/1", 1, "t", "a caption, ü"),
        ("f/2", -1, "m", META),
        ("f/2", 0, "i", ("image/png", PNG)),
        ("g/1", -1, "m", META),
        ("g/1", 0, "i", ("image/webp", b"webp")),
        ("g/1", 1, "t", ("text/plain", None)),
    ]
    assert found[7]["text_content"] == ""
    fields = {name: found[0][name] for name in ("url", "width", "texts", "sample_id_", "_null_fields")}
    assert fields == {
        "url": "https://x",
        "width": 3,
        "texts": ["kept"],
        "sample_id_": "own",
        "_null_fields": ["none"],
    }
    members = [json.loads(row["source_ref"])["member"] if row["source_ref"] else None for row in found]
    assert members == ["f/1.json", "f/1.jpg", "f/1.txt", None, "f/2.PNG", None, "g/1.webp", "g/1.txt"]


@pytest.mark.parametrize("name", ["img2dataset", "image_and_caption"])
def test_other_data_sets_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.tar").write_bytes(foreign_tar(name))
    (table,) = read_tar_shard(str(tmp_path / "a.tar"), layout=LAYOUT, materialize=True)
    assert Counter(table["modality"].to_pylist()) == dict.fromkeys(("metadata", "image", "text"), SAMPLES)
    assert table["materialize_error"].null_count == table.num_rows
    assert ("caption" in table.column_names) == (name == "img2dataset")


def test_members_of_a_sample_may_lie_anywhere(tmp_path: Path) -> None:
    found = read(
        tmp_path, ("a.txt", b"A"), ("b.0.png", b"b0"), ("a.png", b"a"), ("b.1.jpg", b"b1"), ("b.json", {"x": 1})
    )
    assert short(found) == [
        ("a", -1, "m", META),
        ("a", 0, "i", ("image/png", b"a")),
        ("a", 1, "t", "A"),
        ("b", -1, "m", META),
        ("b", 0, "i", ("image/png", b"b0")),
        ("b", 1, "i", ("image/jpeg", b"b1")),
    ]
    assert [row["x"] for row in found if row["position"] < 0] == [None, 1]


def test_a_name_that_comes_again_begins_another_sample(tmp_path: Path) -> None:
    notes: Counter[str] = Counter()
    found = read(tmp_path, ("a.png", b"1"), ("a.txt", b"one"), ("a.png", b"2"), ("a.txt", b"two"), notes=notes)
    assert [(row[0], row[3]) for row in short(found) if row[1] >= 0] == [
        ("a", ("image/png", b"1")),
        ("a", "one"),
        ("a~2", ("image/png", b"2")),
        ("a~2", "two"),
    ]
    assert notes["repeated_sample_ids"] == 1


def test_other_members_stay_beside_their_sample(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        ("a.png", b"1"),
        ("a.cls", b"7"),
        ("a.json", {"x": 1}),
        ("a.more.json", {"y": 1}),
        ("README", b"about"),
        ("b.npy", b"array"),
    )
    beside = {row["sample_id"]: row["_unreferenced_members"] for row in found if row["position"] < 0}
    named = {key: [member["name"] for member in members or ()] for key, members in beside.items()}
    assert named == {"a": ["a.cls", "a.more.json"], "README": ["README"], "b": ["b.npy"]}
    assert found[0]["x"] == 1


def test_all_frames_of_a_tiff_are_one_image(tmp_path: Path) -> None:
    pages = tiff(picture(1), picture(2))
    found = read(tmp_path, ("a.tiff", pages))
    assert short(found)[1:] == [("a", 0, "i", ("image/tiff", pages))]


def test_the_id_may_be_a_field(tmp_path: Path) -> None:
    members = [("1.png", b"1"), ("1.json", {"sample_id": "own", "key": 5})]
    for field, expected in (("sample_id", "own"), ("key", "5"), ("missing", "1")):
        layout = ShardLayout(layout="images", sample_id_field=field)
        assert read(tmp_path, *members, layout=layout)[0]["sample_id"] == expected


def test_what_is_wrong_is_an_error_of_its_row(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        ("a.png", b"1"),
        ("a.json", b"{no json"),
        ("b.png", b"too large" * 9),
        ("b.txt", b"\xff\xfe"),
        ("c.png", b"2"),
        ("c.txt", b"long" * 30),
        limits=TarLimits(max_member_bytes=70, max_document_bytes=50),
    )
    assert [row["materialize_error"] and row["materialize_error"].partition(":")[0] for row in found] == [
        *("invalid_json", None),
        *(None, "member_too_large", "invalid_text"),
        *("member_too_large", None),
    ]
    assert found[0]["_unreferenced_members"] == [{"name": "a.json", "content": b"{no json"}]
    assert (found[1]["binary_content"], found[6]["binary_content"]) == (b"1", b"2")
    (long,) = (row for row in read(tmp_path, ("c.txt", b"long" * 30), limits=TarLimits(max_document_bytes=50)))
    assert long["materialize_error"].startswith("document_too_large: c.txt: 120 bytes, over max_document_bytes 50")
    assert long["_unreferenced_members"][0]["name"] == "c.txt"


def test_what_exceeds_a_sample_is_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, ("a.0.png", b"1" * 900), ("a.1.png", b"2" * 9_000), limits=TarLimits(max_sample_bytes=5_000))
    assert [row["materialize_error"] and row["materialize_error"][:16] for row in found] == [
        None,
        None,
        "sample_too_large",
    ]


def test_a_cut_tar_says_so(tmp_path: Path) -> None:
    whole = pack([("a.png", b"1"), ("b.png", b"2" * 9_000)])
    (tmp_path / "a.tar").write_bytes(whole[:5_000])
    (table,) = read_tar_shard(str(tmp_path / "a.tar"), layout=LAYOUT, materialize=True)
    assert [error and error.partition(":")[0] for error in table["materialize_error"].to_pylist()] == [
        *(None, None),
        *(None, "truncated_shard"),
    ]


def test_documents_that_are_not_kept_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members: list[tuple[str, Content]] = []
    for number in range(9):
        members += [
            (f"{number}.png", bytes([number])),
            (f"{number}.txt", b"text" * number),
            (f"{number}.json", {"n": number}),
        ]
    members.append(("9.txt", b"alone"))
    expected = read(tmp_path, *members)
    stand_in(monkeypatch, reader, "KEPT_BYTES", 0)
    assert read(tmp_path, *members) == expected
    assert read(tmp_path, *members, max_batch_bytes=2_000) == expected
    assert [row["text_content"] for row in expected if row["modality"] == "text"][1:] == [
        *(b"text".decode() * n for n in range(1, 9)),
        "alone",
    ]


def test_a_reader_over_many_tars(tmp_path: Path) -> None:
    for name in ("img2dataset", "image_and_caption"):
        (tmp_path / f"{name}.tar").write_bytes(foreign_tar(name))
    batches = list(InterleavedWebdatasetReader(str(tmp_path), layout="images", materialize_on_read=True))
    assert [batch.count(modality="image") for batch in batches] == [SAMPLES, SAMPLES]
    with pytest.raises(OptionError, match="layout must be one of interleaved, images, detected, got 'image'"):
        InterleavedWebdatasetReader(str(tmp_path), layout="image")  # type: ignore[arg-type]


def test_from_a_bucket_by_ranges(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    uri = write_tar(tmp_path / "a.tar", ("a.png", PNG), ("a.txt", b"A"), ("a.json", {"x": 1}))
    s3_server.fs.put_file(uri, f"{bucket}/a.tar")
    options = s3_server.storage_options
    (lazy,) = read_tar_shard(f"{bucket}/a.tar", layout=LAYOUT, storage_options=options)
    assert lazy["binary_content"].null_count == 3
    filled = materialize(lazy, storage_options=options, allowed_roots=[bucket])
    assert filled["binary_content"].to_pylist() == [None, PNG, None]
    assert filled["text_content"].to_pylist() == [None, None, "A"]


NAMES = st.lists(
    st.sampled_from(["a.jpg", "a.0.png", "a.txt", "a.json", "a.cls", "a.JSON", "x/a.jpg", ".jpg", "a", "b.txt"])
)


@given(NAMES)
def test_every_member_is_in_one_group_at_most(names: list[str]) -> None:
    groups = find_groups(names, LAYOUT)
    numbers = [[*group.images, *group.texts, *([] if group.json is None else [group.json])] for group in groups]
    flat = [number for own in numbers for number in own]
    assert len(flat) == len(set(flat))
    for group, own in zip(groups, numbers, strict=True):
        assert {webdataset_key(names[number]) for number in own} == {group.key}
        assert group.number == min(own)
    left = {names[number] for number in set(range(len(names))) - set(flat)}
    assert left <= {"a.cls", ".jpg", "a", "a.JSON", "a.json"}


@settings(max_examples=20)
@given(st.permutations([("a.png", b"1"), ("a.txt", b"A"), ("b.png", b"2"), ("b.json", b"{}"), ("c.txt", b"C")]))
def test_the_order_of_members_decides_nothing_but_the_order_of_samples(members: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = read(Path(folder), *members)
    by_sample = {row["sample_id"]: [] for row in found}  # type: dict[str, list[tuple[object, ...]]]
    for row in short(found):
        by_sample[str(row[0])].append(row[1:])
    assert by_sample == {
        "a": [(-1, "m", META), (0, "i", ("image/png", b"1")), (1, "t", "A")],
        "b": [(-1, "m", META), (0, "i", ("image/png", b"2"))],
        "c": [(-1, "m", META), (0, "t", "C")],
    }


def test_no_samples(tmp_path: Path) -> None:
    assert list(read_tar_shard(write_tar(tmp_path / "a.tar"), layout=LAYOUT)) == []


@pytest.mark.parametrize(
    ("name", "images"),
    [("img2dataset", True), ("image_and_caption", True), ("mmc4_documents", False), ("metadata_only", False)],
)
def test_the_members_of_a_tar_tell_its_layout(name: str, images: bool, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(foreign_tar(name))
    detected = ShardLayout(layout="detected")
    found, as_set = (
        [table.to_pylist() for table in read_tar_shard(str(tmp_path / "a.tar"), layout=layout, materialize=True)]
        for layout in (detected, ShardLayout(layout="images" if images else "interleaved"))
    )
    assert found == as_set


def test_a_damaged_json_does_not_tell_the_layout(tmp_path: Path) -> None:
    uri = write_tar(tmp_path / "a.tar", ("a.png", PNG), ("a.json", b"{"), ("b.png", PNG), ("b.json", {"x": 1}))
    (rows,) = read_tar_shard(uri, layout=ShardLayout(layout="detected"))
    found = [(row["sample_id"], row["modality"], row["materialize_error"]) for row in rows.to_pylist()]
    assert [(sample, modality) for sample, modality, error in found if error is None] == [
        ("a", "image"), ("b", "metadata"), ("b", "image"),
    ]  # fmt: skip
    assert found[0][2].startswith("invalid_json: ")
    uri = write_tar(tmp_path / "b.tar", ("a.0.png", PNG), ("a.json", b"{"))
    for layout in ("detected", "interleaved"):
        (rows,) = read_tar_shard(uri, layout=ShardLayout(layout=layout))
        assert rows["modality"].to_pylist() == ["metadata"]


def test_texts_that_would_make_a_sample_too_large_stay_beside_it(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        ("a.png", PNG),
        ("a.txt", b"short"),
        ("a.2.txt", b"x" * 9_000),
        limits=TarLimits(max_sample_bytes=8_000),
    )
    assert [(row["modality"], row["text_content"]) for row in found][1:] == [("image", None), ("text", "short")]
    error = "sample_too_large: with the text a.2.txt its rows exceed 8000 bytes; raise max_sample_bytes"
    assert found[0]["materialize_error"] == error


def test_both_layouts_are_read_with_one_setting(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(foreign_tar("img2dataset"))
    body = {"texts": ["a text", None], "images": [None, "d.0.png"]}
    write_tar(tmp_path / "b.tar", ("d.0.png", PNG), ("d.json", body))
    reader = InterleavedWebdatasetReader(str(tmp_path / "*.tar"), layout="detected", files_per_partition=2)
    rows = [row for batch in reader for row in batch.to_pyarrow().to_pylist()]
    assert [row["modality"] for row in rows if row["sample_id"] == "d"] == ["metadata", "text", "image"]
    captions = [row["text_content"] for row in rows if row["text_content"] == "a caption"]
    assert len(captions) == SAMPLES


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_a_text_in_utf_16_without_a_mark_is_an_error_of_its_row(tmp_path: Path, codec: str) -> None:
    found = short(read(tmp_path, ("a.png", PNG), ("a.txt", "A cat on a sofa".encode(codec))))
    assert found[-1][3] == "invalid_text: entry 1 is no UTF-8 text: it seems to be UTF-16 or UTF-32"
    assert short(read(tmp_path, ("a.png", PNG), ("a.txt", b"a\0b")))[-1][3] == "a\0b"
