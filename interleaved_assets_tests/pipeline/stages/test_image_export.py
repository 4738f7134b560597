"""The images that selection kept as tars: which they are, what goes with them, and what is left behind."""

import itertools
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io import ShardLayout, read_tar_shard
from interleaved_assets.model import IncompleteShard, ShardError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stored_records import list_outputs, read_records, read_valid_records
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stages.names import IMAGE_EXPORT
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.status import CurrentStages
from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.pipeline.damage import accept_outputs
from interleaved_assets_tests.pipeline.runs import valid_record
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.system_calls import system_calls

ON = "[export]\nenabled = true\nimages_per_tar = 3\n"
KEY = "web/a"


def through_all(settings: Settings, key: str = KEY) -> Record:
    """The record of the last stage."""
    return [*take_all(settings, key).values()][-1]


def image_files(folder: Path, key: str = KEY) -> set[str]:
    return {path.name for path in (folder / "out/images" / key).glob("[!.]*") if path.is_file()}


def tars(record: Record) -> list[str]:
    return [output.uri for role, output in record.outputs.items() if role.endswith(".tar")]


pytestmark = pytest.mark.project(ON, shards={KEY: 0})


def test_the_stage_is_there_if_it_is_enabled(tmp_path: Path) -> None:
    assert IMAGE_EXPORT not in stage_dag(project(tmp_path))
    stages = stage_dag(project(tmp_path, ON))
    assert list(stages)[-1] == IMAGE_EXPORT
    assert stages[IMAGE_EXPORT].inputs == ("filtered", "image_scores", "final_tars")


def test_every_image_that_was_kept_is_in_the_tars(settings: Settings, tmp_path: Path) -> None:
    record = through_all(settings)
    assert (record.counts_in.rows, record.counts_out.rows, record.dropped, record.errors) == (4, 4, {}, {})
    assert record.counts_out == record.counts_in
    assert record.notes["tars"] == 2
    name = record.notes["name"]
    files = {f"images-{name}-{chunk:06}.{kind}" for chunk in (0, 1) for kind in ("tar", "parquet")}
    assert record.outputs.keys() == {"rows", "ledger", *files}
    assert image_files(tmp_path) == files
    rows = pq.read_table(record.outputs["rows"].uri).to_pylist()
    kept = pq.read_table(tmp_path / f"out/filtered/{KEY}.parquet").to_pylist()
    images = [row for row in kept if row["modality"] == "image"]
    assert [(row["sample_id"], row["position"]) for row in rows] == [
        (row["sample_id"], row["position"]) for row in images
    ]
    scores = pq.read_table(tmp_path / f"out/image_scores/{KEY}.parquet").to_pylist()
    sharpness = {(row["sample_id"], row["position"]): row["sharpness"] for row in scores}
    assert all(row["sharpness"] == sharpness[row["sample_id"], row["position"]] for row in rows)
    assert [(row["text_before"], row["text_after"]) for row in rows] == [
        ("one two three", "four"),
        ("five six", None),
        (None, "seven"),
        ("seven", "eight nine"),
    ]
    assert rows[0]["original_path"] == f"{tmp_path}/raw/{KEY}.tar/doc-0-a.1.png"
    back = [
        row
        for tar in tars(record)
        for table in read_tar_shard(tar, layout=ShardLayout(layout="images"), materialize=True)
        for row in table.to_pylist()
    ]
    assert [row["binary_content"] for row in back if row["modality"] == "image"] == [
        row["binary_content"] for row in images
    ]
    assert [row["sample_id"] for row in back if row["position"] < 0] == [row["image_id"] for row in rows]
    assert [row["sharpness"] for row in back if row["position"] < 0] == [row["sharpness"] for row in rows]


def test_scores_follow_their_images_where_positions_were_renumbered(tmp_path: Path) -> None:
    documents = {
        "a": document(blurred_image(), "one", sharp_image(1, 40), blurred_image(), sharp_image(2, 41)),
        "b": document(blurred_image(), "two"),
        "c": document("three", sharp_image(3, 42)),
    }
    write_shard(tmp_path / f"raw/{KEY}.tar", documents)
    record = through_all(project(tmp_path, f"{ON}[selection]\nreindex_positions = true\n"))
    rows = pq.read_table(record.outputs["rows"].uri).to_pylist()
    assert [(row["sample_id"], row["position"], row["original_position"], row["width"]) for row in rows] == [
        ("a", 1, 2, 40),
        ("a", 2, 4, 41),
        ("c", 1, 1, 42),
    ]
    assert rows[0]["image_id"].startswith("a-0002-")


