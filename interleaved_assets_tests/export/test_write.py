"""Images of a batch as tars with their tables: what is in them, and that they give it back."""

import datetime
import errno
import json
import logging
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import webdataset
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.export import ExportSettings, WrittenImages, write_images
from interleaved_assets.export.image_rows import DocumentFields, image_rows, text_parts
from interleaved_assets.export.names import scope_of
from interleaved_assets.export.tars import ImageSet, image_tars
from interleaved_assets.io import ShardLayout, read_tar_shard
from interleaved_assets.model import INTERLEAVED_SCHEMA, InterleavedBatch, OptionError, StorageError
from interleaved_assets.scoring import score_images
from interleaved_assets_tests.io.batches_strategy import SAMPLE_IDS
from interleaved_assets_tests.io.row_tables import rows_table, sample
from interleaved_assets_tests.io.tars import encoded, members_of, picture
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import failing

PICTURES = [encoded(picture(seed, width=8 + seed)) for seed in range(5)]
IMAGES = ShardLayout(layout="images")


def batch(*pictures: bytes | None, sample_id: str = "doc") -> InterleavedBatch:
    """One sample with a text before each picture."""
    return InterleavedBatch(rows_table(sample(sample_id, *pictures)), ("/raw/a.tar",))


def write(folder: Path, own: InterleavedBatch, **options: Any) -> WrittenImages:
    given = {name: options.pop(name) for name in ("scores", "storage_options", "max_pixels") if name in options}
    return write_images(own, str(folder), ExportSettings(**options), **given)


def read_images(tar: str, **options: Any) -> tuple[pa.Table, pa.Table]:
    """Metadata rows and image rows of a tar that was written."""
    (rows,) = read_tar_shard(tar, layout=IMAGES, materialize=True, **options)
    return tuple(rows.filter(pc.equal(rows["modality"], kind)) for kind in ("metadata", "image"))  # type: ignore[return-value]


def test_a_tar_and_its_table(tmp_path: Path) -> None:
    own = batch(*PICTURES[:2])
    found = write(tmp_path, own, scores=score_images(own.to_pyarrow()))
    (tar,), (table,) = found.tars, found.tables
    assert Path(tar).with_suffix(".parquet") == Path(table)
    assert {path.name for path in tmp_path.iterdir()} == {Path(tar).name, Path(table).name}
    scope = scope_of("/raw/a.tar")
    assert list(members_of(tar)) == [f"doc-000{at}-{scope}.{kind}" for at in (1, 3) for kind in ("png", "json")]
    rows = pq.read_table(table).to_pylist()
    assert rows == found.images.to_pylist()
    assert rows[1] | {"sharpness": 0.0} == {
        "image_id": f"doc-0003-{scope}",
        "tar_file": Path(tar).name,
        "member": f"doc-0003-{scope}.png",
        "original_path": None,
        "source_ref": None,
        "sample_id": "doc",
        "position": 3,
        "original_position": 3,
        "width": 9,
        "height": 6,
        "content_type": "image/png",
        "text_before": "some words",
        "text_after": None,
        "aspect_ratio": 1.5,
        "sharpness": 0.0,
        "qr_area_ratio": 0.0,
        "score_error": None,
    }
    assert rows[0]["text_after"] == "some words"
    stated = json.loads(members_of(tar)[f"doc-0003-{scope}.json"])
    assert stated == {name: value for name, value in rows[1].items() if name not in ("tar_file", "member")}
    assert found.ledger.num_rows == 0


def test_webdataset_reads_every_image_with_its_json(tmp_path: Path) -> None:
    found = write(tmp_path, batch(*PICTURES), images_per_tar=2)
    assert [Path(tar).name.rpartition("-")[2] for tar in found.tars] == ["000000.tar", "000001.tar", "000002.tar"]
    samples = list(webdataset.WebDataset(found.tars, shardshuffle=False, empty_check=False))
    assert [one["png"] for one in samples] == PICTURES
    assert [one["__key__"] for one in samples] == found.images["image_id"].to_pylist()
    assert [json.loads(one["json"])["width"] for one in samples] == [8, 9, 10, 11, 12]
    tables = [pq.read_table(table) for table in found.tables]
    assert [table.num_rows for table in tables] == [2, 2, 1]
    for tar, table in zip(found.tars, tables, strict=True):
        assert set(table["tar_file"].to_pylist()) == {Path(tar).name}
        assert set(table["member"].to_pylist()) <= members_of(tar).keys()


