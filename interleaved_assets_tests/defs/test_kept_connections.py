"""A step keeps its connections to Dagster's SQLite files, and stores the events of a shard together."""

import resource
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Timer

import dagster as dg
import pytest
from dagster._core.storage.event_log import SqliteEventLogStorage
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from interleaved_assets.defs.private_api import sqlite
from interleaved_assets.defs.private_api.instance import events_together, keep_connections
from interleaved_assets_tests.defs.connections import connections, interrupt_block, writing_commits
from interleaved_assets_tests.defs.runs import instance_on_disk, run_chain
from interleaved_assets_tests.documents import good_shard, project

EVENT = dg.AssetMaterialization("a")


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


def test_events_of_a_block_are_stored_together_or_not_at_all(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with instance_on_disk(home) as instance:
        keep_connections(instance)
        instance.report_runless_asset_event(EVENT)
        with events_together(instance):
            instance.report_runless_asset_event(EVENT)
            instance.report_runless_asset_event(EVENT)
            assert materializations(home) == 1
            assert len(instance.fetch_materializations(EVENT.asset_key, limit=100).records) == 3
        assert materializations(home) == 3

        interrupt_block(instance, EVENT)
        assert materializations(home) == 3
        with instance_on_disk(home) as other:  # there is no lock
            other.report_runless_asset_event(EVENT)
        assert len(instance.fetch_materializations(EVENT.asset_key, limit=100).records) == 4


def test_events_are_stored_after_an_interrupt_at_the_beginning_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the thread would count as one with a block, whose events wait for its end."""

    @contextmanager
    def interrupted_once() -> Iterator[None]:
        monkeypatch.undo()
        yield
        raise KeyboardInterrupt

    with instance_on_disk(tmp_path / "home") as instance:
        keep_connections(instance)
        instance.report_runless_asset_event(EVENT)
        monkeypatch.setattr(instance.event_log_storage, "_messages_lock", interrupted_once())
        with pytest.raises(KeyboardInterrupt), events_together(instance):
            pass
        instance.report_runless_asset_event(EVENT)
        assert materializations(tmp_path / "home") == 2


def test_the_file_of_a_run_is_made_in_a_block(tmp_path: Path) -> None:
    home = tmp_path / "home"
    nothing = dg.define_asset_job("nothing", [dg.AssetKey("a")])
    job = dg.Definitions([dg.AssetSpec("b"), dg.asset(lambda: None, name="a")], jobs=[nothing]).resolve_job_def(
        "nothing"
    )
    with instance_on_disk(home) as instance:
        keep_connections(instance)
        with events_together(instance):
            run = instance.create_run_for_job(job)
        assert (home / f"history/runs/{run.run_id}.db").is_file()
        planned = instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED)
        assert len(planned) == 1


@pytest.mark.parametrize("together", [False, True])
def test_who_watches_a_run_sees_each_event_at_once(tmp_path: Path, together: bool) -> None:
    """As the page of a run in the UI does, in another process. SQLite itself leaves the file alone for long."""
    home = tmp_path / "home"
    job = dg.Definitions([dg.asset(lambda: None, name="a")]).resolve_implicit_global_asset_job_def()
    arrived: SimpleQueue[str] = SimpleQueue()
    with instance_on_disk(home) as writer, instance_on_disk(home) as page:
        keep_connections(writer)
        run = writer.create_run_for_job(job)
        page.watch_event_logs(run.run_id, None, lambda event, _: arrived.put(event.get_dagster_event().message))
        for number in range(3):
            with events_together(writer) if together else nullcontext():
                writer.report_engine_event(f"event {number}", run)
            while arrived.get(timeout=10) != f"event {number}":
                continue


def test_a_block_inside_of_another_one_belongs_to_it(tmp_path: Path) -> None:
    with instance_on_disk(tmp_path / "home") as instance:
        keep_connections(instance)
        with events_together(instance):
            with events_together(instance):
                instance.report_runless_asset_event(EVENT)
            assert materializations(tmp_path / "home") == 0
        assert materializations(tmp_path / "home") == 1


def test_another_thread_waits_for_the_end_of_a_block(tmp_path: Path) -> None:
    with instance_on_disk(tmp_path / "home") as instance, ThreadPoolExecutor(1) as other:
        keep_connections(instance)
        with events_together(instance):
            instance.report_runless_asset_event(EVENT)
            stored = other.submit(instance.report_runless_asset_event, EVENT)
            with pytest.raises(TimeoutError):
                stored.result(timeout=0.2)
        stored.result(timeout=30)
        assert materializations(tmp_path / "home") == 2


def test_threads_that_log_do_not_block_a_block(tmp_path: Path) -> None:
    """Such a thread holds the lock of Dagster's log handler, for which the events of the block wait."""

    @dg.asset
    def a(context: dg.AssetExecutionContext) -> None:
        keep_connections(context.instance)
        with ThreadPoolExecutor(1) as other, events_together(context.instance):
            context.log_event(dg.AssetObservation("a"))
            other.submit(dg.get_dagster_logger().info, "from a thread").result(timeout=30)
            context.log_event(dg.AssetObservation("a"))

    with instance_on_disk(tmp_path / "home") as instance:
        run = dg.materialize([a], instance=instance)
        logged = [entry.dagster_event_type or entry.user_message for entry in instance.all_logs(run.run_id)]
        first = logged.index(dg.DagsterEventType.ASSET_OBSERVATION)
        observed = [dg.DagsterEventType.ASSET_OBSERVATION] * 2
        assert [*observed, "from a thread"] == logged[first : first + 3]


def test_what_a_thread_logs_during_a_block_that_raises_is_stored(tmp_path: Path) -> None:
    with instance_on_disk(tmp_path / "home") as instance, ThreadPoolExecutor(1) as other:
        keep_connections(instance)
        instance.report_runless_asset_event(EVENT)
        message = dg.EventLogEntry(None, "info", "from a thread", "", 1.0)

        def interrupted() -> None:
            with events_together(instance):
                instance.report_runless_asset_event(EVENT)
                other.submit(instance.handle_new_event, message).result(timeout=30)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert materializations(tmp_path / "home") == 1
        assert [entry.user_message for entry in instance.all_logs("")][-1] == "from a thread"


@pytest.mark.parametrize(
    "error",
    [
        OperationalError(None, None, sqlite3.OperationalError("database is locked")),
        sqlite3.OperationalError("database or disk is full"),  # while the file of another run is made
        PermissionError("the folder is read-only"),
    ],
    ids=lambda error: type(error).__module__,
)
def test_the_events_of_a_block_stay_stored_where_a_threads_message_is_not(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error at the end of a block would have its caller store the events again."""
    store = SqliteEventLogStorage.store_event

    def refuse_one(storage: SqliteEventLogStorage, event: dg.EventLogEntry) -> None:
        if event.user_message == "refused":
            raise error
        store(storage, event)

    with instance_on_disk(tmp_path / "home") as instance, ThreadPoolExecutor(1) as other:
        keep_connections(instance)
        monkeypatch.setattr(SqliteEventLogStorage, "store_event", refuse_one)
        with events_together(instance):
            instance.report_runless_asset_event(EVENT)
            for text_of_it in ("refused", "stored"):
                message = dg.EventLogEntry(None, "info", text_of_it, "", 1.0)
                other.submit(instance.handle_new_event, message).result(timeout=30)
        assert materializations(tmp_path / "home") == 1
        assert [entry.user_message for entry in instance.all_logs("")][-1] == "stored"
        assert str(error) in capsys.readouterr().err
        instance.report_runless_asset_event(EVENT)  # no lock is held
        assert materializations(tmp_path / "home") == 2


def test_a_message_that_cannot_be_stored_does_not_block_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster then stores an event that says so, and its log handler stays locked meanwhile."""
    monkeypatch.setattr(sqlite, "_WAITS", {"timeout": 1})
    home = tmp_path / "home"

    @dg.asset
    def a(context: dg.AssetExecutionContext) -> None:
        keep_connections(context.instance)
        context.log.info("opens the file")
        file = home / f"history/runs/{context.run.run_id}.db"
        with (
            closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as other,
            ThreadPoolExecutor(1) as thread,
        ):
            other.execute("BEGIN IMMEDIATE")
            logged = thread.submit(dg.get_dagster_logger().info, "from a thread")
            while not context.instance.event_log_storage._db_lock.locked():  # type: ignore[attr-defined]
                time.sleep(0.01)
            Timer(1.5, other.rollback).start()  # once the message cannot be stored
            with events_together(context.instance):
                logged.result(timeout=10)
                context.log_event(dg.AssetObservation("a"))

    with instance_on_disk(home) as instance:
        run = dg.materialize([a], instance=instance)
        events = [entry.dagster_event.message for entry in instance.all_logs(run.run_id) if entry.dagster_event]
        assert "Exception while writing logger call to event log" in events
        assert len(instance.fetch_observations(dg.AssetKey("a"), limit=9).records) == 1


def test_a_block_in_which_the_disk_was_full_leaves_nothing(tmp_path: Path) -> None:
    """Dagster goes on where a log message cannot be stored, and SQLite has rolled back the events before it."""
    message = dg.EventLogEntry(None, "error", "x" * 8_000_000, "", 1.0)  # more than SQLite keeps in memory
    with instance_on_disk(tmp_path / "home") as instance:
        keep_connections(instance)
        instance.report_runless_asset_event(EVENT)

        def full() -> None:
            with events_together(instance):
                instance.report_runless_asset_event(EVENT)
                with suppress(OperationalError):
                    instance.handle_new_event(message)
                instance.report_runless_asset_event(EVENT)

        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
        try:
            with pytest.raises(dg.DagsterInvariantViolationError, match="events are not stored"):
                full()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert materializations(tmp_path / "home") == 1
        with events_together(instance):
            instance.report_runless_asset_event(EVENT)
        assert materializations(tmp_path / "home") == 2
        of_no_run = instance.all_logs("", dg.DagsterEventType.ASSET_MATERIALIZATION)
        assert len(of_no_run) == 2


def test_a_block_may_read_many_runs(tmp_path: Path) -> None:
    with instance_on_disk(tmp_path / "home") as instance:
        keep_connections(instance)
        with events_together(instance):
            instance.report_runless_asset_event(EVENT)
            for number in range(6):
                assert not instance.all_logs(f"run-{number}")
        assert materializations(tmp_path / "home") == 1


def test_without_kept_connections_a_block_changes_nothing(tmp_path: Path) -> None:
    with instance_on_disk(tmp_path / "home") as instance, events_together(instance):
        instance.report_runless_asset_event(EVENT)
        assert materializations(tmp_path / "home") == 1


def test_a_shard_takes_few_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "100")  # as in the Makefile
    settings = project(tmp_path)
    for number in range(4):
        good_shard(tmp_path / f"raw/{number}.tar", seed=number)
    with instance_on_disk(tmp_path / "home") as instance:
        keep_connections(instance)
        assert run_chain(instance, settings, ["0"]).success
        with writing_commits() as alone:
            assert run_chain(instance, settings, ["1"]).success
        with writing_commits() as two:
            assert run_chain(instance, settings, ["2", "3"]).success
    # two for the events of a stage where the shards are not logged together; none for comparisons and planned events
    assert len(two) - len(alone) <= 4 * 2
