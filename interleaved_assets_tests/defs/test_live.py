"""The project under a real daemon and webserver, spoken to as the UI does."""

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster import AssetKey
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from interleaved_assets.defs.checks import RAW_ROOT_CHECK
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.io import read_shard
from interleaved_assets.pipeline.raw.listing import find_raw_shard
from interleaved_assets.pipeline.raw.snapshot import read_snapshot
from interleaved_assets.settings import StorageSettings, load_settings
from interleaved_assets_tests.documents import STAGES, good_shard, project, sharp_image
from interleaved_assets_tests.io.pdfs import text, write_pdf
from interleaved_assets_tests.live import UNFINISHED, LiveDagster, live_dagster

pytestmark = pytest.mark.system

ONE = "dagster/partition"

AT_ONCE = "[watch]\nenabled = true\ninterval_seconds = 5\nquiet_seconds = 0\n"
WATCHING = f'{AT_ONCE}report = "* * * * *"\n'

STALE = """
query ($asset: [String!]!, $key: String!) {
  assetNodeOrError(assetKey: {path: $asset}) { ... on AssetNode { staleStatus(partition: $key) } }
}"""

TICKS = """
query ($which: SensorSelector!) {
  sensorOrError(sensorSelector: $which) { ... on Sensor { sensorState { ticks(limit: 10) { timestamp status } } } }
}"""

LAUNCH_RUN = """
mutation ($tags: [ExecutionTag!]) {
  launchRun(executionParams: {
    selector: {
      repositoryLocationName: "interleaved_assets", repositoryName: "__repository__", jobName: "bring_up_to_date"
    }
    executionMetadata: {tags: $tags}
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}"""


@pytest.fixture
def live(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LiveDagster]:
    project(tmp_path, getattr(request, "param", ""))
    with live_dagster(tmp_path / "home", tmp_path / "interleaved.toml") as running:
        yield running


def materialized(live: LiveDagster, asset: str) -> set[str]:
    with live.instance() as instance:
        return instance.get_materialized_partitions(AssetKey(asset))


def runs_over_shards(instance: dg.DagsterInstance) -> int:
    return sum(RANGE_START in run.tags or ONE in run.tags for run in instance.get_runs())


def looks_again(live: LiveDagster, sensor: str) -> None:
    """Wait until a look of a sensor that begins from now on has ended; it may not fail."""
    now = time.time()
    where = {"repositoryLocationName": "interleaved_assets", "repositoryName": "__repository__", "sensorName": sensor}

    def statuses() -> list[str]:
        ticks = live.ask(TICKS, which=where)["sensorOrError"]["sensorState"]["ticks"]
        return [tick["status"] for tick in ticks if tick["timestamp"] > now and tick["status"] != "STARTED"]

    assert set(live.wait_for(statuses, f"a look of {sensor}")) <= {"SKIPPED", "SUCCESS"}


def seen(folder: Path, key: str) -> str:
    """The stamp of a shard as the last look at the raw root has found it."""
    return read_snapshot(StorageSettings(output_root=str(folder / "out")), None)[key].stamp


def backfill(live: LiveDagster, keys: list[str]) -> str:
    """Launch a backfill of the whole chain and wait for its end; gives its status."""
    return live.backfill_ended(live.launch(STAGES, keys))


def sample_ids(tar: Path) -> set[str]:
    return {str(name) for table in read_shard(str(tar)) for name in table["sample_id"].to_pylist()}


@pytest.mark.parametrize("live", ["[run]\nshards_per_run = 2\n"], indirect=True)
def test_a_backfill_keeps_the_good_shards_and_shows_the_bad_one(live: LiveDagster, tmp_path: Path) -> None:
    for name in ("a", "c"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    (tmp_path / "raw" / "b.tar").write_bytes(b"this is no tar" * 100)
    live.add_partitions("abc")
    assert backfill(live, ["a", "b", "c"]) in ("COMPLETED_FAILED", "FAILED")
    with live.instance() as instance:
        tags = [run.tags for run in instance.get_runs() if RANGE_START in run.tags or ONE in run.tags]
    # run.shards_per_run of them in one run
    assert sorted((tag.get(RANGE_START) or tag[ONE], tag.get(RANGE_END) or tag[ONE]) for tag in tags) == [
        ("a", "b"),
        ("c", "c"),
    ]
    for asset in STAGES:
        assert materialized(live, asset) == {"a", "c"}
    for asset in STAGES:
        answer = live.ask(STALE, asset=[asset], key="a")
        assert answer["assetNodeOrError"]["staleStatus"] == "FRESH"
    untouched = (tmp_path / "out" / "tars" / "a.tar").stat().st_mtime_ns
    good_shard(tmp_path / "raw" / "b.tar", seed=7)
    assert backfill(live, ["a", "b", "c"]) in ("COMPLETED_SUCCESS", "COMPLETED")
    assert materialized(live, "final_tars") == {"a", "b", "c"}
    assert (tmp_path / "out" / "tars" / "a.tar").stat().st_mtime_ns == untouched


@pytest.mark.parametrize("live", [WATCHING], indirect=True)
def test_a_shard_that_lands_goes_through_and_a_replaced_one_again(live: LiveDagster, tmp_path: Path) -> None:
    raw, tars = tmp_path / "raw", tmp_path / "out" / "tars"
    good_shard(raw / "a.tar", seed=1)
    good_shard(raw / "b.tar", seed=2)
    live.wait_for(lambda: materialized(live, "final_tars") == {"a", "b"}, "the way of two new shards to their tars")
    # at once: the sensor tells of it while the backfill of its first content is ending
    before = {name: (tars / f"{name}.tar").stat().st_mtime_ns for name in "ab"}
    content = (tars / "a.tar").read_bytes()
    good_shard(raw / "a.tar", seed=3)
    live.wait_for(lambda: (tars / "a.tar").stat().st_mtime_ns != before["a"], "the way of the replaced shard")
    assert (tars / "a.tar").read_bytes() != content
    assert (tars / "b.tar").stat().st_mtime_ns == before["b"]
    with live.instance() as instance:
        live.wait_for(lambda: not instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)), "the end of all runs")
        before = len(instance.get_backfills()), runs_over_shards(instance)
        good_shard(raw / "a.tar", seed=3)  # the same content under a new time
        looks_again(live, "raw_shard_sensor")
        assert seen(tmp_path, "a") == find_raw_shard("a", load_settings(tmp_path / "interleaved.toml").storage).stamp
        assert (len(instance.get_backfills()), runs_over_shards(instance)) == before
        # the check of the raw root goes by the clock
        storage = instance.event_log_storage
        planned = AssetCheckExecutionRecordStatus.PLANNED

        def judged() -> list[AssetCheckExecutionRecordStatus]:
            found = storage.get_asset_check_execution_history(RAW_ROOT_CHECK, limit=10)
            return [check.status for check in found if check.status is not planned]

        assert set(live.wait_for(judged, "the check")) == {AssetCheckExecutionRecordStatus.SUCCEEDED}


