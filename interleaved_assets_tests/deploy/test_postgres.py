"""The instance of deploy/postgres, on a real server."""

import shutil
from pathlib import Path

import dagster as dg
import pytest
from dagster._serdes import serialize_value
from sqlalchemy import NullPool, QueuePool, create_engine

from interleaved_assets_tests.deploy.postgres import PostgresServer
from interleaved_assets_tests.deploy.toy import ASSETS, toy_job

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


def test_connections_that_the_server_has_cut_are_opened_anew(home: Path, postgres_server: PostgresServer) -> None:
    """As where the server is restarted. Each of Dagster's storages has a connection of its own."""

    def cut() -> None:
        query = (
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'dagster' AND state = 'idle'"
        )
        assert postgres_server.rows(query, database="postgres")

    with dg.DagsterInstance.from_config(str(home)) as instance:
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


def test_the_plugin_leaves_the_url_and_other_options_alone() -> None:
    url = "postgresql+psycopg2://user:word@host:5432/dagster?plugin=interleaved_pool&sslmode=require"
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    assert engine.url.render_as_string(hide_password=False) == (
        "postgresql+psycopg2://user:word@host:5432/dagster?sslmode=require"
    )
    assert isinstance(engine.pool, QueuePool)
    assert engine.pool.size() == 1
    assert engine.get_execution_options() == {}