def test_an_export_by_other_settings_replaces_the_one_before(settings: Settings, tmp_path: Path) -> None:
    first = through_all(settings)
    other = through_all(project(tmp_path, ON.replace("3", "2")))
    assert other.notes["name"] != first.notes["name"]
    assert image_files(tmp_path) == other.outputs.keys() - {"rows", "ledger"}
    again = through_all(project(tmp_path, ON))
    assert {role: output.content for role, output in again.outputs.items()} == {
        role: output.content for role, output in first.outputs.items()
    }
    fewer = through_all(project(tmp_path, f"{ON}[selection]\nmin_sharpness = 1e9\n"))
    assert (fewer.counts_out.rows, image_files(tmp_path)) == (0, set())


def test_nothing_is_done_again_and_a_missing_tar_is_noticed(settings: Settings, tmp_path: Path) -> None:
    record = through_all(settings)
    stage = stage_dag(settings)[IMAGE_EXPORT]
    assert take_through(stage, KEY, settings).unchanged
    assert take_through(stage, KEY, project(tmp_path, f"{ON}verbose = true\nquality = 5\n")).unchanged
    Path(tars(record)[1]).unlink()
    dataset = read_dataset_status(settings)
    assert dataset.status(KEY, dataset.valid_records(KEY)).text.startswith("no image_export: its files are not those")
    assert not take_through(stage, KEY, settings).unchanged
    assert valid_record(settings.storage.shard(KEY).record(IMAGE_EXPORT)) is not None


def test_random_names_are_other_names_each_time(tmp_path: Path) -> None:
    good_shard(tmp_path / f"raw/{KEY}.tar")
    settings = project(tmp_path, f"{ON}deterministic_name = false\n")
    first = through_all(settings)
    assert through_all(settings) == first
    Path(tars(first)[0]).unlink()
    second = through_all(settings)
    assert second.notes["name"] != first.notes["name"]
    assert image_files(tmp_path) == second.outputs.keys() - {"rows", "ledger"}


class Stopped(BaseException):
    """What ends a run: not caught by the code under test."""


@contextmanager
def stopped_at(moment: int, *, before: bool) -> Iterator[None]:
    """End the run at the file of that number: before it is in place, or at the next call after that."""
    renamed = 0

    def see(event: str, path: str) -> None:
        nonlocal renamed
        if not before and renamed == moment:
            raise Stopped
        renamed += event == "os.rename"
        if before and renamed == moment:
            raise Stopped

    with system_calls(see):
        yield


def test_a_run_that_is_stopped_at_any_moment_leaves_no_half_export_that_counts(
    settings: Settings, tmp_path: Path
) -> None:
    through_all(settings)
    place = settings.storage.shard(KEY)
    others = itertools.cycle([project(tmp_path, ON.replace("3", "2")), settings])
    # two tars and their tables, the table of all images, the ledger, the record
    for moment, before in itertools.product(range(1, 8), (True, False)):
        changed = next(others)
        stage = stage_dag(changed)[IMAGE_EXPORT]
        with stopped_at(moment, before=before), suppress(Stopped):
            take_through(stage, KEY, changed)
            assert (moment, before) == (7, False)  # nothing follows the record
        # the files that the table of all images names are there, all of one export
        named = set(pq.read_table(place.output(IMAGE_EXPORT))["tar_file"].to_pylist())
        assert named <= image_files(tmp_path)
        (name,) = {file.split("-")[1] for file in named}
        record = valid_record(place.record(IMAGE_EXPORT))
        assert record is None or record.notes["name"] == name
        done = take_through(stage, KEY, changed).record
        assert image_files(tmp_path) == done.outputs.keys() - {"rows", "ledger"}
        assert len(image_files(tmp_path)) == 4


