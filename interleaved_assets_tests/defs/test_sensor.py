"""The sensor over the raw root, evaluated as the daemon does: what it registers, reports and requests."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import LARGEST_GAP
from interleaved_assets.io import read_shard
from interleaved_assets.pipeline.status.vanished import files_to_forget, remove_files
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import Watcher, instance_on_disk, materialized, run_chain, unfinished_run
from interleaved_assets_tests.documents import document, good_shard, project, refuse_listing, sharp_image, write_shard
from interleaved_assets_tests.restorable import Restorable
from interleaved_assets_tests.system_calls import failing, system_calls

AT_ONCE = "[watch]\nquiet_seconds = 0\n"


class Project:
    """A project with its sensor and an instance."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.raw, self.instance = folder, folder / "raw", instance
        self.sensor = Watcher(instance, project(folder, AT_ONCE))

    @property
    def settings(self) -> Settings:
        return self.sensor.settings

    def configure(self, text: str = AT_ONCE) -> None:
        self.sensor.settings = project(self.folder, text)

    def put(self, name: str, seed: int) -> None:
        good_shard(self.raw / f"{name}.tar", seed=seed)

    def run(self, *keys: str) -> bool:
        return run_chain(self.instance, self.settings, keys).success

    def partitions(self) -> list[str]:
        return list(self.instance.get_dynamic_partitions(SHARDS))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Project]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Project(tmp_path, instance)


class MadeOnce(NamedTuple):
    """The project of the fixture ``done``, and what its sensor has."""

    project: Restorable
    cursor: str | None
    run_keys: list[str | None]


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    folder = tmp_path_factory.mktemp("made") / "project"
    folder.mkdir()
    with instance_on_disk(folder / "home") as instance:
        made = Project(folder, instance)
        for number, name in enumerate("ab"):
            made.put(name, number)
        assert made.sensor.requested() == ["a", "b"]
        assert made.run("a", "b")
    return MadeOnce(Restorable(folder), made.sensor.cursor, made.sensor.run_keys)


@pytest.fixture
def done(made_once: MadeOnce) -> Iterator[Project]:
    """A project whose shards a and b, with the seeds 0 and 1, were requested by the sensor and have run."""
    folder = made_once.project.restore()
    with instance_on_disk(folder / "home") as instance:
        project = Project(folder, instance)
        project.sensor.cursor = made_once.cursor
        project.sensor.run_keys = list(made_once.run_keys)
        yield project


def test_shards_are_registered_reported_and_requested_a_few_at_a_time_and_once(own: Project) -> None:
    own.configure("[watch]\nquiet_seconds = 0\nmax_per_tick = 2\n")
    for number, name in enumerate("abc"):
        own.put(name, number)
    assert [own.sensor.requested() for _ in range(3)] == [["a", "b"], ["c"], []]
    assert own.sensor.observed == ["a", "b", "c"]
    assert all(version.startswith("xxh3:") for version in own.sensor.versions.values())
    assert own.partitions() == ["a", "b", "c"]
    before = own.sensor.versions["b"]
    own.put("b", 7)
    assert own.sensor.requested() == ["b"]
    assert own.sensor.versions["b"] != before


def test_a_shard_that_is_written_in_place_with_the_same_size_and_time_is_requested_and_made(own: Project) -> None:
    words = {"before": "one two", "after": "two one"}
    written = {name: document(text, sharp_image(1)) for name, text in words.items()}
    after = write_shard(own.folder / "after.tar", {"a": written["after"]}).read_bytes()
    tar = write_shard(own.raw / "a.tar", {"a": written["before"]})
    own.sensor.tick()
    assert own.run("a")
    before = tar.stat()
    assert before.st_size == len(after)
    time.sleep(0.02)  # the clock of a file system ticks every few milliseconds
    tar.write_bytes(after)
    os.utime(tar, ns=(before.st_atime_ns, before.st_mtime_ns))  # as cp -p and rsync --inplace -t do
    assert own.sensor.requested() == ["a"]
    assert own.run("a")
    assert pa.concat_tables(read_shard(str(own.folder / "out/tars/a.tar")))["text_content"].to_pylist()[1] == "two one"


