"""Shards that must not be published: foreign layouts, cut tars, too many samples lost; and those that may."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.errors import IncompleteShard, UnexpectedLayout
from interleaved_assets.pipeline.checks.every_image_scored import EVERY_IMAGE_SCORED
from interleaved_assets.pipeline.checks.layout_as_expected import LAYOUT
from interleaved_assets.pipeline.run.check import Basis, ShardCheck, Verdict
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.publishable import layout_problems
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets.settings.sections import PublishSettings
from interleaved_assets_tests.documents import document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.io.tars import members_of, pack, write_tar
from interleaved_assets_tests.layouts import foreign_tar, jpeg
from interleaved_assets_tests.projects import take_all

DROP_ROW = '[errors]\non_materialize_error = "drop_row"\n'


def normalize(settings: Settings, key: str = "a") -> Record:
    return take_through(stage_dag(settings)["normalized"], key, settings).record


def judged(check: ShardCheck, record: Record, settings: Settings) -> Verdict:
    return check.judge(record, Basis(settings, stage_dag(settings)[record.stage]))


def outputs(folder: Path) -> list[Path]:
    return [path for path in (folder / "out").rglob("*") if path.is_file()]


@pytest.mark.parametrize("layout", ["img2dataset", "image_and_caption"])
def test_images_with_texts_beside_them_are_taken_by_a_setting(tmp_path: Path, layout: str) -> None:
    settings = project(tmp_path, '[reading]\nlayout = "images"\n')
    (tmp_path / "raw/a.tar").write_bytes(foreign_tar(layout))
    records = take_all(settings)
    assert records["normalized"].settings["reading"]["layout"] == "images"  # type: ignore[index]
    assert [records[name].counts_out.images for name in ("normalized", "filtered", "final_tars")] == [20, 20, 20]
    assert records["final_tars"].counts_out.texts == 20
    stated = stage_dag(settings)["normalized"].settings
    assert stated(settings) != stated(project(tmp_path))
    assert "layout" not in stated(project(tmp_path))["reading"]  # type: ignore[operator]


def test_what_has_no_images_is_refused_as_images_too(tmp_path: Path) -> None:
    settings = project(tmp_path, '[reading]\nlayout = "images"\n')
    (tmp_path / "raw/a.tar").write_bytes(foreign_tar("metadata_only"))
    with pytest.raises(
        UnexpectedLayout, match=r"20 of 20 samples .* an image, alone or with <key>\.txt or <key>\.json"
    ):
        normalize(settings)


@pytest.mark.parametrize(
    ("layout", "found", "members", "fields"),
    [
        (
            "img2dataset",
            "20 of 20 samples yield no text and no image",
            "20 .jpg, 20 .txt.",
            "the fields caption, url, key, width.",
        ),
        ("image_and_caption", "20 of 20 samples yield", "20 .jpg, 20 .txt.", "There is no document with a field."),
        ("mmc4", "21 of 21 samples yield", "20 .jpg, 1 .jsonl.", "There is no document with a field."),
        ("mmc4_documents", "20 of 20 samples yield", "20 .jpg.", "the fields text_list, image_info."),
        ("metadata_only", "20 of 20 samples yield", "names: none.", "the fields url."),
    ],
)
def test_a_shard_in_another_layout_fails_and_writes_nothing(
    tmp_path: Path, layout: str, found: str, members: str, fields: str
) -> None:
    settings = project(tmp_path, DROP_ROW)
    (tmp_path / "raw/a.tar").write_bytes(foreign_tar(layout))
    with pytest.raises(UnexpectedLayout) as error:
        normalize(settings)
    message = str(error.value)
    assert message.startswith(f"shard a: {found}")
    assert "more than publish.max_empty_samples 0.9" in message
    assert members in message
    assert fields in message
    assert "a <key>.json whose lists texts and images" in message
    assert "docs/formats.md" in message
    assert outputs(tmp_path) == []


def test_documents_that_cannot_be_read_are_named_as_the_cause(tmp_path: Path) -> None:
    by_reference = 'image_bytes = "referenced"\n'
    settings = project(tmp_path, by_reference + DROP_ROW + '[limits]\nmax_document_bytes = "1MiB"\n')
    too_large = b'{"texts": ["' + b"a" * 2**20 + b'"]}'
    sound = [(f"{key}.json", b'{"texts": ["a text"]}') for key in "bcd"]
    write_tar(tmp_path / "raw/a.tar", ("a.json", too_large), ("a.0.png", b"image"), *sound)
    with pytest.raises(UnexpectedLayout) as error:
        normalize(settings)
    assert "Rows with errors, which docs/errors.md explains: 1 document_too_large. Members" in str(error.value)
    assert "_binary_size" not in str(error.value)


def test_texts_without_their_images_are_refused_by_the_bytes(tmp_path: Path) -> None:
    settings = project(tmp_path, '[reading]\ntexts_field = "text_list"\n')
    (tmp_path / "raw/a.tar").write_bytes(foreign_tar("mmc4_documents"))
    with pytest.raises(UnexpectedLayout, match=r"shard a: members that no document names have 99\.\d% of the bytes"):
        normalize(settings)


def test_a_share_above_its_bound_is_not_shown_as_the_bound() -> None:
    counted = {"samples_with_content": 1, "unreferenced_bytes": 10_004, "content_bytes": 89_996}
    (problem,) = layout_problems(1, counted, PublishSettings(max_unreferenced_bytes=0.1))
    assert problem.endswith("have 10.004% of the bytes, more than publish.max_unreferenced_bytes 0.1")


def test_the_bounds_are_settings(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.tar").write_bytes(foreign_tar("img2dataset"))
    with pytest.raises(UnexpectedLayout, match=r"shard a: members that no document names have"):
        normalize(project(tmp_path, "[publish]\nmax_empty_samples = 1\n"))
    settings = project(tmp_path, "[publish]\nmax_empty_samples = 1\nmax_unreferenced_bytes = 1\n")
    records = take_all(settings)
    assert records["normalized"].counted["unreferenced_images"] == 20
    assert records["normalized"].notes["unreferenced_images"] == 20
    # nothing that was not judged is published; captions are no images
    assert records["filtered"].notes["unreferenced_images_left_out"] == 20
    published = members_of(tmp_path / "out/tars/a.tar")
    assert {name.partition(".")[2] for name in published} == {"json", "txt"}
    assert len(pq.read_table(records["normalized"].outputs["rows"].uri)["_unreferenced_members"][0]) == 2
    # the checks say so, judged with the bounds as they are now
    verdict = judged(LAYOUT, records["normalized"], project(tmp_path))
    assert (verdict.passed, verdict.severity) == (False, "ERROR")
    assert "20 of 20 samples yield no text and no image" in verdict.summary
    verdict = judged(EVERY_IMAGE_SCORED, records["image_scores"], settings)
    assert not verdict.passed
    assert verdict.summary == (
        "nothing to score: all 20 images of the shard are named by no document, or dropped for errors"
    )


def test_documents_in_part_empty_and_an_empty_tar_pass(tmp_path: Path) -> None:
    settings = project(tmp_path)
    write_shard(tmp_path / "raw/a.tar", {"full": document("text")} | {f"{number}": document() for number in range(9)})
    verdict = judged(LAYOUT, normalize(settings), settings)
    assert verdict.passed
    assert verdict.figures == {
        "samples": 10,
        "samples_with_content": 1,
        "unreferenced_share": 0.0,
        "unreferenced_images": 0,
    }
    write_shard(tmp_path / "raw/b.tar", {})
    assert judged(LAYOUT, normalize(settings, "b"), settings).passed


def test_unreferenced_images_are_left_out_counted_and_kept_on_request(tmp_path: Path) -> None:
    settings = project(tmp_path)
    write_tar(
        tmp_path / "raw/a.tar",
        ("one.json", {"texts": ["a b c", None], "images": [None, "one.png"]}),
        ("one.png", sharp_image(1)),
        ("one.thumb.jpg", jpeg(1)),
        ("one.unnamed", jpeg(2)),
        ("one.notes.txt", b"BMP or not"),
        ("two.json", {"texts": ["d e f"], "images": [None]}),
        ("two.jpg", jpeg(3)),
    )
    settings = project(tmp_path, "[publish]\nmax_unreferenced_bytes = 0.9\n")
    records = take_all(settings)
    assert records["normalized"].notes["unreferenced_images"] == 3
    assert records["filtered"].notes["unreferenced_images_left_out"] == 3
    assert records["filtered"].counts_in == records["filtered"].counts_out
    rows = pq.read_table(records["filtered"].outputs["rows"].uri)
    assert rows["_unreferenced_members"].to_pylist() == [
        [{"name": "one.notes.txt", "content": b"BMP or not"}],
        None,
        None,
        None,
        None,
    ]
    assert set(members_of(tmp_path / "out/tars/a.tar")) == {"one.json", "one.1.png", "one.notes.txt", "two.json"}

    with_images = project(tmp_path, "[publish]\nmax_unreferenced_bytes = 0.9\nunreferenced_images = true\n")
    assert take_through(stage_dag(settings)["normalized"], "a", with_images).unchanged
    assert take_all(with_images)["filtered"].notes["unreferenced_images_left_out"] == 0
    assert set(members_of(tmp_path / "out/tars/a.tar")) == {
        *("one.json", "one.1.png", "one.notes.txt", "one.thumb.jpg", "one.unnamed", "two.json", "two.jpg")
    }


def test_a_final_tar_shows_nothing_of_images_that_were_left_out(tmp_path: Path) -> None:
    settings = project(tmp_path)
    document = {"sample_id": "one", "texts": ["a b c", None], "images": [None, "one.1.png"], "url": "x"}
    members = (("one.json", document), ("one.1.png", sharp_image(1)))
    write_tar(tmp_path / "raw/a.tar", *members, ("one.thumb.png", sharp_image(2, 16, 16)))
    record = take_all(settings)["filtered"]
    assert "_unreferenced_members" not in record.columns
    (_, written), (_, image) = members_of(tmp_path / "out/tars/a.tar").items()
    assert (json.loads(written), image) == (document, sharp_image(1))


def cut(data: bytes) -> bytes:
    return data[: len(data) // 6]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, r"the tar is cut at byte \d+, in member"),
        (lambda data: data.rstrip(b"\0") + bytes(-len(data.rstrip(b"\0")) % 512), "it has no end mark"),
        (lambda data: data + data, r"data after its end mark at byte \d+ are not read"),
    ],
)
@pytest.mark.parametrize("policy", ["drop_row", "warn"])
def test_a_tar_that_is_not_whole_fails(tmp_path: Path, damage, reason: str, policy: str) -> None:
    text = f'[errors]\non_materialize_error = "{policy}"\n'
    settings = project(tmp_path, text)
    tar = good_shard(tmp_path / "raw/a.tar")
    tar.write_bytes(damage(tar.read_bytes()))
    with pytest.raises(
        IncompleteShard, match=rf"raw/a\.tar: truncated_shard: {reason}.*set publish\.accept_incomplete"
    ):
        normalize(settings)
    assert outputs(tmp_path) == []
    accepted = project(tmp_path, f"{text}[publish]\naccept_incomplete = true\nmax_lost_samples = 1\n")
    assert normalize(accepted).counts_in.samples >= 1


def half_missing(lost: int) -> bytes:
    """Ten documents with two texts and an image, of which ``lost`` are not in the tar."""
    members = []
    for number in range(10):
        members.append((f"{number}.json", {"texts": ["a b", None, "c"], "images": [None, f"{number}.png", None]}))
        if number >= lost:
            members.append((f"{number}.png", sharp_image(number, 16, 16)))
    return pack(members)


@pytest.mark.parametrize("policy", ["drop_row", "drop_sample"])
def test_a_shard_that_lost_too_many_samples_fails(tmp_path: Path, policy: str) -> None:
    text = f'[errors]\non_materialize_error = "{policy}"\n'
    settings = project(tmp_path, text)
    (tmp_path / "raw/a.tar").write_bytes(half_missing(6))
    with pytest.raises(IncompleteShard) as error:
        normalize(settings)
    assert str(error.value) == (
        "shard a: 6 of 10 samples lost rows to errors in normalized, more than publish.max_lost_samples 0.5: "
        "6 missing_member. The first is sample '0', position 1: missing_member: 0.png is not in the tar. "
        "Fix the shard, or raise publish.max_lost_samples."
    )
    assert outputs(tmp_path) == []
    assert normalize(project(tmp_path, f"{text}[publish]\nmax_lost_samples = 0.6\n")).errors == {"missing_member": 6}
    (tmp_path / "raw/b.tar").write_bytes(half_missing(5))
    assert normalize(settings, "b").errors == {"missing_member": 5}


def test_a_shard_whose_images_have_no_score_fails_at_the_selection(tmp_path: Path) -> None:
    settings = project(tmp_path, '[selection]\non_score_error = "drop_row"\n')
    write_shard(
        tmp_path / "raw/a.tar",
        {"good": document("a", sharp_image(1))} | {f"bad-{number}": document("a", b"no image") for number in range(3)},
    )
    with pytest.raises(
        IncompleteShard, match=r"shard a: 3 of 4 samples lost rows to errors in filtered, .* 3 undecodable_image\. The "
    ):
        take_all(settings)
    assert not list((tmp_path / "out").rglob("*.tar"))
    loose = project(tmp_path, '[selection]\non_score_error = "drop_row"\n[publish]\nmax_lost_samples = 1\n')
    assert take_all(loose)["filtered"].dropped == {"undecodable_image": 3}