def test_images_that_cannot_be_written_anew_are_in_the_ledger(tmp_path: Path) -> None:
    damaged = sharp_image(9)[:400]
    documents = {f"doc-{number}": document("text", sharp_image(number)) for number in range(3)}
    write_shard(tmp_path / f"raw/{KEY}.tar", {**documents, "bad": document("text", damaged)})
    lenient = f'{ON}reencode = "jpeg"\n[selection]\non_score_error = "warn"\n'
    with pytest.raises(IncompleteShard, match=r"1 of 4 samples lost rows to errors in image_export"):
        through_all(project(tmp_path, f"{lenient}[publish]\nmax_lost_samples = 0.2\n"))
    record = through_all(project(tmp_path, lenient))
    assert (record.counts_in.rows, record.counts_out.rows) == (4, 3)
    assert record.dropped == record.errors == {"undecodable_image": 1}
    (row,) = pq.read_table(record.outputs["ledger"].uri).to_pylist()
    assert (row["sample_id"], row["position"], row["stage"]) == ("bad", 1, "image_export")
    assert record.counts_out.image_bytes < record.counts_in.image_bytes


def test_scores_of_other_images_are_refused(settings: Settings, tmp_path: Path) -> None:
    through_all(settings)
    stored = Path(settings.storage.shard(KEY).output("image_scores"))
    scores = pq.read_table(stored)
    stage = stage_dag(project(tmp_path, ON.replace("3", "9")))[IMAGE_EXPORT]
    for wrong in (lambda table: table.slice(1), lambda table: table.take([4, 1, 2, 3, 0])):
        pq.write_table(wrong(scores), stored)
        accept_outputs(settings, "image_scores", KEY)
        with pytest.raises(ShardError, match="shard web/a: the scores less the dropped images are not those"):
            take_through(stage, KEY, project(tmp_path, ON.replace("3", "9")))


def test_aesthetic_and_nsfw_bounds_hold_for_the_export_too(settings: Settings, tmp_path: Path) -> None:
    bounded = project(tmp_path, f"{ON}[selection]\nmax_aspect_ratio = 1.0\n")
    assert through_all(bounded).counts_out.rows == 0
    assert through_all(settings).counts_out.rows == 4


def test_a_copied_output_tree_is_not_made_again(settings: Settings, tmp_path: Path) -> None:
    record = through_all(settings)
    shutil.copytree(tmp_path / "out", tmp_path / "elsewhere")
    storage = settings.storage.model_copy(update={"output_root": str(tmp_path / "elsewhere")})
    moved = settings.model_copy(update={"storage": storage})
    shutil.rmtree(tmp_path / "out")
    outcome = take_through(stage_dag(moved)[IMAGE_EXPORT], KEY, moved)
    assert outcome.unchanged
    assert all(output.uri.startswith(str(tmp_path / "elsewhere")) for output in outcome.record.outputs.values())
    assert outcome.record.outputs.keys() == record.outputs.keys()


def test_status_says_which_setting_changed(settings: Settings, tmp_path: Path) -> None:
    through_all(settings)
    records = read_records(settings.storage.shard(KEY), stage_dag(settings))
    changed = project(tmp_path, ON.replace("3", "5"))
    (status,) = CurrentStages.of(changed).not_current(records).values()
    assert status.text == "image_export stale: settings changed: export.images_per_tar 3 → 5"


def test_shards_below_one_another_keep_their_files_apart(tmp_path: Path) -> None:
    settings = project(tmp_path, ON)
    for seed, key in enumerate(("a", "a/b", "a/images-0123456789abcdef-000000")):
        good_shard(tmp_path / f"raw/{key}.tar", seed=seed)
        through_all(settings, key)
    through_all(project(tmp_path, ON.replace("3", "1")), "a")
    assert len(image_files(tmp_path, "a")) == 8
    assert len(image_files(tmp_path, "a/b")) == 4
    (tmp_path / "raw/a.tar").unlink()
    found = files_to_forget(["a"], settings.storage)
    assert sum("/images/" in uri for uri in found["a"]) == 8
    remove_files(found, settings.storage)
    assert image_files(tmp_path, "a") == set()
    assert len(image_files(tmp_path, "a/b")) == len(image_files(tmp_path, "a/images-0123456789abcdef-000000")) == 4


def test_forget_finds_what_is_left_of_a_stopped_export(settings: Settings, tmp_path: Path) -> None:
    record = through_all(settings)
    (tmp_path / f"out/records/image_export/{KEY}.json").unlink()
    (tmp_path / f"raw/{KEY}.tar").unlink()
    found = files_to_forget([KEY], settings.storage)
    assert set(tars(record)) <= found[KEY].keys()
    remove_files(found, settings.storage)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


