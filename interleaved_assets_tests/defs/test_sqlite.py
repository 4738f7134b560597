"""The storage in SQLite that ``dagster.yaml`` names: the contents of Dagster's own, in files that stay open."""

import errno
import fcntl
import gc
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.utils import make_new_run_id

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.private_api import sqlite
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.defs.steps import shard_run
from interleaved_assets_tests.defs.connections import connections, writing_commits
from interleaved_assets_tests.defs.runs import STAGES, instance_on_disk, run_chain
from interleaved_assets_tests.documents import good_and_damaged_shards, project
from interleaved_assets_tests.live import ROOT, opened

EVENT = dg.AssetMaterialization("a")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "dagster.yaml").write_text((ROOT / "dagster.yaml").read_text())
    return folder


@pytest.fixture
def instance(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")
    with opened(home) as instance:
        yield instance


def rows(file: Path, query: str) -> Counter[tuple[object, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return Counter(connection.execute(query).fetchall())


def stored(home: Path) -> dict[str, Counter[tuple[object, ...]]]:
    """What the one run of a folder has left in the tables of events, without ids and times."""
    index = home / "history/runs/index.db"
    (run,) = [file for file in index.parent.glob("*.db") if file.stem not in ("index", "")]
    events = "SELECT dagster_event_type, step_key, asset_key, partition FROM event_logs"
    checks = "SELECT c.asset_key, check_name, c.partition, execution_status, m.partition, m.dagster_event_type"
    checks += " FROM asset_check_executions c LEFT JOIN event_logs m ON m.id = materialization_event_storage_id"
    tags = "SELECT asset_key, key FROM asset_event_tags"
    found = {"checks": rows(index, checks), "tags": rows(index, tags), "run": rows(run, events)}
    found |= {"schema": rows(run, "SELECT type, name, tbl_name, sql FROM sqlite_master")}
    found |= {"revision": rows(run, "SELECT version_num FROM alembic_version")}
    return found | {"index": rows(index, events), "journal": rows(run, "PRAGMA journal_mode")}


def test_the_tables_are_those_of_dagsters_own_storage(
    instance: dg.DagsterInstance,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = project(tmp_path)
    good_and_damaged_shards(tmp_path / "raw")
    assert not run_chain(instance, settings, ["a", "b", "c"]).success
    assert "Falling back" not in capfd.readouterr().err  # Dagster says so where a batch could not be stored
    monkeypatch.setattr(shard_run, "keep_connections", lambda _: None)
    with instance_on_disk(tmp_path / "other") as other:
        assert not run_chain(other, settings, ["a", "b", "c"]).success
    ours, theirs = stored(home), stored(tmp_path / "other")
    assert ours == theirs
    assert ours["index"]["ASSET_MATERIALIZATION_PLANNED", "filtered", '["filtered"]', "b"] == 1
    assert ours["checks"].total() > 10


def test_processes_that_open_the_file_of_a_new_run_together_make_it_once(home: Path) -> None:
    with opened(home) as instance:
        run_id = make_new_run_id()
        storages = [type(instance.event_log_storage)(None) for _ in range(4)]
        for storage in storages:
            storage.register_instance(instance)
        with ThreadPoolExecutor(len(storages)) as threads:
            found = list(threads.map(lambda storage: storage.get_logs_for_run(run_id), storages))
        for storage in storages:
            storage.dispose()
    assert found == [[]] * len(storages)
    file = home / f"history/runs/{run_id}.db"
    assert rows(file, "SELECT count(*) FROM alembic_version") == {(1,): 1}


def test_in_a_folder_of_an_old_dagster_runs_are_made_as_there(instance: dg.DagsterInstance, home: Path) -> None:
    """Dagster of 2024 and before did not always write a revision."""
    with closing(sqlite3.connect(home / "history/runs/index.db")) as index:
        index.execute("DROP TABLE alembic_version")
    run_id = make_new_run_id()
    instance.report_engine_event("an event", run_id=run_id, job_name="a")
    assert [entry.run_id for entry in instance.all_logs(run_id)] == [run_id]
    assert not rows(home / f"history/runs/{run_id}.db", "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'")


def test_runs_are_made_where_the_index_has_tables_of_sqlite_itself(instance: dg.DagsterInstance, home: Path) -> None:
    """SQLite makes them for ``ANALYZE`` and ``PRAGMA optimize``, and refuses statements that would."""
    instance.report_runless_asset_event(EVENT)
    with closing(sqlite3.connect(home / "history/runs/index.db")) as index:
        index.execute("ANALYZE")
    run_id = make_new_run_id()
    instance.report_engine_event("an event", run_id=run_id, job_name="a")
    assert [entry.run_id for entry in instance.all_logs(run_id)] == [run_id]


def test_a_run_that_another_process_writes_to_can_be_opened(
    instance: dg.DagsterInstance, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its page in the UI, while the step stores the events of many shards."""
    monkeypatch.setattr(sqlite, "_WAITS", {"timeout": 0.1})
    run_id = make_new_run_id()
    instance.report_engine_event("an event", run_id=run_id, job_name="a")
    file = home / f"history/runs/{run_id}.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as writer, opened(home) as page:
        writer.execute("BEGIN IMMEDIATE")
        assert [entry.run_id for entry in page.all_logs(run_id)] == [run_id]
        writer.rollback()


def test_runs_are_put_into_the_queue_with_few_connections_and_commits(
    instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    keys = [f"s{number:03d}" for number in range(100)]
    instance.add_dynamic_partitions(SHARDS, keys)
    job = build_definitions(project(tmp_path)).resolve_implicit_global_asset_job_def()
    assets = frozenset(map(dg.AssetKey, STAGES))

    def create(last: str) -> dg.DagsterRun:
        return instance.create_run_for_job(job, asset_selection=assets, tags={RANGE_START: keys[0], RANGE_END: last})

    create(keys[0])
    with connections() as opened_meanwhile, writing_commits() as commits:
        run = create(keys[-1])
    assert len(instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)) == 400
    assert len(opened_meanwhile) < 20
    assert len(commits) < 30  # two for each hundred events, and those of the run itself


def test_planned_checks_take_no_more_bytes_a_shard_in_larger_runs(
    instance: dg.DagsterInstance, home: Path, tmp_path: Path
) -> None:
    keys = [f"s{number:03d}" for number in range(100)]
    instance.add_dynamic_partitions(SHARDS, keys)
    job = build_definitions(project(tmp_path)).resolve_implicit_global_asset_job_def()
    largest = "SELECT max(length(evaluation_event)) FROM asset_check_executions"
    for last in (keys[1], keys[-1]):
        tags = {RANGE_START: keys[0], RANGE_END: last}
        instance.create_run_for_job(job, asset_selection=frozenset(map(dg.AssetKey, STAGES)), tags=tags)
    assert max(rows(home / "history/runs/index.db", largest))[0] < 1_000
    check = dg.AssetCheckKey(dg.AssetKey("filtered"), "materialization_errors")
    info = instance.event_log_storage.get_asset_check_partition_info([check])
    assert {one.partition_key for one in info} == set(keys)


def test_the_files_are_in_the_folder_of_the_instance(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``DAGSTER_HOME``, as ``dagster dev`` and ``interleaved forget`` may be called."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(home.parent)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_dynamic_partitions("shards", ["a"])
        reference = instance.get_ref()
    temporary = home.parent / "temporary"
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(temporary), config_dir=str(home))) as other:
        assert not other.get_dynamic_partitions("shards")
    with dg.DagsterInstance.from_ref(reference) as worker:  # in another process
        assert worker.get_dynamic_partitions("shards") == ["a"]
    for folder in (home, temporary):
        assert {str(file.relative_to(folder)) for file in folder.rglob("*.db")} == {
            "history/runs.db",
            "history/runs/index.db",
            "schedules/schedules.db",
        }


def test_services_may_make_the_files_at_the_same_time(home: Path) -> None:
    def start(number: int) -> None:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            instance.add_dynamic_partitions("shards", [f"{number}"])

    with ThreadPoolExecutor(4) as services:
        list(services.map(start, range(4)))
    with opened(home) as instance:
        assert set(instance.get_dynamic_partitions("shards")) == {"0", "1", "2", "3"}


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK])
def test_the_folder_may_be_on_a_file_system_without_its_locks(
    home: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """NFS, and NFS without its daemon of locks. None is at hand in a test: this error is what they give."""

    def refused(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refused)
    with opened(home) as instance:
        instance.report_runless_asset_event(EVENT)
        assert len(instance.fetch_materializations(EVENT.asset_key, limit=9).records) == 1


def test_a_folder_of_its_own_may_be_below_the_users(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home.parent))
    monkeypatch.chdir(home)
    configuration = (home / "dagster.yaml").read_text()
    named = "class: SqliteStorage\n    config: {base_dir: ~/other}\n"
    (home / "dagster.yaml").write_text(configuration.replace("class: SqliteStorage\n", named))
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.report_runless_asset_event(EVENT)
    assert {str(file.relative_to(home.parent)) for file in home.parent.rglob("*.db")} == {
        "other/history/runs.db",
        "other/history/runs/index.db",
        "other/history/runs/.db",
        "other/schedules/schedules.db",
    }
    assert not (home / "~").exists()


def test_a_closed_instance_leaves_no_files_open(home: Path) -> None:
    """Dagster opens an instance for each tick of a sensor."""
    gc.collect()
    gc.disable()
    try:
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(5):
            with opened(home) as instance:
                instance.report_runless_asset_event(EVENT)
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    finally:
        gc.enable()


def test_readers_leave_the_time_of_a_file(instance: dg.DagsterInstance, home: Path) -> None:
    """Who watches a run reads when the time changes, and would else do so for ever while others are read in between."""
    job = dg.Definitions([dg.asset(lambda: None, name="a")]).resolve_implicit_global_asset_job_def()
    run = instance.create_run_for_job(job)
    file = home / f"history/runs/{run.run_id}.db"
    os.utime(file, (1, 1))
    with opened(home) as reader:
        assert reader.all_logs(run.run_id)
        assert file.stat().st_mtime == 1
    instance.report_engine_event("written", run)
    assert file.stat().st_mtime > 1


def test_files_that_were_deleted_are_made_again(instance: dg.DagsterInstance, home: Path) -> None:
    """``dagster run wipe`` in another process deletes the files; what is stored afterwards must not be lost."""
    instance.report_runless_asset_event(EVENT)
    for file in (home / "history/runs").iterdir():
        file.unlink()
    with opened(home) as other:
        other.report_runless_asset_event(EVENT)
        instance.report_runless_asset_event(EVENT)
        other.report_runless_asset_event(EVENT)
        assert len(other.fetch_materializations(EVENT.asset_key, limit=9).records) == 3


def test_services_may_make_files_that_were_deleted_at_the_same_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both make the tables, one of them takes the file for an old one, or it has two versions, for ever."""
    stamp, index = sqlite_event_log.stamp_alembic_rev, home / "history/runs/index.db"
    version = "SELECT version_num FROM alembic_version"

    def slow(*args: Any, **others: Any) -> None:
        time.sleep(0.2)
        stamp(*args, **others)

    with opened(home) as one, opened(home) as other, ThreadPoolExecutor(2) as services:
        one.report_runless_asset_event(EVENT)
        before = rows(index, version)
        for file in index.parent.iterdir():
            file.unlink()
        monkeypatch.setattr(sqlite_event_log, "stamp_alembic_rev", slow)
        for stored in [services.submit(service.report_runless_asset_event, EVENT) for service in (one, other)]:
            stored.result(timeout=60)
    assert rows(index, "SELECT count(*) FROM event_logs") == {(2,): 1}
    assert rows(index, version) == before


HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for number in range(200):
    connection.execute("INSERT INTO asset_keys (asset_key) VALUES (?)", (f"{number}" * 500,))
connection.commit()
print("open", flush=True)
sys.stdin.read()
"""


def test_logs_of_deleted_files_are_not_taken_for_those_of_new_ones(home: Path) -> None:
    """Where the ``.db`` files are deleted while another process, as the daemon, has them open."""
    with opened(home) as instance:
        instance.report_runless_asset_event(EVENT)
    index = home / "history/runs/index.db"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, index], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"open\n"
        index.unlink()
        with opened(home) as other:
            other.report_runless_asset_event(EVENT)
            assert len(other.fetch_materializations(EVENT.asset_key, limit=9).records) == 1
    assert rows(index, "PRAGMA integrity_check") == {("ok",): 1}


def test_dagsters_own_storage_reads_the_files(instance: dg.DagsterInstance, home: Path) -> None:
    instance.report_runless_asset_event(EVENT)
    (home / "dagster.yaml").unlink()
    with instance_on_disk(home) as plain:
        assert type(plain.event_log_storage).__module__.startswith("dagster.")
        assert len(plain.fetch_materializations(EVENT.asset_key, limit=9).records) == 1