def test_another_file_of_a_bundle_requests_and_makes_its_shard_alone(own: Project) -> None:
    own.configure("bundles = {images = 2}\n" + AT_ONCE)
    (own.raw / "photos").mkdir(parents=True)
    for number in range(6):
        (own.raw / f"photos/{number}.png").write_bytes(sharp_image(number))
    keys = ["photos/images-0-of-2", "photos/images-1-of-2"]
    assert own.sensor.requested() == keys
    assert own.run(*keys)
    assert materialized(own.instance, "final_tars") == set(keys)
    assert own.sensor.tick() == "2 unchanged"
    tars = {key: own.folder / f"out/tars/{key}.tar" for key in keys}
    before = {key: tar.read_bytes() for key, tar in tars.items()}
    (own.raw / "photos/new.png").write_bytes(sharp_image(9))
    (changed,) = own.sensor.requested()
    assert own.run(changed)
    assert [key for key, tar in tars.items() if tar.read_bytes() != before[key]] == [changed]
    ids = pa.concat_tables(read_shard(str(tars[changed])))["sample_id"].to_pylist()
    assert "new" in ids
    assert own.sensor.tick() == "2 unchanged"


def test_a_tick_that_requests_nothing_says_what_it_found(done: Project) -> None:
    (done.raw / "notes.txt").touch()
    assert done.sensor.tick() == "2 unchanged, 1 file ignored"
    (done.raw / "c.tar").symlink_to(done.raw / "nowhere.tar")
    done.configure("[watch]\nquiet_seconds = 600\n")
    done.put("b", 10)
    done.put("d", 11)
    assert done.sensor.tick() == "3 waiting to be unchanged for watch.quiet_seconds, 1 unchanged, 1 file ignored"
    done.configure()
    done.sensor.cursor = None
    assert done.sensor.requested() == ["b", "d"]
    assert done.sensor.tick() == "3 unchanged, 1 not readable, 1 file ignored"


def test_a_shard_that_vanishes_with_outputs_keeps_its_partition(done: Project) -> None:
    (done.raw / "a.tar").unlink()
    said = "1 unchanged, 1 vanished, their outputs are kept until interleaved forget"
    assert [done.sensor.tick() for _ in range(2)] == [said] * 2
    assert done.partitions() == ["a", "b"]


def test_a_folder_that_cannot_be_listed_changes_nothing_for_its_shards(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("a", "web/b")):
        own.put(name, number)
    assert own.sensor.requested() == ["a", "web/b"]
    with monkeypatch.context() as refused:
        refuse_listing(refused, own.raw / "web")
        assert own.sensor.tick() == "2 unchanged"
    assert own.partitions() == ["a", "web/b"]
    assert own.sensor.tick() == "2 unchanged"


def test_a_shard_that_vanishes_before_anything_was_made_of_it_leaves_no_partition(own: Project) -> None:
    for name in "ab":
        own.put(name, ord(name))
    own.sensor.tick()
    aside = (own.raw / "a.tar").rename(own.folder / "a.tar")
    assert own.sensor.tick() == "1 unchanged, 1 without tar and outputs, removed"
    assert own.partitions() == ["b"]
    assert own.sensor.tick() == "1 unchanged"
    aside.rename(own.raw / "a.tar")
    assert own.sensor.requested() == ["a"]


def test_partitions_are_removed_a_few_at_a_time(own: Project) -> None:
    own.configure("[watch]\nquiet_seconds = 0\nmax_per_tick = 2\n")
    own.raw.mkdir(exist_ok=True)
    own.instance.add_dynamic_partitions(SHARDS, ["a", "b", "c"])
    said = [own.sensor.tick() for _ in range(3)]
    assert said == [
        "2 without tar and outputs, removed",
        "1 without tar and outputs, removed",
        "no shards",
    ]


