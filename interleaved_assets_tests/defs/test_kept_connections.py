"""A step keeps its connections to Dagster's SQLite files, and others can use the files meanwhile."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import dagster as dg
import pytest
from sqlalchemy import text
from sqlalchemy.event import listen, remove
from sqlalchemy.pool import Pool

from interleaved_assets.defs.private_api import keep_connections
from interleaved_assets_tests.defs.runs import instance_on_disk, run_chain
from interleaved_assets_tests.documents import good_shard, project

EVENT = dg.AssetMaterialization("a")


@contextmanager
def connections() -> Iterator[list[object]]:
    """The connections that are opened meanwhile."""
    opened: list[object] = []

    def note(connection: object, _: object) -> None:
        opened.append(connection)

    listen(Pool, "connect", note)
    try:
        yield opened
    finally:
        remove(Pool, "connect", note)


def report(instance: dg.DagsterInstance, times: int) -> int:
    """Store so many events; how many connections to files of events that took."""
    with connections() as opened:
        for _ in range(times):
            instance.report_runless_asset_event(EVENT)
    return len(opened)


def materializations(home: Path) -> int:
    with instance_on_disk(home) as other:
        return len(other.fetch_materializations(EVENT.asset_key, limit=100).records)


def test_connections_are_kept_and_events_are_seen_by_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with instance_on_disk(home) as instance:
        instance.report_runless_asset_event(EVENT)  # makes the file
        without = report(instance, 5)
        keep_connections(instance)
        kept = report(instance, 5)
        assert without >= 10
        assert kept <= without / 2
        assert report(instance, 5) < kept  # those that look for tables are left
        assert materializations(home) == 16
        # the file is not locked: another process can store events in between
        with instance_on_disk(home) as other:
            other.report_runless_asset_event(EVENT)
        assert len(instance.fetch_materializations(EVENT.asset_key, limit=100).records) == 17


def test_an_instance_with_its_storage_in_dagster_yaml_keeps_them_too(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text(
        f"storage:\n  sqlite:\n    base_dir: {tmp_path / 'db'}\ntelemetry:\n  enabled: false\n"
    )
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        instance.report_runless_asset_event(EVENT)
        without = report(instance, 5)
        keep_connections(instance)
        report(instance, 1)
        assert report(instance, 5) <= without / 2


def test_an_interrupted_transaction_leaves_no_lock(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with instance_on_disk(home) as instance:
        keep_connections(instance)
        instance.report_runless_asset_event(EVENT)

        def interrupted() -> None:
            with instance.event_log_storage.index_connection() as connection:
                connection.execute(text("DELETE FROM event_logs"))
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        with closing(sqlite3.connect(home / "history/runs/index.db", timeout=0)) as other:
            assert other.execute("SELECT count(*) FROM event_logs").fetchone() == (1,)
            other.execute("BEGIN IMMEDIATE")  # raises OperationalError where there is a lock
            other.rollback()
        assert materializations(home) == 1


def test_files_of_few_runs_are_open_at_a_time(tmp_path: Path) -> None:
    home = tmp_path / "home"
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")

    def open_files() -> set[str]:
        found = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            try:
                found.add(str(descriptor.readlink()))
            except FileNotFoundError:  # the descriptor of the listing itself
                continue
        return {Path(file).name for file in found if file.startswith(str(home)) and file.endswith(".db")}

    with instance_on_disk(home) as instance:
        keep_connections(instance)
        for _ in range(5):
            assert run_chain(instance, settings, ["a"]).success
        runs = instance.get_run_records()  # the latest first
        assert len(runs) == 5
        for run in runs:
            assert instance.all_logs(run.dagster_run.run_id)
        names = {f"{run.dagster_run.run_id}.db" for run in runs[-4:]}
        assert {file for file in open_files() if file != "runs.db"} == names
