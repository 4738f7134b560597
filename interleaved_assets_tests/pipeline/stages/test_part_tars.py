"""Final tars that are split: which files there are, what their record says, and what a reader of the folder sees."""

import hashlib
import io
import json
import shutil
from pathlib import Path

import pytest
import xxhash

from interleaved_assets.model.errors import ReadBackError, ShardError, StorageError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stored_records import list_outputs, read_valid_records
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stages.webdataset_samples import webdataset_samples
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.status import CurrentStages, State
from interleaved_assets.pipeline.status.vanished import files_to_forget
from interleaved_assets.reporting.figures.collect import shard_facts
from interleaved_assets.settings import Settings, StorageSettings
from interleaved_assets_tests.defects import change_members
from interleaved_assets_tests.documents import document, project, sharp_image, write_shard
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.s3 import S3Server
from interleaved_assets_tests.s3_requests import counted_requests
from interleaved_assets_tests.system_calls import failing, system_calls

KEY = "web/a"
KEYS = [f"d{number}" for number in range(7)]
SPLIT = {"web/a~00000.tar": KEYS[:2], "web/a~00001.tar": KEYS[2:4], "web/a~00002.tar": KEYS[4:]}


def bounded(folder: Path, bounds: str = "") -> Settings:
    folder.mkdir(exist_ok=True)
    return project(folder, f"[final_tars]\n{bounds}\n")


def raw_shard(folder: Path, seed: int = 0) -> Path:
    documents = {key: document("words", sharp_image(seed + n, 16, 16), url=f"u{n}") for n, key in enumerate(KEYS)}
    return write_shard(folder / f"raw/{KEY}.tar", documents)


def through(settings: Settings) -> Record:
    """Take the shard through all stages; returns the record of the last one."""
    return take_all(settings, KEY)["final_tars"]


def tars(folder: Path) -> dict[str, list[str]]:
    """By path below the folder of the final tars, the keys of the samples of each tar; hidden files count as well."""
    found = sorted(path for path in (folder / "out/tars").rglob("*") if path.is_file())
    return {
        str(tar.relative_to(folder / "out/tars")): [key for key, _ in webdataset_samples(io.BytesIO(tar.read_bytes()))]
        for tar in found
    }


def split(settings: Settings, folder: Path) -> None:
    """A shard of seven documents that went through all stages with at most three samples a tar."""
    raw_shard(folder)
    through(settings)


pytestmark = pytest.mark.project("[final_tars]\nmax_samples_per_tar = 3\n", finish=split)


def test_records_that_were_copied_to_a_new_name_of_a_shard_are_none_of_it(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "raw/web/a.tar").rename(tmp_path / "raw/web/b.tar")
    for record in (tmp_path / "out/records").rglob("a.json"):
        shutil.copy(record, record.with_name("b.json"))
    assert read_dataset_status(settings).look("web/b").status.state is State.MISSING
    assert files_to_forget([KEY], settings.storage)[KEY]
    (tmp_path / "raw/web/b.tar").rename(tmp_path / "raw/web/c.tar")
    assert not [uri for uri in files_to_forget(["web/b"], settings.storage)["web/b"] if "/tars/" in uri]
    (tmp_path / "raw/web/c.tar").rename(tmp_path / "raw/web/b.tar")
    take_all(settings, "web/b")
    made = {path.replace("web/b", "web/a"): keys for path, keys in tars(tmp_path).items() if "web/b" in path}
    assert made == SPLIT
    assert {path: keys for path, keys in tars(tmp_path).items() if "web/a" in path} == SPLIT  # none was replaced


