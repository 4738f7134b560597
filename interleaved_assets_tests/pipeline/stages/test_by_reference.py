"""The chain with rows by reference: the same results as with copied images, and other bytes never."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets.io import InterleavedParquetReader, materialize
from interleaved_assets.model.columns import BINARY_SIZE
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import (
    ROWS,
    document,
    good_shard,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.io.tars import encoded, frames_document, picture, tiff, write_tar
from interleaved_assets_tests.system_calls import system_calls

BY_REFERENCE = 'image_bytes = "referenced"\n[errors]\non_materialize_error = "drop_row"\n'
READERS = ("image_scores", "final_tars")
"""The stages that read images."""


def through(settings: Settings, *stages: str, key: str = "a") -> Record:
    """Take shard ``key`` through these stages, by default through all; return the last record."""
    dag = stage_dag(settings)
    for name in stages or dag:
        outcome = take_through(dag[name], key, settings)
    return outcome.record


def normalized(settings: Settings, key: str = "a") -> pa.Table:
    return pq.read_table(settings.storage.shard(key).output("normalized"))


pytestmark = pytest.mark.project(BY_REFERENCE, shards={"a": 0})


def test_normalized_and_filtered_name_the_images_and_final_tars_hold_them(settings: Settings, tmp_path: Path) -> None:
    record = through(settings)
    rows = normalized(settings)
    images = rows.filter(pa.compute.equal(rows["modality"], "image"))
    raw = (tmp_path / "raw/a.tar").read_bytes()
    sizes = images[BINARY_SIZE].to_pylist()
    assert images["binary_content"].null_count == images.num_rows == 5
    assert sum(sizes) == through(settings, "normalized").counts_out.image_bytes > record.counts_out.image_bytes > 0
    for name in ("normalized", "filtered"):
        assert (tmp_path / f"out/{name}/a.parquet").stat().st_size < len(raw) / 2


def outputs(folder: Path) -> dict[str, bytes]:
    """The scores, ledgers, sample scores and tars below ``folder``, by their path."""
    kinds = ("image_scores", "dropped", "sample_scores", "tars")
    found = (path for kind in kinds for path in (folder / kind).rglob("*"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found if path.is_file()}


def counted(record: Record) -> dict[str, object]:
    """The figures of a record that do not depend on the form of its inputs."""
    return record.model_dump(include={"counts_in", "counts_out", "errors", "dropped", "counted", "extents"})


@pytest.mark.parametrize(
    "chosen",
    [
        ("mint/pdf-000.tar", "crawl-2/mixed-keys.tar", "crawl-2/damaged.tar"),
        pytest.param(
            (
                *("mint/pdf-001.tar", "web/pages-000.tar"),
                *("web/articles-000.tar", "web/flyers-000.tar", "web/galleries-000.tar", "crawl-2/captions-000.tar"),
                *("crawl-2/archive.warc.gz", "mint/report.pdf"),
            ),
            marks=pytest.mark.system,
        ),
    ],
    ids=["forms", "others"],
)
def test_the_demo_has_the_same_results_as_with_copied_images(
    tmp_path: Path, drawn: Callable[[str], Path], chosen: tuple[str, ...]
) -> None:
    text = '[errors]\non_materialize_error = "drop_row"\n[selection]\non_score_error = "drop_row"\n'
    found, records = {}, {}
    for form in ("copied", "referenced"):
        (tmp_path / form).mkdir()
        for name in chosen:
            raw = tmp_path / form / "raw" / name
            raw.parent.mkdir(parents=True, exist_ok=True)
            raw.symlink_to(drawn(name))
        settings = project(tmp_path / form, f'image_bytes = "{form}"\n{text}')
        keys = [shard.key for shard in list_raw_shards(settings.storage)]
        records[form] = [
            counted(take_through(stage, key, settings).record) for key in keys for stage in stage_dag(settings).values()
        ]
        found[form] = outputs(tmp_path / form / "out")
    assert len(found["copied"]) > 4 * len(chosen)
    assert found["referenced"].keys() == found["copied"].keys()
    assert [name for name, content in found["copied"].items() if found["referenced"][name] != content] == []
    assert records["referenced"] == records["copied"]


def test_rows_by_reference_become_the_copied_rows(settings: Settings, tmp_path: Path) -> None:
    through(settings, "normalized")
    (table,) = (batch.to_pyarrow() for batch in InterleavedParquetReader(str(tmp_path / "out/normalized/a.parquet")))
    filled = materialize(table, allowed_roots=[str(tmp_path / "raw")])
    (tmp_path / "copied").mkdir()
    shutil.copytree(tmp_path / "raw", tmp_path / "copied/raw")
    copied = project(tmp_path / "copied", BY_REFERENCE.replace("referenced", "copied"))
    through(copied, "normalized")
    assert filled.drop_columns(["source_ref"]).equals(normalized(copied).drop_columns(["source_ref"]))


FRAMES = tiff(picture(1), picture(2), picture(3), compression="tiff_lzw")


def test_frames_with_errors_and_images_of_wrong_names(tmp_path: Path) -> None:
    tokens = [None, "page_0_image_0", "page_0_image_1", "page_0_image_2", "page_0_image_9"]
    sizes = [{"width": 8, "height": 6}, {"width": 9, "height": 9}, {"width": 8, "height": 6}, {"width": 1, "height": 1}]
    members = [
        ("a.json", frames_document(*tokens, image_metadata=sizes)),
        ("a.tiff", FRAMES),
        ("b.json", frames_document("page_0_image_0")),
        ("b.tiff", encoded(picture(4))),
        ("loose.bin", b"named by no document"),
    ]
    tables = {}
    for form in ("copied", "referenced"):
        (tmp_path / form / "raw").mkdir(parents=True)
        text = f'image_bytes = "{form}"\n[errors]\non_materialize_error = "warn"\n[publish]\nmax_lost_samples = 1\n'
        settings = project(tmp_path / form, text)
        write_tar(tmp_path / form / "raw/a.tar", *members)
        through(settings, *stages_before("filtered"))
        tables[form] = normalized(settings), pq.read_table(tmp_path / form / "out/image_scores/a.parquet")
    errors = [error.split(":")[0] for error in tables["copied"][0]["materialize_error"].to_pylist() if error]
    assert sorted(errors) == ["frame_mismatch", "frame_out_of_range"]
    assert tables["referenced"][1].equals(tables["copied"][1])
    rows = materialize(tables["referenced"][0], allowed_roots=[str(tmp_path)]).drop_columns(["source_ref"])
    assert rows.equals(tables["copied"][0].drop_columns(["source_ref"]))


def test_a_compressed_tar_is_copied(settings: Settings, tmp_path: Path) -> None:
    plain = good_shard(tmp_path / "plain.tar")
    (tmp_path / "raw/b.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    through(settings, key="b")
    rows = normalized(settings, "b")
    assert BINARY_SIZE not in rows.column_names
    assert rows["binary_content"].null_count == rows.num_rows - 5


def test_a_field_of_the_name_of_the_size_is_kept_and_images_are_copied(settings: Settings, tmp_path: Path) -> None:
    write_shard(tmp_path / "raw/c.tar", {"one": document("text", sharp_image(1), **{BINARY_SIZE: 7})})
    through(settings, key="c")
    rows = normalized(settings, "c")
    assert rows[BINARY_SIZE].to_pylist() == [7, None, None]
    assert rows["binary_content"].null_count == 2


def replaced(tar: Path) -> None:
    good_shard(tar, seed=7)


def cut(tar: Path) -> None:
    tar.write_bytes(tar.read_bytes()[:-20_000])


def linked(tar: Path) -> None:
    other = good_shard(tar.with_name("other.bin"), seed=9)
    tar.unlink()
    tar.symlink_to(other)


def gone(tar: Path) -> None:
    tar.unlink()


@pytest.mark.parametrize("stage", READERS)
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (replaced, "a.tar is not the raw shard that normalized was made from"),
        (cut, "a.tar is not the raw shard that normalized was made from"),
        (linked, "a.tar is not the raw shard that normalized was made from"),
        (gone, "it was moved or deleted"),
    ],
)
def test_a_raw_shard_that_changed_before_a_stage_gives_no_other_bytes(
    settings: Settings, tmp_path: Path, stage: str, change: Callable[[Path], None], problem: str
) -> None:
    dag = stage_dag(settings)
    through(settings, *list(dag)[: list(dag).index(stage)])
    change(tmp_path / "raw/a.tar")
    with pytest.raises((ShardError, StorageError), match=problem):
        take_through(dag[stage], "a", settings)
    assert not (tmp_path / f"out/records/{stage}/a.json").exists()
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file() and stage in path.parts] == []
    assert list((tmp_path / "out").glob("tars/*")) == []


def test_a_threshold_is_decided_without_the_raw_shard(settings: Settings, tmp_path: Path) -> None:
    through(settings, *stages_before("filtered"))
    (tmp_path / "raw/a.tar").unlink()
    assert through(settings, "filtered").counts_out.images == 4


def test_a_raw_shard_that_changes_while_its_images_are_read(settings: Settings, tmp_path: Path) -> None:
    through(settings, *stages_before("image_scores"))

    def see(event: str, path: str) -> None:
        if path.endswith(f"/{ROWS}/a.parquet"):  # the rows, which are read when the tar is open
            os.utime(tmp_path / "raw/a.tar", (1, 1))

    with system_calls(see), pytest.raises(StorageError, match=r"raw/a\.tar changed while it was read"):
        through(settings, "image_scores")


def test_a_raw_shard_that_was_touched_or_moved_is_read(settings: Settings, tmp_path: Path) -> None:
    through(settings, *stages_before("final_tars"))
    os.utime(tmp_path / "raw/a.tar", (1, 1))
    through(settings, "final_tars")
    first = (tmp_path / "out/tars/a.tar").read_bytes()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "raw/a.tar").rename(tmp_path / "elsewhere/a.tar")
    (tmp_path / "out/tars/a.tar").unlink()
    text = (tmp_path / "interleaved.toml").read_text().replace('"raw"', '"elsewhere"')
    (tmp_path / "interleaved.toml").write_text(text)
    from interleaved_assets.settings import load_settings

    through(load_settings(tmp_path / "interleaved.toml"), "final_tars")
    assert (tmp_path / "out/tars/a.tar").read_bytes() == first


def with_locators(settings: Settings, change: Callable[[str], str]) -> None:
    """Edit the locators of the rows, as an attacker or a script would."""
    uri = settings.storage.shard("a").output(ROWS)
    rows = pq.read_table(uri)
    place = rows.column_names.index("source_ref")
    changed = [None if ref is None else change(ref) for ref in rows["source_ref"].to_pylist()]
    pq.write_table(rows.set_column(place, "source_ref", pa.array(changed, pa.string())), uri)


def test_edited_locators_are_refused(settings: Settings) -> None:
    through(settings, *stages_before("image_scores"))
    with_locators(settings, lambda ref: ref.replace('"byte_offset": ', '"byte_offset": 1'))
    with pytest.raises(ShardError, match=f"needs {ROWS}, whose outputs are not those that its record names"):
        through(settings, "image_scores")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda ref: ref.replace('"byte_offset": ', '"byte_offset": 99'), r"bytes instead of the \d+"),
        (lambda ref: ref.replace('"byte_size": ', '"byte_size": 1'), r"bytes instead of the \d+"),
        (lambda ref: "{", "Expecting property name"),
        (lambda ref: '{"path": "a"}', "the locator has no range"),
        (lambda ref: ref.replace("}", ', "frame_index": 1}'), "no TIFF: its one image is frame 0"),
    ],
)
def test_a_locator_that_leads_to_no_image_names_the_row(
    settings: Settings, tmp_path: Path, change: Callable[[str], str], problem: str
) -> None:
    """The Parquet reader of the library has no record to compare the file with."""
    from interleaved_assets.io.archive.source import open_tar
    from interleaved_assets.io.rows.fetch import ranges_of
    from interleaved_assets.io.rows.fill import fill_referenced

    through(settings, *stages_before("image_scores"))
    with_locators(settings, change)
    rows = pq.read_table(settings.storage.shard("a").output(ROWS))
    with open_tar(str(tmp_path / "raw/a.tar")) as tar, pytest.raises(ShardError, match=problem) as caught:
        list(fill_referenced([rows], tar.uri, ranges_of(tar), 2**20))
    assert "does not hold the image of sample 'doc-0-a', position 1" in str(caught.value)


def test_commands_read_files_of_rows_by_reference(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    through(settings)
    monkeypatch.chdir(tmp_path)
    assert main(["convert", "out/normalized/a.parquet", "-o", "tars", "--to", "tar"]) == 0
    assert main(["convert", "raw/a.tar", "-o", "direct", "--to", "tar"]) == 0
    assert (tmp_path / "tars/a.parquet.tar").read_bytes() == (tmp_path / "direct/a.tar").read_bytes()
    assert main(["validate", "out/filtered/a.parquet"]) == 0
    assert main(["view", "a", "--out", "page.html"]) == 0
    assert (tmp_path / "page.html").read_text().count("data:image/") >= 5
    assert main(["trace", "doc-0-b"]) == 0
    assert BINARY_SIZE not in capsys.readouterr().out


def test_an_old_record_with_copied_images_stays_valid(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "interleaved.toml"
    file.write_text(file.read_text().replace('image_bytes = "referenced"\n', ""))
    from interleaved_assets.settings import load_settings

    copied = load_settings(file)
    through(copied)
    file.write_text(file.read_text().replace("[errors]", 'image_bytes = "copied"\n[errors]'))
    dag = stage_dag(load_settings(file))
    assert take_through(dag["normalized"], "a", load_settings(file)).unchanged


def test_large_shards_are_read_in_parts(tmp_path: Path) -> None:
    settings = project(tmp_path, BY_REFERENCE + '[run]\nmax_batch_bytes = "1MiB"\n')
    images = {f"d{number:02}": document(sharp_image(number, 400, 300)) for number in range(12)}
    write_shard(tmp_path / "raw/a.tar", images)
    record = through(settings)
    assert record.counts_out.images == 12
    assert record.counts_out.image_bytes > 3 * 2**20


def test_an_image_that_is_no_image_is_an_error_of_its_row(tmp_path: Path) -> None:
    settings = project(tmp_path, BY_REFERENCE)
    write_shard(tmp_path / "raw/a.tar", {"a": document("text", b"no image", sharp_image(1))})
    through(settings, *stages_before("filtered"))
    scores = pq.read_table(tmp_path / "out/image_scores/a.parquet")
    assert [error and error.split(":")[0] for error in scores["score_error"].to_pylist()] == ["undecodable_image", None]


def test_the_setting_is_one_of_two(tmp_path: Path) -> None:
    with pytest.raises(InterleavedError, match=r"storage\.image_bytes"):
        project(tmp_path, 'image_bytes = "linked"\n')


def test_a_page_has_the_stored_thumbnails_once_the_raw_shard_is_gone(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    through(settings)
    (tmp_path / "raw/a.tar").unlink()
    monkeypatch.chdir(tmp_path)
    assert main(["view", "a", "--out", "page.html"]) == 0
    assert (tmp_path / "page.html").read_text().count("data:image/") >= 5
    assert "the pictures are the stored thumbnails: shard 'a' is not below" in caplog.text