@pytest.mark.parametrize("live", ["bundles = {images = 2, pdf = 2}\n" + AT_ONCE], indirect=True)
def test_small_files_of_folders_go_through_together_and_another_file_makes_its_shard_alone_again(
    live: LiveDagster, tmp_path: Path
) -> None:
    raw, tars = tmp_path / "raw", tmp_path / "out" / "tars"
    names = {f"cat-{number}" for number in range(6)} | {f"{number}.pdf" for number in range(6)}
    for folder in ("photos", "reports"):
        (tmp_path / folder).mkdir()
    for number in range(6):
        (tmp_path / f"photos/cat-{number}.png").write_bytes(sharp_image(number))
        (tmp_path / f"photos/cat-{number}.txt").write_text(f"caption of cat {number}", encoding="utf-8")
        write_pdf(tmp_path / f"reports/{number}.pdf", [text(72, 700, f"Words of report {number}")])
    for folder in ("photos", "reports"):
        (tmp_path / folder).rename(raw / folder)  # all files of a bundle are there at once
    keys = {f"{name}-{number}-of-2" for name in ("photos/images", "reports/pdf") for number in range(2)}
    live.wait_for(lambda: materialized(live, "final_tars") == keys, "the way of four bundles to their tars")
    live.wait_for(live.is_idle, "the end of all runs")

    def published() -> dict[str, tuple[int, set[str]]]:
        """When each tar was written, and its documents."""
        found = {key: tars / f"{key}.tar" for key in keys}
        return {key: (tar.stat().st_mtime_ns, sample_ids(tar)) for key, tar in found.items()}

    before = published()
    assert sorted(name for _, ids in before.values() for name in ids) == sorted(names)
    with live.instance() as instance:
        runs_before = {run.run_id for run in instance.get_runs()}
    (raw / "photos/dog.txt").write_text("caption of the dog", encoding="utf-8")  # a caption alone is of no bundle
    (tmp_path / "dog.png").write_bytes(sharp_image(9))
    (tmp_path / "dog.png").rename(raw / "photos/dog.png")
    live.wait_for(lambda: any("dog" in ids for _, ids in published().values()), "the way of the added file")
    live.wait_for(live.is_idle, "the end of all runs")
    looks_again(live, "raw_shard_sensor")
    assert live.is_idle()
    after = published()
    (changed,) = (key for key in keys if after[key] != before[key])
    assert after[changed][1] == {*before[changed][1], "dog"}
    with live.instance() as instance:
        added = [run.tags for run in instance.get_runs() if run.run_id not in runs_before]
    assert {tags[name] for tags in added for name in (RANGE_START, RANGE_END, ONE) if name in tags} == {changed}
    rows = pa.concat_tables(read_shard(str(tars / f"{changed}.tar"))).to_pylist()
    assert [row["text_content"] for row in rows if row["sample_id"] == "dog"] == [None, None, "caption of the dog"]


def test_a_backfill_and_a_queued_run_wait_until_refused_settings_are_mended(tmp_path: Path) -> None:
    project(tmp_path)
    for seed, key in enumerate(("a", "b")):
        good_shard(tmp_path / "raw" / f"{key}.tar", seed=10 * seed)
    with live_dagster(tmp_path / "home", tmp_path / "interleaved.toml", reload_seconds=10) as live:
        live.add_partitions(["a", "b"])
        live.kill_all_of("daemon")
        launched = live.launch(STAGES, ["a"])
        tags = [{"key": name, "value": "b"} for name in (RANGE_START, RANGE_END)]
        answer = live.ask(LAUNCH_RUN, tags=tags)["launchRun"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        run_id = answer["run"]["runId"]
        settings = tmp_path / "interleaved.toml"
        good = settings.read_text()
        settings.write_text(f"{good}[selection]\nmin_sharpness = 'much'\n")
        live.start_daemon()
        with live.instance() as instance:
            live.wait_for(
                lambda: (
                    f"Backfill {launched} was unable to continue" in live.log("daemon")
                    and any("re-submitting" in entry.message for entry in instance.all_logs(run_id))
                ),
                "the daemon to wait with both",
            )
            settings.write_text(good)
            assert live.backfill_ended(launched) == "COMPLETED_SUCCESS"
            live.wait_for(
                lambda: instance.get_run_by_id(run_id).status == dg.DagsterRunStatus.SUCCESS,  # type: ignore[union-attr]
                "the run that was queued",
            )
        assert materialized(live, "final_tars") == {"a", "b"}
