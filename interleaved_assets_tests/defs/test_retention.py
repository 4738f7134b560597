"""Which runs are deleted with age, and that nothing is lost with them."""

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.defs.retention import build_retention, delete_old_runs
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import STAGES
from interleaved_assets_tests.documents import good_shard, project

REFERENCE = Path(__file__).parents[2] / "docs/operating-reference.md"
pytestmark = pytest.mark.project(shards={name: ord(name) for name in "abc"})


def shards_of(instance: dg.DagsterInstance) -> list[tuple[str, str]]:
    """First and last shard of each run over shards, the latest first."""
    tags = [run.tags for run in instance.get_runs()]
    return [(tag[RANGE_START], tag[RANGE_END]) for tag in tags if RANGE_START in tag]


def test_only_runs_whose_every_result_was_replaced_are_deleted(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    keys = register_all(instance, settings.storage)
    assert materialize_all(instance, settings, keys)
    assert materialize_all(instance, settings, ["a", "b"])
    assert materialize_all(instance, settings, ["b", "c"])
    assert shards_of(instance) == [("b", "c"), ("a", "b"), ("a", "c")]
    now = datetime.now(UTC)
    assert delete_old_runs(instance, now - timedelta(days=1), settings) == 0
    # of the first run nothing is in force, nor of the first two reports; the second has the latest of shard a
    assert delete_old_runs(instance, now + timedelta(seconds=1), settings) == 3
    assert shards_of(instance) == [("b", "c"), ("a", "b")]
    assert all(instance.get_materialized_partitions(dg.AssetKey(name)) == {"a", "b", "c"} for name in STAGES)
    assert instance.get_latest_materialization_event(dg.AssetKey("dataset_report")) is not None
    assert delete_old_runs(instance, now + timedelta(seconds=1), settings) == 0


def test_a_shard_that_was_forgotten_keeps_no_run(instance: dg.DagsterInstance, settings: Settings) -> None:
    keys = register_all(instance, settings.storage)
    assert materialize_all(instance, settings, ["a"])
    assert materialize_all(instance, settings, ["b", "c"])
    later = datetime.now(UTC) + timedelta(days=1)
    delete_old_runs(instance, later, settings)
    instance.delete_dynamic_partition("shards", "a")  # as raw_shard_sensor does
    assert shards_of(instance) == [("b", "c"), ("a", "a")]
    assert delete_old_runs(instance, later, settings) == 1
    assert shards_of(instance) == [("b", "c")]
    assert keys == ["a", "b", "c"]


@pytest.mark.on_disk(keeps_output=True)
def test_the_files_of_a_deleted_run_go_with_it(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    @dg.job(name="delete_old_runs")
    def ours() -> None: ...

    home = tmp_path / "home"
    run_id = ours.execute_in_process(instance=instance).run_id
    logs = home / "storage" / run_id / "compute_logs"
    assert list(logs.iterdir())
    assert list(home.rglob(f"{run_id}.db"))
    assert delete_old_runs(instance, datetime.now(UTC) + timedelta(seconds=1), settings) == 1
    assert not logs.exists()
    assert not list(home.rglob(f"{run_id}*.db*"))


def test_a_run_that_is_not_over_stays_and_so_does_one_of_others(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    @dg.job(name="delete_old_runs")
    def ours() -> None: ...

    @dg.job(name="nightly_invoices")
    def of_others() -> None: ...

    run = instance.create_run_for_job(ours, status=dg.DagsterRunStatus.STARTED)
    other = of_others.execute_in_process(instance=instance)
    later = datetime.now(UTC) + timedelta(days=1)
    assert delete_old_runs(instance, later, settings) == 0
    instance.report_run_canceled(run)
    assert delete_old_runs(instance, later, settings) == 1
    assert instance.has_run(other.run_id)


@pytest.mark.system
@pytest.mark.on_disk
@pytest.mark.project(shards={"a": 1, "b": 2})
def test_the_statement_of_the_runbook_leaves_the_latest_evaluations(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "raw/b.tar").write_bytes(b"no tar")
    keys = register_all(instance, settings.storage)
    assert not materialize_all(instance, settings, keys)
    good_shard(tmp_path / "raw/b.tar")
    assert materialize_all(instance, settings, keys)
    delete_old_runs(instance, datetime.now(UTC) + timedelta(days=1), settings)
    before = evaluations(instance)
    ((command, statement),) = re.findall(r'^(sqlite3 \S+) "(DELETE FROM asset_check.*)"$', REFERENCE.read_text(), re.M)
    (index,) = (tmp_path / "home").rglob(command.rpartition("/")[2])
    with closing(sqlite3.connect(index)) as database:
        rows = "SELECT count(*) FROM asset_check_executions"
        assert database.execute(statement).rowcount == 0  # all are younger
        assert database.execute(statement.replace("-90 days", "+1 days")).rowcount > 0
        database.commit()
        (left,) = database.execute(rows).fetchone()
    assert evaluations(instance) == before
    assert set(before.values()) >= {("b", True), ("a", True)}
    assert left <= 2 * len(before)


def evaluations(instance: dg.DagsterInstance) -> dict[tuple[str, str, str | None], object]:
    """By asset, check and shard, whether the latest evaluation passed."""
    found: dict[tuple[str, str, str | None], object] = {}
    for asset in (*STAGES, "dataset_report"):
        for check in ("materialization_errors", "keep_rate_within_bounds", "up_to_date", "published_once"):
            key = dg.AssetCheckKey(dg.AssetKey(asset), check)
            for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=500):
                found.setdefault(
                    (asset, check, record.partition), (record.partition, record.status.value == "SUCCEEDED")
                )
    return found


def test_the_scheduled_job_deletes_by_the_setting(
    instance: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dg.job(name="delete_old_runs")
    def nothing() -> None: ...

    created = datetime.now(UTC) - timedelta(days=8)
    monkeypatch.setattr("dagster._core.storage.runs.sql_run_storage.get_current_datetime", lambda: created)
    old = nothing.execute_in_process(instance=instance)
    monkeypatch.undo()
    young = nothing.execute_in_process(instance=instance)
    schedule = build_retention(project(tmp_path, "[run]\nkeep_days = 7\n"))
    job = schedule.job
    assert isinstance(job, dg.JobDefinition)
    assert job.execute_in_process(instance=instance).success
    assert not instance.has_run(old.run_id)
    assert instance.has_run(young.run_id)
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