def test_shards_of_another_raw_root_leave_no_partition(done: Project) -> None:
    """The way from the demo to own data: both roots are other ones, the Dagster instance stays."""
    other = done.folder / "other"
    other.mkdir()
    done.sensor.settings = project(other, AT_ONCE)
    good_shard(other / "raw" / "b.tar", seed=9)
    assert done.sensor.requested() == ["b"]
    assert done.partitions() == ["b"]
    assert run_chain(done.instance, done.settings, ["b"]).success


def test_a_partition_on_which_a_run_works_is_not_removed(own: Project) -> None:
    own.put("a", 1)
    own.sensor.tick()
    (own.raw / "a.tar").unlink()
    run = unfinished_run(own.instance, own.settings, "a")
    own.sensor.tick()
    assert own.partitions() == ["a"]
    own.instance.report_run_canceled(run)
    own.sensor.tick()
    assert own.partitions() == []


def test_a_partition_that_was_deleted_comes_back_while_its_tar_is_there(own: Project) -> None:
    for name in "ab":
        own.put(name, ord(name))
    own.sensor.tick()
    own.instance.delete_dynamic_partition(SHARDS, "a")
    assert own.sensor.tick() == "1 registered, 2 unchanged"
    assert sorted(own.partitions()) == ["a", "b"]


def test_a_tick_whose_result_was_lost_is_made_up_for(own: Project) -> None:
    own.put("a", 1)
    for before in (None, own.sensor.cursor):
        own.sensor.cursor = before
        assert own.sensor.requested() == ["a"]
    # Dagster launches a run once for each key: the first request may have been stored
    assert len(set(own.sensor.run_keys)) == 1
    own.put("b", 2)
    before = own.sensor.cursor
    assert own.sensor.requested() == ["b"]
    own.sensor.cursor = before
    assert own.sensor.requested() == ["b"]


def test_a_snapshot_that_cannot_be_read_means_looking_at_everything_anew(done: Project) -> None:
    snapshot = done.folder / "out/state/raw_shards.parquet"
    snapshot.unlink()
    assert done.sensor.requested() == []
    snapshot.write_bytes(snapshot.read_bytes()[:40])
    assert done.sensor.requested() == []
    done.put("b", 9)
    pq.write_table(pa.table({"other": [1]}), snapshot)
    assert done.sensor.requested() == ["b"]
    assert done.sensor.requested() == []


def test_storage_that_does_not_answer_is_asked_again_by_the_next_tick(done: Project) -> None:
    done.put("b", 9)
    before, lost = done.sensor.cursor, TimeoutError(errno.ETIMEDOUT, "Connection timed out")
    with failing("open", "out/state/raw_shards.parquet", lost):
        assert done.sensor.tick().startswith("the storage did not answer, the next tick tries again: ")
    assert (done.sensor.ranges, done.sensor.cursor) == ([], before)
    with failing("open", "raw/b.tar", lost):
        assert done.sensor.requested() == []
    assert done.sensor.requested() == ["b"]


def test_after_a_reset_of_the_cursor_no_current_shard_is_requested(done: Project) -> None:
    for cursor in (None, "from the start", "9" * 5000):
        done.sensor.cursor = cursor
        assert done.sensor.requested() == []
    done.put("a", 9)
    assert done.sensor.requested() == ["a"]


def test_a_start_from_the_beginning_uses_no_run_key_again(own: Project) -> None:
    # Dagster launches no run whose key an earlier run of the sensor has
    own.put("a", 1)
    assert own.sensor.requested() == ["a"]
    shutil.rmtree(own.folder / "out")
    own.sensor.cursor = None
    assert own.sensor.requested() == ["a"]
    assert len(set(own.sensor.run_keys)) == 2


def test_after_outputs_came_back_from_a_backup_what_they_lack_is_requested_under_a_new_key(own: Project) -> None:
    own.put("a", 1)
    assert own.sensor.requested() == ["a"]
    shutil.copytree(own.folder / "out", own.folder / "backup")
    own.put("b", 2)
    assert own.sensor.requested() == ["b"]
    assert own.run("a", "b")
    shutil.rmtree(own.folder / "out")
    (own.folder / "backup").rename(own.folder / "out")
    (own.raw / "b.tar").unlink()
    assert own.sensor.requested() == ["a"]
    assert len(set(own.sensor.run_keys)) == 3
    assert own.sensor.requested() == []


