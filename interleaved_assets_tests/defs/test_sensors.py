"""The sensor over the raw root, evaluated as the daemon does."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.defs.sensors import build_raw_shard_sensor
from interleaved_assets.pipeline.execute import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import delete_partitions, run_chain, unfinished_run
from interleaved_assets_tests.documents import good_shard, project, refuse_listing


class Watcher:
    """The sensor's ticks, one after the other."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        self.settings, self.instance, self.cursor = settings, instance, ""

    def tick(self) -> dict[str, str]:
        """One tick, its events stored; the version of each shard that it reports."""
        context = dg.build_sensor_context(self.instance, cursor=self.cursor or None)
        result = build_raw_shard_sensor(self.settings)(context)
        assert isinstance(result, dg.SensorResult)
        assert result.skip_reason is not None
        self.said = result.skip_reason.skip_message
        self.cursor = result.cursor or self.cursor
        delete_partitions(result, self.instance)
        reported = {}
        for event in result.asset_events:
            assert isinstance(event, dg.AssetObservation)
            # automation that looks between two of these events must know the shard
            assert self.instance.has_dynamic_partition("shards", str(event.partition))
            self.instance.report_runless_asset_event(event)
            reported[str(event.partition)] = (event.tags or {})["dagster/data_version"]
        return reported


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Watcher]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Watcher(project(tmp_path, "[watch]\nquiet_seconds = 0\nmax_per_tick = 2\n"), instance)