def test_in_a_bucket(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    storage = StorageSettings(raw_root=f"{bucket}/raw", output_root=f"{bucket}/out", options=s3_server.storage_options)
    settings = project(tmp_path, ON).model_copy(update={"storage": storage})
    s3_server.fs.put_file(str(good_shard(tmp_path / "a.tar")), f"{bucket}/raw/{KEY}.tar")
    record = through_all(settings)
    assert [uri.startswith(f"{bucket}/out/images/{KEY}/") for uri in tars(record)] == [True, True]
    listed = list_outputs(storage, stage_dag(settings).values())
    assert [listed[output.uri] for output in record.outputs.values()] == [
        output.stamp for output in record.outputs.values()
    ]
    valid = read_valid_records(storage.shard(KEY), stage_dag(settings), listed)
    assert list(valid) == list(stage_dag(settings))
    assert take_through(stage_dag(settings)[IMAGE_EXPORT], KEY, settings).unchanged
    (table,) = read_tar_shard(
        tars(record)[1], layout=ShardLayout(layout="images"), materialize=True, storage_options=storage.options
    )
    assert pc.sum(pc.equal(table["modality"], "image")).as_py() == 1
    through_all(settings.model_copy(update={"export": settings.export.model_copy(update={"images_per_tar": 9})}))
    s3_server.fs.invalidate_cache()
    assert len(s3_server.fs.find(f"{bucket}/out/images")) == 2
    s3_server.fs.rm(f"{bucket}/raw/{KEY}.tar")
    s3_server.fs.put_file(str(tmp_path / "a.tar"), f"{bucket}/raw/b.tar")
    remove_files(files_to_forget([KEY], storage), storage)
    s3_server.fs.invalidate_cache()
    assert [path for path in s3_server.fs.find(f"{bucket}/out") if not path.endswith("/out")] == []


def test_clip_scores_go_along(tmp_path: Path) -> None:
    stage = stage_dag(project(tmp_path, f'{ON}[clip]\nenabled = true\nmodel = "ViT-B-32"\npretrained = "openai"\n'))
    assert stage[IMAGE_EXPORT].inputs == ("filtered", "image_scores", "clip_scores", "final_tars")


def test_exported_tars_are_raw_shards_of_another_project(settings: Settings, tmp_path: Path) -> None:
    record = through_all(settings)
    (tmp_path / "second").mkdir()
    second = project(tmp_path / "second", f'{ON}[reading]\nlayout = "images"\n')
    for number, tar in enumerate(tars(record)):
        shutil.copy(tar, tmp_path / f"second/raw/{number}.tar")
    found = [through_all(second, str(number)) for number in (0, 1)]
    assert [one.counts_out.rows for one in found] == [3, 1]
    first = pq.read_table(record.outputs["rows"].uri)["sharpness"].to_pylist()
    again = [row for one in found for row in pq.read_table(one.outputs["rows"].uri)["sharpness"].to_pylist()]
    assert again == first
    assert (
        json.loads((tmp_path / "second/out/records/normalized/0.json").read_text())["counted"]["unreferenced_members"]
        == 0
    )


def test_fields_of_documents_are_in_the_table_and_beside_each_image(tmp_path: Path) -> None:
    metadata = [{"width": 64, "page": 1}, {"width": 64, "page": 2}]
    documents = {
        "a": document(
            *("one", sharp_image(1), sharp_image(2)),
            url="https://example.org/a",
            license="CC-BY 4.0",
            image_metadata=metadata,
            tags=["x", "y"],
        ),
        "b": document("two", sharp_image(3), year=2024),
    }
    write_shard(tmp_path / f"raw/{KEY}.tar", documents)
    record = through_all(project(tmp_path, ON))
    kept = pq.read_schema(tmp_path / f"out/filtered/{KEY}.parquet")
    rows = pq.read_table(record.outputs["rows"].uri)
    expected = {
        "url": ["https://example.org/a"] * 2 + [None],
        "license": ["CC-BY 4.0"] * 2 + [None],
        "image_metadata": [*metadata, None],
        "tags": [["x", "y"]] * 2 + [None],
        "year": [None, None, 2024],
    }
    for name, values in expected.items():
        assert (rows[name].to_pylist(), rows.schema.field(name).type) == (values, kept.field(name).type)
        assert name in record.columns
    back = [
        row
        for tar in tars(record)
        for table in read_tar_shard(tar, layout=ShardLayout(layout="images"), materialize=True)
        for row in table.to_pylist()
        if row["position"] < 0
    ]
    assert {name: [row[name] for row in back] for name in expected} == expected