def test_after_the_instance_came_back_from_a_backup_shards_that_its_runs_were_to_make_are_requested(
    done: Project,
) -> None:
    cursor = done.sensor.cursor
    for number, name in enumerate("cd"):
        done.put(name, number + 5)
        assert done.sensor.requested() == [name]
    for name in "cd":
        done.instance.delete_dynamic_partition(SHARDS, name)
    done.sensor.cursor = cursor
    assert done.sensor.requested() == ["c", "d"]
    assert done.sensor.requested() == []


def test_a_second_instance_with_its_sensor_on_does_not_request_what_failed_at_each_tick(
    own: Project, capfd: pytest.CaptureFixture[str]
) -> None:
    own.put("a", 1)
    (own.raw / "b.tar").write_bytes(b"no tar" * 300)
    assert own.sensor.requested() == ["a", "b"]
    assert not own.run("a", "b")
    with dg.DagsterInstance.ephemeral() as second:
        other = Watcher(second, own.settings)
        assert other.requested() == ["a", "b"]
        assert not run_chain(second, own.settings, ["a", "b"]).success
        assert "another instance has its sensor on" not in capfd.readouterr().err
        assert [sensor.requested() for sensor in (own.sensor, other) * 2] == [[]] * 4
        assert "another instance has its sensor on" in capfd.readouterr().err
        (own.raw / "b.tar").write_bytes(b"no tar either" * 300)
        assert own.sensor.requested() == ["b"]


def test_a_content_that_comes_back_after_another_one_is_requested_under_a_key_of_its_own(done: Project) -> None:
    for seed in (9, 0):
        done.put("a", seed)
        assert done.sensor.requested() == ["a"]
        assert done.run("a")
    done.put("a", 9)
    assert done.sensor.requested() == ["a"]
    assert len(set(done.sensor.run_keys)) == 4


def test_shards_materialized_by_hand_are_not_requested(done: Project) -> None:
    done.sensor.cursor = None
    shutil.rmtree(done.folder / "out/state")
    assert done.sensor.requested() == []


def test_the_same_content_in_a_new_file_is_not_requested(done: Project) -> None:
    done.put("a", 0)
    assert done.sensor.requested() == []


def test_content_replaced_after_its_request_is_requested(own: Project) -> None:
    own.put("a", 1)
    assert own.sensor.requested() == ["a"]
    own.put("a", 2)
    assert own.sensor.requested() == ["a"]


