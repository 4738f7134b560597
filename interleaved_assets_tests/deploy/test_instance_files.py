"""What holds for every dagster.yaml of the repository."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.instance.ref import InstanceRef
from dagster._core.scheduler import DagsterDaemonScheduler
from dagster._core.scheduler.instigation import TickStatus

REPOSITORY = Path(__file__).parents[2]
VARIANTS = {"postgres": {"storage"}, "s3-logs": {"compute_logs"}}


def read(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_differs_from_the_file_of_one_machine_by_its_own_section(variant: str) -> None:
    own = VARIANTS[variant]
    ours, base = read(REPOSITORY / "deploy" / variant / "dagster.yaml"), read(REPOSITORY / "dagster.yaml")
    assert {name: value for name, value in ours.items() if name not in own} == {
        name: value for name, value in base.items() if name not in own
    }
    assert own <= set(ours)


@pytest.mark.parametrize(
    ("variant", "path", "environment", "written"),
    [
        (
            "postgres",
            ("storage", "postgres", "postgres_db"),
            {
                "hostname": "DAGSTER_PG_HOST",
                "port": "DAGSTER_PG_PORT",
                "db_name": "DAGSTER_PG_DB",
                "username": "DAGSTER_PG_USERNAME",
                "password": "DAGSTER_PG_PASSWORD",
            },
            {"scheme", "params"},
        ),
        (
            "s3-logs",
            ("compute_logs", "config"),
            {"bucket": "DAGSTER_LOGS_BUCKET", "local_dir": "DAGSTER_LOGS_STAGING"},
            {"prefix", "upload_interval", "skip_empty_files"},
        ),
    ],
    ids=VARIANTS,
)
def test_secrets_come_from_the_environment(
    variant: str, path: tuple[str, ...], environment: dict[str, str], written: set[str]
) -> None:
    config = read(REPOSITORY / "deploy" / variant / "dagster.yaml")
    for name in path:
        config = config[name]
    assert {name: value for name, value in config.items() if name not in written} == {
        name: {"env": variable} for name, variable in environment.items()
    }


@pytest.fixture(scope="module", params=[".", *(f"deploy/{variant}" for variant in VARIANTS)])
def instance(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    """What Dagster makes of a file, with its storage in a folder instead of a server; to be read only."""
    folder = tmp_path_factory.mktemp("instance")
    shutil.copy(REPOSITORY / request.param / "dagster.yaml", folder)
    storage = {"storage": {"sqlite": {"base_dir": str(folder)}}}
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(folder), overrides=storage)) as instance:
        yield instance


def test_telemetry_and_the_sign_up_dialogue_are_off(instance: dg.DagsterInstance) -> None:
    assert not instance.telemetry_enabled
    assert not instance.nux_enabled


def test_runs_and_steps_at_a_time_are_limited(instance: dg.DagsterInstance) -> None:
    limits = instance.get_concurrency_config()
    assert limits.run_queue_config is not None
    assert limits.run_queue_config.max_concurrent_runs == 2
    assert limits.run_queue_config.max_user_code_failure_retries == 30
    assert limits.pool_config.default_pool_limit == 1
    assert str(limits.pool_config.pool_granularity.value) == "op"


def test_runs_are_looked_after(instance: dg.DagsterInstance) -> None:
    assert instance.run_monitoring_enabled
    assert isinstance(instance.run_launcher, dg.DefaultRunLauncher)
    assert instance.run_monitoring_start_timeout_seconds == 180
    assert instance.run_monitoring_max_runtime_seconds == 24 * 3600
    assert instance.get_settings("run_monitoring")["free_slots_after_run_end_seconds"] == 60


def test_a_night_that_fails_because_the_storage_does_not_answer_is_tried_for_half_an_hour(
    instance: dg.DagsterInstance,
) -> None:
    """Once a minute."""
    assert isinstance(instance.scheduler, DagsterDaemonScheduler)
    assert instance.scheduler.max_tick_retries == 30


def test_ticks_are_kept_for_so_many_days(instance: dg.DagsterInstance) -> None:
    assert instance.get_tick_retention_settings(InstigatorType.SCHEDULE)[TickStatus.SUCCESS] == 90
    for kind in (InstigatorType.SENSOR, InstigatorType.AUTO_MATERIALIZE):
        days = instance.get_tick_retention_settings(kind)
        kept = [days[status] for status in (TickStatus.SKIPPED, TickStatus.FAILURE, TickStatus.SUCCESS)]
        assert kept == [3, 30, 90]
