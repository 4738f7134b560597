"""The sensor over the raw root, evaluated as the daemon does."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.defs.sensors import build_raw_shard_sensor
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import good_shard, project


class Watcher:
    """The sensor's ticks, one after the other."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        self.settings, self.instance, self.cursor = settings, instance, ""

    def tick(self) -> dict[str, str]:
        """One tick, its events stored; the version of each shard that it reports."""
        context = dg.build_sensor_context(self.instance, cursor=self.cursor or None)
        result = build_raw_shard_sensor(self.settings)(context)
        if isinstance(result, dg.SkipReason):
            self.said = result.skip_message or ""
            return {}
        assert isinstance(result, dg.SensorResult)
        self.said = result.skip_reason.skip_message or "" if result.skip_reason else ""
        self.cursor = result.cursor or self.cursor
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


def test_shards_are_registered_and_observed_a_few_at_a_time_and_once(watcher: Watcher, tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b", "c")):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=number)
    first, second, third = watcher.tick(), watcher.tick(), watcher.tick()
    assert (sorted(first), sorted(second), third) == (["a", "b"], ["c"], {})
    assert watcher.said == "3 shards, none new or changed"
    assert all(version.startswith("sha256:") for version in (first | second).values())
    good_shard(tmp_path / "raw" / "b.tar", seed=7)
    changed = watcher.tick()
    assert changed.keys() == {"b"}
    assert changed["b"] != first["b"]


def test_a_vanished_shard_keeps_its_partition_and_is_logged_once(watcher: Watcher, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar")
    watcher.tick()
    (tmp_path / "raw" / "a.tar").unlink()
    assert watcher.tick() == {}
    assert watcher.said == "still changing: 0, vanished: 1"
    assert watcher.tick() == {}
    assert watcher.said == "0 shards, none new or changed"
    assert watcher.instance.get_dynamic_partitions("shards") == ["a"]


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


def test_with_an_invalid_cursor_all_shards_are_read_again(watcher: Watcher, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar")
    reported = watcher.tick()
    watcher.cursor = "from the start"
    assert watcher.tick() == reported
    assert watcher.cursor == "2"  # above the snapshot of before, which would else count as the latest