SAMPLES = st.dictionaries(SAMPLE_IDS, st.lists(st.sampled_from(PICTURES), max_size=3), max_size=5)
VALUES = st.lists(st.sampled_from([None, 0.0, -0.0, 0.1, 1e300, 5e-324, float("nan"), float("-inf")]), min_size=15)


@given(SAMPLES, st.integers(1, 4), st.sampled_from(["id", "sequence"]), VALUES)
def test_what_was_written_is_read_back(
    samples: dict[str, list[bytes]], images_per_tar: int, names: str, values: list[float | None]
) -> None:
    table = rows_table([row for sample_id, pictures in samples.items() for row in sample(sample_id, *pictures)])
    images = table.filter(pc.equal(table["modality"], "image"))
    values = values[: images.num_rows]
    scores = images.select(["sample_id", "position"]).append_column("own", pa.array(values, pa.float64()))
    options = {"images_per_tar": images_per_tar, "names": names, "scores": scores}
    with tempfile.TemporaryDirectory() as folder:
        found = write(Path(folder), InterleavedBatch(table), **options)
        assert len(found.tars) == -(-images.num_rows // images_per_tar)
        back = [read_images(tar) for tar in found.tars]
        written = [row for path in found.tables for row in pq.read_table(path).to_pylist()]
    contents = [content for _, part in back for content in part["binary_content"].to_pylist()]
    assert contents == images["binary_content"].to_pylist()
    assert repr(written) == repr(found.images.to_pylist())
    assert repr([row["own"] for row in written]) == repr(values)
    about = [row for part, _ in back for row in part.to_pylist()]
    assert [row["sample_id"] for row in about] == [row["image_id"] for row in written]
    assert [row["sample_id_"] for row in about] == images["sample_id"].to_pylist()
    assert [row["position_"] for row in about] == images["position"].to_pylist()
    finite = [value if value is not None and np.isfinite(value) else None for value in values]
    assert repr([row.get("own") for row in about]) == repr(finite)


def test_hostile_ids_have_files_of_their_own(tmp_path: Path) -> None:
    ids = ["a.b", "a.c", "A", "a", "../../a", "é", "e\u0301", "x" * 5_000, "x" * 4_999 + "X", "", "%41"]
    rows = [row for number, sample_id in enumerate(ids) for row in sample(sample_id, PICTURES[number % 5])]
    found = write(tmp_path, InterleavedBatch(rows_table(rows)))
    folder = tmp_path / "unpacked"
    folder.mkdir()
    for name, content in members_of(found.tars[0]).items():
        (folder / name.casefold()).write_bytes(content)
    assert len(list(folder.iterdir())) == 2 * len(ids)
    _, images = read_images(found.tars[0])
    assert images["binary_content"].to_pylist() == [PICTURES[number % 5] for number in range(len(ids))]


def test_the_same_images_get_the_same_bytes_however_they_come(tmp_path: Path) -> None:
    rows = rows_table([row for number in range(7) for row in sample(f"doc-{number}", PICTURES[number % 5])])
    images = image_rows(rows)
    place = [ImageSet(str(tmp_path / name), "0" * 16, "1" * 12) for name in ("one", "many")]
    options = ExportSettings(images_per_tar=3, remove_image_data=False)
    with image_tars(place[0], pa.schema([]), options) as tars:
        tars.write(images, images.select(["position"]))
    with image_tars(place[1], pa.schema([]), options) as tars:
        for row in range(images.num_rows):
            tars.write(images.slice(row, 1), images.slice(row, 1).select(["position"]))
    assert [chunk.tar.uri.rpartition("/")[2] for chunk in tars.chunks][1] == f"images-{'0' * 16}-000001.tar"
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert len(files) == 6
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()


def test_names_follow_the_content(tmp_path: Path) -> None:
    own = batch(*PICTURES[:2])
    first = write(tmp_path, own)
    assert write(tmp_path, own).tars == first.tars
    assert write(tmp_path, own, verbose=True, enabled=True).tars == first.tars
    scores = score_images(own.to_pyarrow())
    renamed = scores.rename_columns([name.replace("sharpness", "blur") for name in scores.column_names])
    others = [
        write(tmp_path, batch(*PICTURES[1:3])),
        write(tmp_path, batch(*PICTURES[:2], sample_id="other")),
        write(tmp_path, own, images_per_tar=1),
        write(tmp_path, own, scores=scores),
        write(tmp_path, own, scores=renamed),
        write(tmp_path, own, deterministic_name=False),
        write(tmp_path, own, deterministic_name=False),
    ]
    assert len({tuple(found.tars) for found in (first, *others)}) == 8
    random, again = others[-2:]
    assert random.images["image_id"].to_pylist() == again.images["image_id"].to_pylist()


def test_bytes_in_the_table_too(tmp_path: Path) -> None:
    found = write(tmp_path, batch(*PICTURES), remove_image_data=False, images_per_tar=3)
    tables = pa.concat_tables(pq.read_table(table) for table in found.tables)
    assert tables["binary_content"].to_pylist() == PICTURES
    assert "binary_content" not in found.images.column_names


def test_reencoded_images_have_their_new_size_and_type(tmp_path: Path) -> None:
    turned = encoded(picture(1, 30, 20), "TIFF", tiffinfo={0x0112: 6})
    own = batch(PICTURES[0], turned)
    found = write(tmp_path, own, reencode="jpeg", quality=80, names="sequence", scores=score_images(own.to_pyarrow()))
    rows = found.images.to_pylist()
    assert [(row["width"], row["height"], row["content_type"]) for row in rows] == [
        (8, 6, "image/jpeg"),
        (20, 30, "image/jpeg"),
    ]
    assert [name.rpartition("-")[2] for name in found.images["member"].to_pylist()] == ["00000000.jpg", "00000001.jpg"]
    assert [content[:2] for name, content in members_of(found.tars[0]).items() if name.endswith("jpg")] == [
        b"\xff\xd8"
    ] * 2
    assert write(tmp_path, own, quality=80).tars == write(tmp_path, own, quality=70).tars  # not in use
    assert write(tmp_path, own, reencode="jpeg", quality=70).tars != found.tars


def test_images_that_fail_are_in_the_ledger(tmp_path: Path) -> None:
    rows = sample("doc", PICTURES[0], b"no image", None, None, PICTURES[1])
    rows[8]["materialize_error"] = "missing_member: b.png is not in the tar"
    rows[10]["materialize_error"] = "frame_mismatch: kept all the same"
    own = InterleavedBatch(rows_table(rows))
    plain = write(tmp_path, own)
    assert plain.images["position"].to_pylist() == [1, 3, 9]  # whatever they are, their bytes are there
    assert plain.images["width"].to_pylist() == [8, None, 9]
    found = write(tmp_path, own, reencode="jpeg")
    assert found.images["position"].to_pylist() == [1, 9]
    names = ("position", "modality", "stage", "reason", "detail")
    rows = list(zip(*(found.ledger[name].to_pylist() for name in names), strict=True))
    assert [row[:4] for row in rows] == [
        (3, "image", "image_export", "undecodable_image"),
        (5, "image", "image_export", "missing_source"),
        (7, "image", "image_export", "missing_member"),
    ]
    assert rows[2][4] == "missing_member: b.png is not in the tar"
    assert len(members_of(found.tars[0])) == 4


def test_more_pixels_than_allowed_fail_where_they_would_be_decoded(tmp_path: Path) -> None:
    own = batch(PICTURES[0])
    assert write(tmp_path, own, max_pixels=10).ledger.num_rows == 0
    assert write(tmp_path, own, max_pixels=10, reencode="jpeg").ledger["reason"].to_pylist() == ["too_many_pixels"]


def test_scores_are_joined_by_sample_and_position(tmp_path: Path) -> None:
    scores = pa.table(
        {
            "sample_id": ["doc", "else"],
            "position": pa.array([3, 1], pa.int32()),
            "own": [0.25, 1.0],
            "label": ["cat", "dog"],
            "member": [7, 8],
            "embedding": pa.array([[1.0], [2.0]], pa.list_(pa.float32(), 1)),
            "thumbnail": [b"x", b"y"],
        }
    )
    found = write(tmp_path, batch(*PICTURES[:2]), scores=scores)
    rows = found.images.select(["own", "label", "member_"]).to_pylist()
    assert rows == [{"own": None, "label": None, "member_": None}, {"own": 0.25, "label": "cat", "member_": 7}]
    assert {"embedding", "thumbnail"} & set(found.images.column_names) == set()


def test_optional_columns_may_be_missing(tmp_path: Path) -> None:
    own = batch(PICTURES[0]).to_pyarrow()
    few = InterleavedBatch(own.select(["sample_id", "position", "modality", "binary_content"]))
    (row,) = write(tmp_path, few).images.to_pylist()
    assert (row["content_type"], row["text_before"], row["original_path"]) == ("image/png", None, None)


def test_no_images_give_no_files(tmp_path: Path) -> None:
    found = write(tmp_path, batch())
    assert (found.tars, found.tables, found.images.num_rows) == ([], [], 0)
    assert list(tmp_path.iterdir()) == []


def test_in_a_bucket(s3_server: S3Server, bucket: str) -> None:
    options = s3_server.storage_options
    found = write_images(batch(*PICTURES), f"{bucket}/out", ExportSettings(images_per_tar=3), storage_options=options)
    s3_server.fs.invalidate_cache()
    assert sorted(f"s3://{path}" for path in s3_server.fs.find(f"{bucket}/out")) == sorted([*found.tars, *found.tables])
    images = [read_images(tar, storage_options=options)[1] for tar in found.tars]
    assert [value for part in images for value in part["binary_content"].to_pylist()] == PICTURES


def test_verbose_logs_each_tar(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "interleaved_assets"):
        write(tmp_path, batch(*PICTURES), images_per_tar=3)
        assert caplog.messages == []
        found = write(tmp_path, batch(*PICTURES), images_per_tar=3, verbose=True)
    sizes = [Path(tar).stat().st_size for tar in found.tars]
    assert caplog.messages == [
        f"{tar}: {count} images, {size} bytes" for tar, count, size in zip(found.tars, (3, 2), sizes, strict=True)
    ]


def test_an_error_leaves_whole_files_alone(tmp_path: Path) -> None:
    full = failing("os.rename", "000001.parquet", OSError(errno.ENOSPC, "No space left on device"))
    with full, pytest.raises(StorageError, match=r"No space left on device\. Free some space"):
        write(tmp_path, batch(*PICTURES), images_per_tar=3)
    names = sorted(path.name.rpartition("-")[2] for path in tmp_path.iterdir())
    assert names == ["000000.parquet", "000000.tar"]


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    own = batch(PICTURES[0])
    with pytest.raises(OptionError, match="3 rows repeat the key"):
        write(tmp_path, InterleavedBatch(pa.concat_tables([own.to_pyarrow(), own.to_pyarrow()])))
    with pytest.raises(OptionError, match="scores: no column position"):
        write(tmp_path, own, scores=pa.table({"sample_id": ["doc"]}))
    images = image_rows(own.to_pyarrow())
    place = ImageSet(str(tmp_path), "0" * 16, "1" * 12)
    with (
        pytest.raises(OptionError, match="sample 'doc' has two images at position 1"),
        image_tars(place, pa.schema([]), ExportSettings()) as tars,
    ):
        tars.write(pa.concat_tables([images, images]), pa.concat_tables([images, images]).select(["position"]))
    assert list(tmp_path.iterdir()) == []


def test_scores_that_json_has_no_value_for_are_text_there(tmp_path: Path) -> None:
    values = {
        "day": pa.array([datetime.date(2024, 5, 6)]),
        "exact": pa.array([Decimal("1.50")]),
        "far": pa.array([2**62], pa.timestamp("us")),
    }
    found = write(tmp_path, batch(PICTURES[0]), scores=pa.table({"sample_id": ["doc"], "position": [1], **values}))
    (table,) = (pq.read_table(path) for path in found.tables)
    assert [table[name] for name in values] == [pa.chunked_array([value]) for value in values.values()]
    ((_, body),) = [(name, body) for name, body in members_of(found.tars[0]).items() if name.endswith(".json")]
    stated = json.loads(body)
    assert [stated[name] for name in values] == ["2024-05-06", "1.50", f"<value out of range: {2**62}>"]


def test_a_long_text_is_held_once_whatever_the_number_of_its_images() -> None:
    rows = [{"modality": "text", "text_content": "x" * 10**6}] + [{"binary_content": b"y"}] * 3000
    images = image_rows(rows_table([{"sample_id": "doc", **row} for row in rows]))
    assert pa.types.is_dictionary(images["text_before"].type)
    assert images["text_before"].nbytes < 2 * 10**6
    parts = list(text_parts(images))
    assert [part.stop - part.start for part in parts] == [67] * 44 + [52]
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert list(text_parts(images.slice(0, 2), most_bytes=1)) == [slice(0, 1), slice(1, 2)]
    assert list(text_parts(images.slice(0, 0))) == []


def documents_with_fields() -> pa.Table:
    """Two samples of a metadata row, a text and two images; the second has no metadata row."""
    rows = rows_table([*sample("a", *PICTURES[:2]), *sample("b", *PICTURES[2:4])])
    keep = [
        row["sample_id"] == "a" or row["modality"] != "metadata"
        for row in rows.select(["sample_id", "modality"]).to_pylist()
    ]
    rows = rows.filter(pa.array(keep))
    kinds = rows["modality"].to_pylist()
    of_documents = {
        "url": pa.array(["https://example.org/a" if kind == "metadata" else None for kind in kinds]),
        "facts": pa.array(
            [{"n": 1.5, "tags": ["x", None]} if kind == "metadata" else None for kind in kinds],
            pa.struct([("n", pa.float32()), ("tags", pa.list_(pa.large_string()))]),
        ),
        "odd": pa.array([[float("nan"), 2.0] if kind == "metadata" else None for kind in kinds]),
        "raw": pa.array([b"\xff\0" if kind == "metadata" else None for kind in kinds]),
        "at": pa.array([datetime.date(2024, 2, 29) if kind == "metadata" else None for kind in kinds]),
        "own": pa.StructArray.from_arrays(
            [
                pa.ExtensionArray.from_storage(
                    pa.uuid(), pa.array([b"u" * 16 if kind == "metadata" else None for kind in kinds], pa.binary(16))
                )
            ],
            ["id"],
            mask=pa.array([kind != "metadata" for kind in kinds]),
        ),
        "width": pa.array([7 if kind == "metadata" else None for kind in kinds]),
        "caption": pa.array([f"caption {row}" if kind != "text" else None for row, kind in enumerate(kinds)]),
        "_null_fields": pa.array([["gone"]] * len(kinds)),
    }
    for name, column in of_documents.items():
        rows = rows.append_column(name, column)
    return rows


def test_fields_of_documents_go_along_with_their_images(tmp_path: Path) -> None:
    rows = documents_with_fields()
    captions = rows.filter(pc.equal(rows["modality"], "image"))["caption"].to_pylist()
    found = write(tmp_path, InterleavedBatch(rows, ("/raw/a.tar",)), images_per_tar=3)
    table = pa.concat_tables(pq.read_table(path) for path in found.tables)
    assert repr(table.to_pylist()) == repr(found.images.to_pylist())  # NaN is not equal to itself
    added = [name for name in rows.column_names if name not in INTERLEAVED_SCHEMA.names and name != "_null_fields"]
    assert table.column_names[-len(added) :] == ["width_" if name == "width" else name for name in added]
    for name in added:
        column = table["width_" if name == "width" else name]
        assert column.type == rows.schema.field(name).type
        document = rows[name][0].as_py()
        expected = captions if name == "caption" else [document, document, None, None]
        assert repr(column.to_pylist()) == repr(expected)
    assert table["width"].to_pylist() == [8, 9, 10, 11]
    bodies = [
        json.loads(content) for tar in found.tars for name, content in members_of(tar).items() if name.endswith(".json")
    ]
    expected = {
        "url": "https://example.org/a",
        "facts": {"n": 1.5, "tags": ["x", None]},
        "odd": [None, 2.0],
        "raw": "/wA=",
        "at": "2024-02-29",
        "own": {"id": "75757575-7575-7575-7575-757575757575"},
        "width_": 7,
    }
    assert [{name: body[name] for name in expected} for body in bodies] == [
        expected,
        expected,
        dict.fromkeys(expected),
        dict.fromkeys(expected),
    ]
    assert [body["caption"] for body in bodies] == captions


def test_other_fields_give_other_names_of_files(tmp_path: Path) -> None:
    rows = documents_with_fields()
    other = rows.set_column(rows.column_names.index("url"), "url", pa.array(["b", *[None] * (rows.num_rows - 1)]))
    names = [write(tmp_path, InterleavedBatch(each, ("/raw/a.tar",))).tars for each in (rows, other, rows)]
    assert names[0] == names[2] != names[1]


def test_fields_that_are_long_are_written_in_parts(tmp_path: Path) -> None:
    rows = rows_table(sample("a", *PICTURES[:1] * 40))
    note = pa.array([{"text": "x" * 100_000}, *[None] * (rows.num_rows - 1)])
    rows = rows.append_column("note", note)
    images, fields = image_rows(rows), DocumentFields(rows)
    parts = list(text_parts(images, fields, most_bytes=1_000_000))
    assert [part.stop - part.start for part in parts] == [9, 9, 9, 9, 4]
    assert fields.part(parts[-1])["note"].to_pylist() == [{"text": "x" * 100_000}] * 4
    place = ImageSet(str(tmp_path), "0" * 16, "0" * 12)
    with image_tars(place, pa.schema([]), ExportSettings(), fields=fields.schema) as tars:
        for part in parts:
            tars.write(images[part], images[part].select(["position"]), fields.part(part))
    assert pq.read_table(tars.chunks[0].table.uri)["note"].to_pylist() == [note[0].as_py()] * 40
