import os
import resource
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

import dagster as dg
import pytest
import yaml
from dagster._core.events import AssetMaterializationPlannedData
from dagster._core.executor.step_delegating import StepDelegatingExecutor
from dagster._serdes import serialize_value
from sqlalchemy.exc import ProgrammingError

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.private_api.instance import RECORDS_NOTHING, events_together, keep_connections
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets_tests.defs.connections import connections, interrupt_block
from interleaved_assets_tests.defs.runs import STAGES, run_chain
from interleaved_assets_tests.defs.test_checks import shown
from interleaved_assets_tests.deploy.postgres import PostgresServer
from interleaved_assets_tests.deploy.toy import ASSETS, toy_job
from interleaved_assets_tests.documents import good_and_damaged_shards, project

pytestmark = pytest.mark.system


@pytest.fixture
def home(deploy_folder: Path, postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DAGSTER_HOME with the file of deploy/postgres, in an environment that leads to the server."""
    shutil.copy(deploy_folder / "postgres/dagster.yaml", tmp_path)
    for name, value in postgres_server.environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "interleaved.toml").touch()
    monkeypatch.setenv("INTERLEAVED_SETTINGS", str(tmp_path / "interleaved.toml"))
    return tmp_path


def test_a_run_and_its_events_are_in_postgresql(home: Path, postgres_server: PostgresServer) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.event_log_storage.set_concurrency_slots("gpu", 1)
        result = toy_job().execute_in_process(instance=instance)
        assert result.success
    stored = postgres_server.rows("SELECT status FROM runs WHERE run_id = %s", result.run_id)
    assert stored == [("SUCCESS",)]
    materialized = postgres_server.rows(
        "SELECT asset_key FROM event_logs WHERE run_id = %s AND dagster_event_type = 'ASSET_MATERIALIZATION'",
        result.run_id,
    )
    assert sorted(materialized) == sorted((f'["{name}"]',) for name in ASSETS)
    assert postgres_server.rows("SELECT \"limit\" FROM concurrency_limits WHERE concurrency_key = 'gpu'") == [(1,)]
    assert not list(home.rglob("*.db")), "nothing may be left to SQLite"


def test_another_process_sees_the_run(home: Path) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        run_id = toy_job().execute_in_process(instance=instance).run_id
    with dg.DagsterInstance.from_config(str(home)) as other:
        assert other.get_run_by_id(run_id).status is dg.DagsterRunStatus.SUCCESS
        assert other.get_latest_materialization_event(dg.AssetKey("on_gpu")).run_id == run_id


def test_the_password_does_not_travel_with_the_instance(home: Path, postgres_server: PostgresServer) -> None:
    """What is sent to a worker, and shown by Ray's dashboard and in pod specs, names the variable and not its value."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        sent = serialize_value(instance.get_ref())
    assert "DAGSTER_PG_PASSWORD" in sent
    assert postgres_server.password not in sent


def test_a_missing_variable_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DAGSTER_PG_PASSWORD")
    with pytest.raises(dg.DagsterInvalidConfigError, match="DAGSTER_PG_PASSWORD"):
        dg.DagsterInstance.from_config(str(home))


EVENT = dg.AssetMaterialization("a", partition="p", tags={"dagster/data_version": "1"})


class Pair(NamedTuple):
    """Two instances with a database of their own each: with the file of deploy/postgres, and with Dagster's storage."""

    ours: dg.DagsterInstance
    theirs: dg.DagsterInstance


@pytest.fixture
def pair(home: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")
    for name in Pair._fields:
        postgres_server.rows(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", database="postgres")
        postgres_server.rows(f"CREATE DATABASE {name}", database="postgres")
    content = yaml.safe_load((home / "dagster.yaml").read_text())
    config = content["storage"]["custom"]["config"]
    (home / "theirs").mkdir()
    config["postgres_db"]["db_name"] = "theirs"
    (home / "theirs/dagster.yaml").write_text(yaml.safe_dump(content | {"storage": {"postgres": config}}))
    monkeypatch.setenv("DAGSTER_PG_DB", "ours")
    with (
        dg.DagsterInstance.from_config(str(home)) as ours,
        dg.DagsterInstance.from_config(str(home / "theirs")) as theirs,
    ):
        yield Pair(ours, theirs)


def stored(server: PostgresServer, database: str) -> dict[str, Counter[tuple[object, ...]]]:
    """What the runs of a database have left in the tables of events, without ids and times."""
    queries = {
        "events": "SELECT dagster_event_type, step_key, asset_key, partition FROM event_logs WHERE run_id != ''",
        "tags": "SELECT dagster_event_type, partition, t.asset_key, key FROM asset_event_tags t JOIN event_logs e"
        " ON e.id = t.event_id",
        "assets": "SELECT a.asset_key, e.dagster_event_type, last_run_id = e.run_id FROM asset_keys a"
        " LEFT JOIN event_logs e ON e.id = (last_materialization::json->>'storage_id')::int",
        "checks": "SELECT c.asset_key, check_name, c.partition, execution_status, m.partition, m.dagster_event_type,"
        " e.dagster_event_type FROM asset_check_executions c LEFT JOIN event_logs m"
        " ON m.id = materialization_event_storage_id LEFT JOIN event_logs e ON e.id = evaluation_event_storage_id",
    }
    return {name: Counter(server.rows(query, database=database)) for name, query in queries.items()}


def test_the_tables_are_those_of_dagsters_own_storage(
    pair: Pair,
    home: Path,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = project(tmp_path)
    good_and_damaged_shards(tmp_path / "raw")
    for instance in pair:
        assert not run_chain(instance, settings, ["a", "b", "c"]).success
    ours, theirs = stored(postgres_server, "ours"), stored(postgres_server, "theirs")
    assert ours == theirs
    assert ours["events"]["ASSET_MATERIALIZATION_PLANNED", "filtered", '["filtered"]', "b"] == 1
    assert ours["checks"].total() > 10
    assert "Falling back" not in capfd.readouterr().err  # Dagster says so where a batch could not be stored
    # each reads what the other one has stored
    monkeypatch.setenv("DAGSTER_PG_DB", "theirs")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_materialized_partitions(dg.AssetKey("final_tars")) == {"a", "c"}


def test_of_unchanged_shards_only_the_evaluations_that_fail_are_events(
    pair: Pair, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    settings = project(tmp_path)
    good_and_damaged_shards(tmp_path / "raw")
    for _ in range(2):
        for instance in pair:
            assert not run_chain(instance, settings, ["a", "b", "c"]).success
    ours, theirs = stored(postgres_server, "ours"), stored(postgres_server, "theirs")
    missing = theirs["events"] - ours["events"]
    assert {kind for kind, *_ in missing} == {"ASSET_CHECK_EVALUATION"}
    assert missing.total() == 2 * (len(STAGES) + 1)
    assert ours["checks"].total() == theirs["checks"].total()
    assert Counter(row[:-1] for row in ours["checks"].elements()) == Counter(
        row[:-1] for row in theirs["checks"].elements()
    )
    for check in ("materialization_errors", "keep_rate_within_bounds"):
        assert (
            {"a", "c"}
            == shown(pair.ours, "filtered", check)["passed"]
            == shown(pair.theirs, "filtered", check)["passed"]
        )


def test_connections_are_kept_and_planned_events_are_stored_in_batches(pair: Pair, tmp_path: Path) -> None:
    settings = project(tmp_path)
    keys = [f"s{number}" for number in range(20)]
    numbers = []
    for instance in pair:
        with connections() as opened:
            assert not run_chain(instance, settings, keys).success  # there are no raw shards
        numbers.append(len(opened))
    ours, theirs = numbers
    assert theirs > 3 * 4 * len(keys)  # for the planned events alone
    assert ours < theirs / 5


def test_events_of_a_block_are_stored_together_or_not_at_all(home: Path, postgres_server: PostgresServer) -> None:
    def count() -> int:
        return len(postgres_server.rows("SELECT id FROM event_logs WHERE asset_key = %s", EVENT.asset_key.to_string()))

    with dg.DagsterInstance.from_config(str(home)) as instance:
        keep_connections(instance)
        before = count()
        with events_together(instance):
            instance.report_runless_asset_event(EVENT)
            instance.report_runless_asset_event(EVENT)
            assert count() == before
            assert len(instance.fetch_materializations(EVENT.asset_key, limit=100).records) == before + 2
        assert count() == before + 2

        interrupt_block(instance, EVENT)
        assert count() == before + 2
        instance.report_runless_asset_event(EVENT)  # the connection is usable
        assert count() == before + 3

        def caught() -> None:
            with events_together(instance):
                instance.report_runless_asset_event(EVENT)
                with suppress(ProgrammingError), instance.event_log_storage.index_connection() as connection:
                    connection.exec_driver_sql("SELECT nothing FROM nowhere")

        with pytest.raises(dg.DagsterInvariantViolationError, match="events are not stored"):
            caught()  # a commit would drop the events and say nothing


def test_evaluations_of_a_block_replace_those_of_the_same_run_before(pair: Pair, tmp_path: Path) -> None:
    """As where a step is tried again in its run."""
    check = dg.AssetCheckSpec("counted", asset="a", partitions_def=dg.StaticPartitionsDefinition(["p", "q"]))

    @dg.asset(partitions_def=check.partitions_def, check_specs=[check], dagster_type=dg.Nothing)
    def a(context: dg.AssetExecutionContext) -> Iterator[dg.Output[None]]:
        keep_connections(context.instance)
        for passed in ((True, False), (False, True, False)):
            with events_together(context.instance):
                for number, result in enumerate(passed):
                    context.log_event(
                        dg.AssetCheckEvaluation(
                            asset_key=context.asset_key,
                            check_name="counted",
                            passed=result,
                            partition="pq"[number % 2],
                            metadata={"number": number},
                        )
                    )
        yield dg.Output(None, metadata={RECORDS_NOTHING: True})
        yield dg.Output(None, output_name="a_counted", metadata={RECORDS_NOTHING: True})

    job = dg.Definitions([a]).resolve_implicit_global_asset_job_def()
    found = []
    for instance in pair:
        assert job.execute_in_process(instance=instance, tags={RANGE_START: "p", RANGE_END: "q"}).success
        history = instance.event_log_storage.get_asset_check_execution_history(check.key, limit=10)
        found.append({(one.partition, one.status, one.event.message) for one in history if one.event})
    ours, theirs = found
    assert ours == theirs
    assert {(partition, status.value) for partition, status, _ in ours} == {("p", "FAILED"), ("q", "SUCCEEDED")}


def test_connections_that_the_server_has_cut_are_opened_anew(home: Path, postgres_server: PostgresServer) -> None:
    """As where the server is restarted. Each of Dagster's storages has a connection of its own."""

    def cut() -> None:
        query = (
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'dagster' AND state = 'idle'"
        )
        assert postgres_server.rows(query, database="postgres")

    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.report_runless_asset_event(EVENT)
        cut()
        instance.report_runless_asset_event(EVENT)
        keep_connections(instance)
        for use in (
            lambda: instance.report_runless_asset_event(EVENT),
            lambda: instance.report_engine_event("an event of no asset", run_id="cut", job_name="cut"),
            lambda: instance.get_runs(limit=1),
            instance.all_instigator_state,
        ):
            use()
            cut()
            use()
        assert len(instance.all_logs("cut")) == 2


def test_a_process_may_have_many_files_open(home: Path) -> None:
    """As a webserver with many pages, whose sockets are files too: connections then have numbers above 1,023."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            before = len(instance.fetch_materializations(EVENT.asset_key, limit=100).records)
            instance.report_runless_asset_event(EVENT)
            assert len(instance.fetch_materializations(EVENT.asset_key, limit=100).records) == before + 1
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_executors_see_events_of_transactions_that_end_late(home: Path) -> None:
    """An executor asks for the events of its run above the highest id that it has seen, less an offset."""
    executor = object.__new__(StepDelegatingExecutor)  # of Kubernetes, for one: it needs a cluster
    executor._event_cursor, executor._pop_events_limit = None, 1000
    seen: set[int] = set()
    with (
        dg.DagsterInstance.from_config(str(home)) as step,
        dg.DagsterInstance.from_config(str(home)) as other,
        dg.DagsterInstance.from_config(str(home)) as reader,
    ):
        keep_connections(step)
        with events_together(step):
            step.report_engine_event("stored first", run_id="late", job_name="late")
            assert len(step.all_logs("late")) == 1  # it has its id
            other.report_engine_event("seen first", run_id="late", job_name="late")
            assert [event.message for event in executor._pop_events(reader, "late", seen)] == ["seen first"]
        assert [event.message for event in executor._pop_events(reader, "late", seen)] == ["stored first"]


def test_daemons_are_given_an_id_below_which_no_event_is_still_to_come(
    home: Path, postgres_server: PostgresServer
) -> None:
    """The daemon of backfills looks only above the highest id that it was given before."""
    first, second = dg.AssetKey("first"), dg.AssetKey("second")
    with (
        dg.DagsterInstance.from_config(str(home)) as run,
        dg.DagsterInstance.from_config(str(home)) as other,
        dg.DagsterInstance.from_config(str(home)) as daemon,
        ThreadPoolExecutor(1) as thread,
    ):
        keep_connections(run)
        daemon.event_log_storage.get_maximum_record_id()  # opens its connection
        with events_together(run):
            run.report_runless_asset_event(dg.AssetMaterialization(first))
            # reading stores the event, and the thread of the block itself does not wait for its end
            assert run.event_log_storage.get_maximum_record_id()
            other.report_runless_asset_event(dg.AssetMaterialization(second))  # with a higher id; others see it at once
            highest = thread.submit(daemon.event_log_storage.get_maximum_record_id)
            with pytest.raises(TimeoutError):
                highest.result(timeout=0.5)
        assert highest.result(timeout=30)
        assert daemon.fetch_materializations(first, limit=1).records[0].storage_id < highest.result()
        # what a process leaves open that has lost its connection ends by itself
        ((limit,),) = settings_in_block(run, "idle_in_transaction_session_timeout")
        assert limit == "30s"


def settings_in_block(instance: dg.DagsterInstance, name: str) -> list[tuple[str]]:
    with events_together(instance), instance.event_log_storage.index_connection() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(f"SHOW {name}")]


def planned(asset: str) -> dg.EventLogEntry:
    data = AssetMaterializationPlannedData(dg.AssetKey(asset))
    event = dg.DagsterEvent.build_asset_materialization_planned_event("job", "step", data)
    return dg.EventLogEntry(None, "debug", "", "run", 1.0, dagster_event=event)


def test_batches_of_several_assets_do_not_block_each_other(home: Path) -> None:
    """Both lock the rows of the assets, which the events name in opposite order."""

    def batches(instance: dg.DagsterInstance, *assets: str) -> None:
        for _ in range(8):
            instance.event_log_storage.store_event_batch([planned(name) for name in assets])

    assets = [f"asset-{number}" for number in range(10)]
    with (
        dg.DagsterInstance.from_config(str(home)) as one,
        dg.DagsterInstance.from_config(str(home)) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        batches(one, *assets)  # makes the rows
        stored = [threads.submit(batches, one, *assets), threads.submit(batches, other, *reversed(assets))]
        for batch in stored:
            batch.result(timeout=60)


def test_first_batches_of_several_assets_do_not_block_each_other(home: Path) -> None:
    """Both make the rows of the assets, as the first runs do on a new database."""
    barrier = Barrier(2)

    def store(instance: dg.DagsterInstance, batches: list[list[dg.EventLogEntry]]) -> None:
        for batch in batches:
            barrier.wait(timeout=60)
            instance.event_log_storage.store_event_batch(batch)

    names = [[f"new-{number}-{asset:02d}" for asset in range(30)] for number in range(4)]
    with (
        dg.DagsterInstance.from_config(str(home)) as one,
        dg.DagsterInstance.from_config(str(home)) as other,
        ThreadPoolExecutor(2) as threads,
    ):
        stored = [
            threads.submit(store, one, [[planned(name) for name in some] for some in names]),
            threads.submit(store, other, [[planned(name) for name in reversed(some)] for some in names]),
        ]
        for batches in stored:
            batches.result(timeout=60)


def test_a_batch_with_an_event_that_cannot_be_stored_leaves_nothing(
    home: Path, postgres_server: PostgresServer
) -> None:
    with dg.DagsterInstance.from_config(str(home)) as instance:
        result = toy_job().execute_in_process(instance=instance)
        events = [
            record.event_log_entry for record in instance.fetch_materializations(dg.AssetKey("before"), limit=1).records
        ]
        damaged = events[0]._replace(run_id="no\x00text")
        with pytest.raises(ValueError, match="NUL"):
            instance.event_log_storage.store_event_batch([*events, damaged])
        found = postgres_server.rows(
            "SELECT id FROM event_logs WHERE run_id = %s AND asset_key = %s", result.run_id, '["before"]'
        )
        assert len(found) == 2  # planned and materialized


def test_planned_checks_take_no_more_bytes_a_shard_in_larger_runs(
    pair: Pair, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    settings = project(tmp_path)
    keys = [f"s{number:03d}" for number in range(100)]
    pair.ours.add_dynamic_partitions(SHARDS, keys)
    job = build_definitions(settings).resolve_implicit_global_asset_job_def()

    def bytes_of(last: str) -> int:
        selected = frozenset(map(dg.AssetKey, STAGES))
        run = pair.ours.create_run_for_job(job, asset_selection=selected, tags={RANGE_START: keys[0], RANGE_END: last})
        query = "SELECT max(length(evaluation_event)), count(*) FROM asset_check_executions WHERE run_id = %s"
        ((size, number),) = postgres_server.rows(query, run.run_id, database="ours")
        assert number >= 5 * (keys.index(last) + 1)  # each stage has checks over all shards too
        return int(size)

    assert bytes_of(keys[-1]) < bytes_of(keys[1]) + 10
    info = pair.ours.event_log_storage.get_asset_check_partition_info(
        [dg.AssetCheckKey(dg.AssetKey("filtered"), "materialization_errors")]
    )
    assert {one.partition_key for one in info} == set(keys)