def test_another_output_root_is_no_warning(watcher: Watcher, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    watcher.cursor = "3"
    assert watcher.tick() == {}
    logged = capfd.readouterr().err
    assert "WARNING" not in logged
    assert f"{tmp_path}/out has no table of the last tick, as after a change of storage.output_root" in logged


def test_shards_are_registered_and_observed_a_few_at_a_time_and_once(watcher: Watcher, tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=number)
    first, second, third = watcher.tick(), watcher.tick(), watcher.tick()
    assert (sorted(first), sorted(second), third) == (["a", "b"], ["c"], {})
    assert watcher.said == "3 unchanged"
    assert all(version.startswith("sha256:") for version in (first | second).values())
    good_shard(tmp_path / "raw" / "b.tar", seed=7)
    changed = watcher.tick()
    assert changed.keys() == {"b"}
    assert changed["b"] != first["b"]


def test_a_tick_says_what_it_found_and_did(watcher: Watcher, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    for number in range(4):
        good_shard(raw / f"{number}.tar", seed=number)
    (raw / "notes.txt").touch()
    watcher.tick()
    assert watcher.said == "2 left for the next tick, 2 registered, 1 file ignored"
    watcher.tick()
    assert watcher.said == "2 registered, 2 unchanged, 1 file ignored"
    good_shard(raw / "0.tar", seed=9)
    (raw / "4.tar").symlink_to(raw / "nowhere.tar")
    watcher.tick()
    assert watcher.said == "1 changed, 3 unchanged, 1 not readable, 1 file ignored"
    watcher.settings = project(tmp_path, "[watch]\nquiet_seconds = 600\n")
    good_shard(raw / "1.tar", seed=10)
    good_shard(raw / "5.tar", seed=11)
    watcher.tick()
    assert watcher.said == "3 waiting to be quiet, 3 unchanged, 1 file ignored"
    watcher.cursor = ""
    watcher.settings = project(tmp_path, "[watch]\nquiet_seconds = 0\n")
    watcher.tick()
    assert watcher.said == "1 registered, 4 registered before, 1 not readable, 1 file ignored"


def test_a_shard_that_vanishes_with_outputs_keeps_its_partition(watcher: Watcher, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar")
    watcher.tick()
    take_through(stage_dag(watcher.settings)["normalized"], "a", watcher.settings)
    (tmp_path / "raw" / "a.tar").unlink()
    for _ in range(2):
        assert watcher.tick() == {}
        assert watcher.said == "1 vanished, their outputs are kept until interleaved forget"
    assert watcher.instance.get_dynamic_partitions("shards") == ["a"]


def test_a_folder_that_cannot_be_listed_changes_nothing_for_its_shards(
    watcher: Watcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("a", "web/b")):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=number)
    watcher.tick()
    with monkeypatch.context() as refused:
        refuse_listing(refused, tmp_path / "raw/web")
        assert watcher.tick() == {}
        assert watcher.said == "2 unchanged"
    assert watcher.instance.get_dynamic_partitions("shards") == ["a", "web/b"]
    assert watcher.tick() == {}
    assert watcher.said == "2 unchanged"


def test_a_shard_that_vanishes_before_anything_was_made_of_it_leaves_no_partition(
    watcher: Watcher, tmp_path: Path
) -> None:
    for name in "ab":
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    watcher.tick()
    tar = tmp_path / "raw" / "a.tar"
    aside = tar.rename(tmp_path / "a.tar")
    watcher.tick()
    assert watcher.said == "1 unchanged, 1 without tar and outputs, removed"
    assert watcher.instance.get_dynamic_partitions("shards") == ["b"]
    watcher.tick()
    assert watcher.said == "1 unchanged"
    aside.rename(tar)
    assert watcher.tick().keys() == {"a"}
    assert watcher.said == "1 registered, 1 unchanged"


def test_partitions_are_removed_a_few_at_a_time(watcher: Watcher) -> None:
    watcher.instance.add_dynamic_partitions("shards", ["a", "b", "c"])
    watcher.tick()
    assert watcher.said == "1 left for the next tick, 2 without tar and outputs, removed"
    watcher.tick()
    assert watcher.said == "1 without tar and outputs, removed"
    watcher.tick()
    assert watcher.said == "no shards"


def test_shards_of_another_raw_root_leave_no_partition(watcher: Watcher, tmp_path: Path) -> None:
    """The way from the demo to own data: both roots are other ones, the Dagster instance stays."""
    for name in "ab":
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    watcher.tick()
    run_chain(watcher.instance, watcher.settings, ["a", "b"])
    own = tmp_path / "own"
    own.mkdir()
    watcher.settings = project(own, "[watch]\nquiet_seconds = 0\n")
    good_shard(own / "raw" / "b.tar", seed=9)
    assert watcher.tick().keys() == {"b"}
    assert watcher.said == "1 registered before, 1 without tar and outputs, removed"
    assert watcher.instance.get_dynamic_partitions("shards") == ["b"]
    assert run_chain(watcher.instance, watcher.settings, ["b"]).success


def test_a_partition_on_which_a_run_works_is_not_removed(watcher: Watcher, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar")
    watcher.tick()
    (tmp_path / "raw" / "a.tar").unlink()
    run = unfinished_run(watcher.instance, watcher.settings, "a")
    watcher.tick()
    assert watcher.instance.get_dynamic_partitions("shards") == ["a"]
    watcher.instance.report_run_canceled(run)
    watcher.tick()
    assert watcher.instance.get_dynamic_partitions("shards") == []


def test_a_partition_that_was_deleted_comes_back_while_its_tar_is_there(watcher: Watcher, tmp_path: Path) -> None:
    for name in "ab":
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    watcher.tick()
    watcher.instance.delete_dynamic_partition("shards", "a")
    assert watcher.tick() == {}
    assert watcher.said == "1 registered, 1 unchanged"
    assert sorted(watcher.instance.get_dynamic_partitions("shards")) == ["a", "b"]


def test_the_cursor_is_a_number_and_two_snapshots_are_kept(watcher: Watcher, tmp_path: Path) -> None:
    for number in range(9):
        good_shard(tmp_path / "raw" / f"{number}.tar", seed=number)
    for _ in range(5):
        watcher.tick()
    assert watcher.cursor == "5"
    kept = sorted(path.name for path in (tmp_path / "out" / "state" / "raw_shards").iterdir())
    assert kept == ["4.parquet", "5.parquet"]


def test_a_tick_whose_result_was_lost_is_made_up_for(watcher: Watcher, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar")
    before = watcher.cursor
    reported = watcher.tick()
    watcher.cursor = before
    assert watcher.tick() == reported


@pytest.mark.parametrize("damage", ["gone", "damaged", "of another kind"])
def test_a_snapshot_that_cannot_be_read_means_looking_at_everything_anew(
    watcher: Watcher, tmp_path: Path, damage: str
) -> None:
    good_shard(tmp_path / "raw" / "a.tar")
    reported = watcher.tick()
    snapshot = tmp_path / "out" / "state" / "raw_shards" / "1.parquet"
    match damage:
        case "gone":
            snapshot.unlink()
        case "damaged":
            snapshot.write_bytes(snapshot.read_bytes()[:40])
        case _:
            pq.write_table(pa.table({"other": [1]}), snapshot)
    assert watcher.tick() == reported
    assert watcher.tick() == {}
    assert watcher.cursor == "2"


@pytest.mark.parametrize("cursor", ["from the start", "9" * 5000])
def test_with_an_invalid_cursor_all_shards_are_read_again(watcher: Watcher, tmp_path: Path, cursor: str) -> None:
    good_shard(tmp_path / "raw" / "a.tar")
    reported = watcher.tick()
    watcher.cursor = cursor
    assert watcher.tick() == reported
    assert watcher.cursor == "2"  # above the snapshot of before, which would else count as the latest