def test_a_changed_bound_replaces_the_tars_and_makes_only_this_stage_stale(settings: Settings, tmp_path: Path) -> None:
    assert tars(tmp_path) == SPLIT
    for bounds, expected in {
        "max_samples_per_tar = 2": [KEYS[:2], KEYS[2:4], KEYS[4:5], KEYS[5:]],
        "max_samples_per_tar = 5": [KEYS[:3], KEYS[3:]],
        "": [KEYS],
        "max_samples_per_tar = 4": [KEYS[:3], KEYS[3:]],
    }.items():
        changed = bounded(tmp_path, bounds)
        records = read_valid_records(changed.storage.shard(KEY), stage_dag(changed))
        assert {*CurrentStages.of(changed).not_current(records)} == {"final_tars"}, bounds
        record = through(changed)
        names = [f"web/a~{number:05d}.tar" for number in range(len(expected))] if bounds else ["web/a.tar"]
        assert tars(tmp_path) == dict(zip(names, expected, strict=True))
        assert [file.uri for file in record.rows_files.values()] == [f"{tmp_path}/out/tars/{name}" for name in names]
        assert take_through(stage_dag(changed)["final_tars"], KEY, changed).unchanged


def test_with_the_bound_off_again_outputs_are_those_of_a_shard_that_never_was_split(
    settings: Settings, tmp_path: Path
) -> None:
    raw_shard(tmp_path / "never")
    through(bounded(tmp_path / "never"))
    through(bounded(tmp_path))
    for name in (f"tars/{KEY}.tar", f"dropped/final_tars/{KEY}.parquet"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "never/out" / name).read_bytes()
    record = json.loads((tmp_path / f"never/out/records/final_tars/{KEY}.json").read_text())
    # a record of the version before splits is still current
    assert record["code_version"] == "2-" + hashlib.sha256(b'{"on_materialize_error": "error"}').hexdigest()[:12]
    assert ([*record["outputs"]], record["notes"], "parts" in record) == (["rows", "ledger"], {}, False)


def test_the_record_has_the_counts_of_each_part(settings: Settings, tmp_path: Path) -> None:
    record = through(settings)
    assert [*record.outputs] == ["rows-00000", "rows-00001", "rows-00002", "ledger"]
    assert [(role, counts.samples, counts.images) for role, counts in record.parts.items()] == [
        ("rows-00000", 2, 2),
        ("rows-00001", 2, 2),
        ("rows-00002", 3, 3),
    ]
    assert sum(counts.rows for counts in record.parts.values()) == record.counts_out.rows == 21
    sizes = [(tmp_path / "out/tars" / name).stat().st_size for name in SPLIT]
    assert record.notes == {"tars": 3, "smallest_tar_bytes": min(sizes), "largest_tar_bytes": max(sizes)}
    assert (record.counted["samples_read_back"], record.counted["bytes_read_back"]) == (7, sum(sizes))
    assert record.rows_uri == f"{tmp_path}/out/tars/web/a~{{00000..00002}}.tar"


@pytest.mark.parametrize("part", range(3))
def test_a_part_that_is_deleted_or_overwritten_makes_the_shard_stale(
    settings: Settings, tmp_path: Path, part: int
) -> None:
    tar = tmp_path / f"out/tars/web/a~{part:05d}.tar"
    tar.write_bytes(bytes(10_240))
    stage = stage_dag(settings)["final_tars"]
    assert "final_tars" not in read_valid_records(settings.storage.shard(KEY), ["final_tars"])
    assert not take_through(stage, KEY, settings).unchanged
    assert tars(tmp_path) == SPLIT
    tar.unlink()
    assert "final_tars" not in read_valid_records(settings.storage.shard(KEY), ["final_tars"])
    # all parts of before are found although one is missing, and go
    through(bounded(tmp_path))
    assert [*tars(tmp_path)] == ["web/a.tar"]


