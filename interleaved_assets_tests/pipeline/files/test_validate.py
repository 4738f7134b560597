import os
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.demo.damage import damaged_members
from interleaved_assets.demo.documents import pack_tar
from interleaved_assets.io.formats.shard import read_shard, write_shard
from interleaved_assets.model.errors import ShardError, UnexpectedLayout
from interleaved_assets.pipeline.files.inputs import ShardFile, find_shard_files
from interleaved_assets.pipeline.files.validate import FINDING_CODES, NOTE_CODES, Validation, validate_file
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import document, good_shard, project, sharp_image
from interleaved_assets_tests.documents import write_shard as write_documents
from interleaved_assets_tests.io.web_documents.stores import image_url, lines, write_store
from interleaved_assets_tests.layouts import foreign_tar


def validated(path: Path, *, decode: bool = True) -> Validation:
    (file,) = find_shard_files([str(path)], Settings().storage)
    return validate_file(file, Settings(), decode=decode)


def codes(found: Validation) -> dict[str, int]:
    return {finding.code: finding.count for finding in found.findings}


def test_a_good_shard_is_sound_in_both_forms(tmp_path: Path) -> None:
    tar = good_shard(tmp_path / "a.tar")
    (table,) = read_shard(str(tar))
    with write_shard(str(tmp_path / "b.parquet"), table.schema) as out:
        out.write(table)
    for path in (tar, tmp_path / "b.parquet"):
        found = validated(path)
        assert (found.is_sound, found.findings, found.counts.rows) == (True, [], 13)


def test_every_damage_has_its_code_and_place(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(pack_tar(damaged_members(np.random.default_rng(1))))
    found = validated(tmp_path / "a.tar")
    assert not found.is_sound
    assert codes(found) == {
        "undecodable_image": 2,
        "missing_member": 1,
        "invalid_json": 1,
        "frame_out_of_range": 1,
        "repeated_members": 1,
        "repeated_sample_ids": 1,
        "unreferenced_members": 4,
    }
    places = {finding.code: finding.detail for finding in found.findings}
    assert places["missing_member"].startswith("sample 'missing-picture', position 6: missing-picture.1.jpg is not in")
    assert {finding.code for finding in found.findings if finding.level == "note"} <= NOTE_CODES.keys()
    assert {finding.code for finding in found.findings if finding.level == "finding"} <= FINDING_CODES.keys()


def test_an_image_that_only_has_a_header_is_found_by_decoding(tmp_path: Path) -> None:
    image = bytearray(sharp_image(1))
    image[1000:1100] = bytes(100)
    path = write_documents(tmp_path / "a.tar", {"x": document("a", bytes(image))})
    assert codes(validated(path)) == {"undecodable_image": 1}
    assert codes(validated(path, decode=False)) == {}


@pytest.mark.parametrize(("kind", "code"), [("img2dataset", "wrong_layout"), ("mmc4", "wrong_layout")])
def test_another_layout_is_a_finding(tmp_path: Path, kind: str, code: str) -> None:
    (tmp_path / "a.tar").write_bytes(foreign_tar(kind))
    found = validated(tmp_path / "a.tar")
    assert code in codes(found)
    advice = [one.detail for one in found.findings if "set reading.texts_field and reading.images_field" in one.detail]
    assert len(advice) == 1
    assert 'reading.layout = "images" if each sample is an image, alone or with a text' in advice[0]


def test_documents_without_content_in_another_format_than_tar_get_no_advice_on_members(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "in a field of another name"}\n' * 3)
    (detail,) = [one.detail for one in validated(tmp_path / "a.jsonl").findings if one.code == "wrong_layout"]
    assert detail.startswith("3 of 3 samples yield no text and no image")
    assert detail.endswith(
        "docs/sources.md shows what is read of jsonl; lists with other names than texts and images are set by "
        "reading.texts_field and reading.images_field."
    )
    settings = project(tmp_path)
    (tmp_path / "a.jsonl").rename(tmp_path / "raw/a.jsonl")
    with pytest.raises(UnexpectedLayout) as error:
        take_through(stage_dag(settings)["normalized"], "a.jsonl", settings)
    assert "Members that no document names" not in str(error.value)
    assert "The documents have the fields image_url, text. docs/sources.md shows" in str(error.value)


def test_cut_tars_and_tars_without_samples(tmp_path: Path) -> None:
    whole = good_shard(tmp_path / "a.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    assert {"incomplete", "truncated_shard"} <= codes(validated(tmp_path / "cut.tar")).keys()
    assert codes(validated(write_documents(tmp_path / "empty.tar", {}))) == {"no_samples": 1}


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_cut_tar_of_the_store_is_a_finding(tmp_path: Path, ending: str) -> None:
    write_store(tmp_path / "store", [1, 2], [3])
    documents = [{"texts": ["a", None, None], "images": [None, image_url(1), image_url(2)]}]
    if ending == ".jsonl":
        (tmp_path / "a.jsonl").write_bytes(lines(*documents))
    else:
        pq.write_table(pa.Table.from_pylist(documents), tmp_path / "a.parquet")
    settings = Settings.model_validate({"reading": {"urls": {"image_store": str(tmp_path / "store")}}})
    file = ShardFile(str(tmp_path / f"a{ending}"), 0, "a")
    assert validate_file(file, settings).findings == []
    for tar in ("00001.tar", "00000.tar"):  # of the first no image is wanted
        with tarfile.open(tmp_path / "store" / tar) as archive:
            cut = archive.getmembers()[-2].offset  # before the header of the last image
        os.truncate(tmp_path / "store" / tar, cut)
        found = validate_file(file, settings)
        assert found.is_sound == (tar == "00001.tar")
    (finding,) = [one for one in found.findings if one.level == "finding"]
    assert finding.code == "incomplete"
    assert finding.detail.startswith(f"{tmp_path}/store/00000.tar in reading.urls.image_store: ")
    assert "wanted images that it lacks: 1. Fetch the tar again" in finding.detail


def test_repeated_ids_in_parquet_are_found(tmp_path: Path) -> None:
    (table,) = read_shard(str(good_shard(tmp_path / "a.tar")))
    with write_shard(str(tmp_path / "b.parquet"), table.schema) as out:
        out.write(table)
        out.write(table)
    assert "invalid_keys" in codes(validated(tmp_path / "b.parquet"))


def test_what_is_no_shard_is_raised(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_text("no tar")
    with pytest.raises(ShardError, match="is not a tar"):
        validated(tmp_path / "a.tar")


def test_a_name_that_says_another_format_is_told(tmp_path: Path) -> None:
    (table,) = read_shard(str(good_shard(tmp_path / "a.tar")))
    with write_shard(str(tmp_path / "b.parquet"), table.schema) as out:
        out.write(table)
    misnamed = (tmp_path / "b.parquet").rename(tmp_path / "c.tar")
    found = validated(misnamed)
    (note,) = [finding for finding in found.findings if finding.code == "other_format"]
    assert (note.level, note.detail) == ("note", "it is parquet, and its name says tar")