def test_content_replaced_while_its_run_works_is_requested_once_the_run_has_ended(
    own: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")  # so that an output has a name from the start
    own.put("a", 1)
    assert own.sensor.requested() == ["a"]
    during: list[list[str]] = []

    def replace(event: str, path: str) -> None:
        if event == "open" and ".a.parquet." in path and "/normalized/" in path and not during:
            own.put("a", 2)
            during.append(own.sensor.requested())

    with system_calls(replace):
        assert not own.run("a")
    assert during == [[]]
    assert own.sensor.requested() == ["a"]
    assert own.run("a")
    assert own.sensor.requested() == []


def test_a_failed_shard_is_requested_again_when_its_content_changes(own: Project) -> None:
    own.raw.mkdir(exist_ok=True)
    (own.raw / "a.tar").write_bytes(b"this is no tar" * 100)
    assert own.sensor.requested() == ["a"]
    assert not own.run("a")
    assert own.sensor.requested() == []
    own.put("a", 1)
    assert own.sensor.requested() == ["a"]


def test_a_shard_that_failed_behind_normalized_is_requested_again_when_its_content_changes(own: Project) -> None:
    """New materializations of the failed run at earlier assets are no reason to try it again."""
    own.configure(f'{AT_ONCE}[selection]\non_score_error = "error"\n')
    write_shard(own.raw / "a.tar", {"doc": document("text", b"this is no image")})
    assert own.sensor.requested() == ["a"]
    assert not own.run("a")
    assert own.instance.get_materialized_partitions(dg.AssetKey("image_scores")) == {"a"}
    assert own.sensor.requested() == []
    own.put("a", 1)
    assert own.sensor.requested() == ["a"]


def test_a_shard_without_a_materialization_in_dagster_is_requested_despite_its_records(done: Project) -> None:
    with dg.DagsterInstance.ephemeral() as another:
        assert Watcher(another, done.settings).requested() == ["a", "b"]


def test_a_damaged_record_of_one_shard_does_not_stop_the_others(done: Project) -> None:
    damaged = Path(done.settings.storage.shard("a").record("normalized"))
    damaged.unlink()
    damaged.write_text("{")
    for name, seed in (("a", 3), ("b", 4)):
        done.put(name, seed)
    assert done.sensor.requested() == ["a", "b"]


def test_shards_of_one_tick_are_requested_in_ranges_of_shards_per_run(own: Project) -> None:
    own.configure(f"{AT_ONCE}[run]\nshards_per_run = 3\n")
    for number in range(7):
        own.put(f"{number}", number)
    own.sensor.tick()
    assert own.sensor.ranges == [("0", "2"), ("3", "5"), ("6", "6")]


def test_a_range_includes_current_shards_and_no_failed_one(own: Project) -> None:
    for number, key in enumerate("abcd"):
        own.put(key, number)
    (own.raw / "e.tar").write_bytes(b"this is no tar" * 100)
    own.put("f", 9)
    own.sensor.tick()
    assert not own.run(*"abcdef")
    assert LARGEST_GAP >= 2
    for number, key in enumerate("adf"):
        own.put(key, 20 + number)
    own.sensor.tick()
    assert own.sensor.ranges == [("a", "d"), ("f", "f")]


def test_a_shard_with_an_unfinished_run_waits(done: Project) -> None:
    run = unfinished_run(done.instance, done.settings, "a")
    done.put("a", 8)
    done.put("c", 9)
    assert done.sensor.requested() == ["c"]
    assert done.sensor.tick() == "1 in the work of a run, 2 unchanged"
    done.instance.report_run_canceled(run)
    assert done.sensor.requested() == ["a"]
    assert done.sensor.requested() == []


def test_a_range_does_not_include_a_shard_with_an_unfinished_run(done: Project) -> None:
    done.put("c", 2)
    done.sensor.tick()
    assert done.run("c")
    unfinished_run(done.instance, done.settings, "b")
    for number, key in enumerate("ac"):
        done.put(key, 20 + number)
    done.sensor.tick()
    assert done.sensor.ranges == [("a", "a"), ("c", "c")]


def test_a_shard_that_is_still_being_written_waits(own: Project) -> None:
    own.put("a", 1)
    assert own.sensor.requested() == ["a"]
    own.configure("[watch]\nquiet_seconds = 600\n")
    own.put("a", 2)
    assert own.sensor.requested() == []
    own.configure()
    assert own.sensor.requested() == ["a"]


def test_a_forgotten_shard_whose_tar_comes_back_is_requested(done: Project) -> None:
    """Its version is the one that was requested before, and its outputs are gone."""
    aside = (done.raw / "a.tar").rename(done.folder / "a.tar")
    storage = done.settings.storage
    remove_files(files_to_forget(["a"], storage), storage)
    done.sensor.tick()
    assert done.partitions() == ["b"]
    aside.rename(done.raw / "a.tar")
    assert done.sensor.requested() == ["a"]
    assert done.run("a")


def test_a_vanished_shard_that_comes_back_with_its_outputs_launches_nothing(done: Project) -> None:
    aside = (done.raw / "a.tar").rename(done.folder / "a.tar")
    assert done.sensor.requested() == []
    aside.rename(done.raw / "a.tar")
    assert done.sensor.tick() == "1 current, 1 unchanged"