def test_the_tars_of_before_go_first_from_the_last_on_and_new_ones_appear_from_the_first_on(
    settings: Settings, tmp_path: Path
) -> None:
    before: list[list[str]] = []

    def see(event: str, path: str) -> None:
        if event in ("os.remove", "os.rename") and path.endswith(".tar"):
            before.append(tars_visible(tmp_path))

    raw_shard(tmp_path, seed=50)
    with system_calls(see):
        through(bounded(tmp_path, "max_samples_per_tar = 4"))
    three = ["a~00000.tar", "a~00001.tar", "a~00002.tar"]
    assert before == [three, three[:2], three[:1], [], [], three[:1]]  # the fourth: there is no a.tar to remove
    assert tars_visible(tmp_path) == three[:2]


def tars_visible(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "out/tars/web").glob("*.tar"))


def test_a_run_that_fails_while_it_writes_leaves_the_tars_of_before(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def full_disk(tar: str, name: str, content: bytes) -> tuple[str, bytes]:
        if name.startswith("d5"):
            raise StorageError("no space left")
        seen.append(name)
        return name, content

    change_members(monkeypatch, full_disk)
    raw_shard(tmp_path, seed=50)
    with pytest.raises(StorageError, match="no space left"):
        through(settings)
    assert seen
    assert tars(tmp_path) == SPLIT
    assert not (tmp_path / f"out/records/final_tars/{KEY}.json").exists()
    monkeypatch.undo()
    # without a record they are found, and replaced
    through(bounded(tmp_path, "max_samples_per_tar = 7"))
    assert tars(tmp_path) == {"web/a.tar": KEYS}


def test_a_run_that_is_ended_between_two_parts_is_made_good_by_the_next(settings: Settings, tmp_path: Path) -> None:
    with failing("os.rename", "~00001.tar", KeyboardInterrupt()), pytest.raises(KeyboardInterrupt):
        through(bounded(tmp_path, "max_samples_per_tar = 2"))
    assert tars(tmp_path) == {"web/a~00000.tar": KEYS[:2]}
    assert "final_tars" not in read_valid_records(settings.storage.shard(KEY), ["final_tars"])
    through(bounded(tmp_path))
    assert tars(tmp_path) == {"web/a.tar": KEYS}


def test_where_one_part_does_not_read_back_all_are_deleted(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw_shard(tmp_path, seed=90)
    change_members(monkeypatch, lambda tar, name, content: (name.replace("d3.1.png", "d3.1.jpg"), content))
    with pytest.raises(ReadBackError, match=r"a~00001\.tar: .*d3.*All 3 tars of the shard were deleted"):
        through(settings)
    assert tars(tmp_path) == {}


def test_a_bound_in_bytes_holds_for_the_files_and_a_larger_sample_stands_alone(tmp_path: Path) -> None:
    pixels = {"a": 250, "b": 250, "c": 650, "d": 350, "e": 350, "f": 350, "g": 100}
    documents = {key: document("words", sharp_image(n, side, side)) for n, (key, side) in enumerate(pixels.items())}
    write_shard(tmp_path / f"raw/{KEY}.tar", documents)
    settings = bounded(tmp_path, 'max_tar_bytes = "1MiB"')
    record = through(settings)
    found = tars(tmp_path)
    assert [*found.values()] == [["a", "b"], ["c"], ["d", "e"], ["f", "g"]]
    sizes = [file.size for file in record.rows_files.values()]
    assert [size <= 2**20 for size in sizes] == [True, False, True, True]
    assert record.notes["tars_over_max_tar_bytes"] == 1
    assert record.notes["samples_over_max_tar_bytes"] == "c"
    both = through(bounded(tmp_path, 'max_tar_bytes = "1MiB"\nmax_samples_per_tar = 1'))
    assert [counts.samples for counts in both.parts.values()] == [1] * 7
    assert both.notes["largest_tar_bytes"] == max(sizes)


def test_too_many_tars_are_refused(settings: Settings, tmp_path: Path) -> None:
    write_shard(tmp_path / f"raw/{KEY}.tar", {f"d{number}": document("words") for number in range(513)})
    with pytest.raises(ShardError, match=r"ask for 257 tars of its 513 samples, .* has at most 256; raise max_"):
        through(bounded(tmp_path, "max_samples_per_tar = 2"))
    assert tars(tmp_path) == SPLIT


def test_samples_that_the_error_policy_drops_do_not_count(tmp_path: Path) -> None:
    documents = {key: document("words", sharp_image(n, 16, 16)) for n, key in enumerate(KEYS)}
    documents["d1"][0]["texts"] = ["words", None, None]
    documents["d1"][0]["images"] = [None, sharp_image(1, 16, 16), None]
    tar = write_shard(tmp_path / f"raw/{KEY}.tar", documents)
    # another name in the JSON, of the same length
    tar.write_bytes(tar.read_bytes().replace(b'"d1.1.png"', b'"d1.9.png"'))
    kept = '[errors]\non_materialize_error = "warn"\n[selection]\non_score_error = "warn"'
    through(bounded(tmp_path, f"{kept}\n[publish]\nunreferenced_images = true"))
    settings = bounded(tmp_path, 'max_samples_per_tar = 3\n[errors]\non_materialize_error = "drop_sample"')
    record = take_through(stage_dag(settings)["final_tars"], KEY, settings).record
    assert [*tars(tmp_path).values()] == [["d0", "d2", "d3"], ["d4", "d5", "d6"]]
    assert (record.counts_in.samples, record.counts_out.samples) == (7, 6)


def test_a_shard_without_samples_has_one_tar(tmp_path: Path) -> None:
    write_shard(tmp_path / f"raw/{KEY}.tar", {})
    assert [*through(bounded(tmp_path, "max_samples_per_tar = 1")).rows_files] == ["rows"]
    assert tars(tmp_path) == {"web/a.tar": []}


def test_the_report_names_the_content_of_all_parts(settings: Settings, tmp_path: Path) -> None:
    hashes = [f"xxh3:{xxhash.xxh3_128_hexdigest((tmp_path / 'out/tars' / name).read_bytes())}" for name in SPLIT]
    assert shard_facts(KEY, settings).published[-1] == f"final:{'+'.join(hashes)}"


def test_parts_in_a_bucket(tmp_path: Path, s3_server: S3Server, bucket: str) -> None:
    raw = raw_shard(tmp_path)
    s3_server.fs.put_file(str(raw), f"{bucket}/raw/{KEY}.tar")
    storage = StorageSettings(raw_root=f"{bucket}/raw", output_root=f"{bucket}/out", options=s3_server.storage_options)

    def of(bounds: str) -> Settings:
        return bounded(tmp_path, bounds).model_copy(update={"storage": storage})

    def stored() -> dict[str, list[str]]:
        s3_server.fs.invalidate_cache()
        found = sorted(s3_server.fs.find(f"{bucket}/out/tars"))
        return {
            path.rpartition("/")[2]: [key for key, _ in webdataset_samples(io.BytesIO(s3_server.fs.cat_file(path)))]
            for path in found
        }

    first = through(of("max_samples_per_tar = 3"))
    assert [*stored().values()] == [*SPLIT.values()]
    assert all(file.stamp is not None for file in first.rows_files.values())
    with counted_requests() as requests:
        through(of("max_samples_per_tar = 5"))
    assert stored() == {"a~00000.tar": KEYS[:3], "a~00001.tar": KEYS[3:]}
    changes = [request for request in requests if "/tars/" in request and request[:3] in ("DEL", "PUT", "POS")]
    kinds = [request.partition(" ")[0] for request in changes]
    # each is uploaded; then those of before go, and both uploads are completed
    assert kinds == ["POST", "PUT"] * 2 + ["DELETE"] * 4 + ["POST"] * 2, changes
    listed = list_outputs(storage, stage_dag(of("")).values())
    assert [*read_valid_records(storage.shard(KEY), ["final_tars"], listed)] == ["final_tars"]
    through(of(""))
    assert stored() == {"a.tar": KEYS}
