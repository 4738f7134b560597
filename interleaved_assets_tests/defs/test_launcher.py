"""What run monitoring learns of a run from the launcher."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.launcher.base import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.server import GrpcServerProcess

from interleaved_assets.defs.launcher import WatchedRunLauncher
from interleaved_assets_tests.defs.runs import NO_TELEMETRY

RUN_ID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@contextmanager
def code_server(folder: Path) -> Iterator[dict[str, str]]:
    """A server without definitions; gives the tags of a run that it was given."""
    (folder / "empty.py").write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    with dg.DagsterInstance.local_temp(str(folder), overrides=NO_TELEMETRY) as own:
        server = GrpcServerProcess(
            instance_ref=own.get_ref(),
            loadable_target_origin=LoadableTargetOrigin(python_file=str(folder / "empty.py")),
            wait_on_exit=True,
        )
        with server:
            client = server.create_client()
            yield {GRPC_INFO_TAG: json.dumps({"host": "localhost", "socket": client.socket, "port": client.port})}


def server_that_is_gone(folder: Path) -> dict[str, str]:
    return {GRPC_INFO_TAG: json.dumps({"host": "localhost", "socket": str(folder / "socket")})}


def looks_at(instance: dg.DagsterInstance, tags: dict[str, str]) -> Iterator[WorkerStatus]:
    """What one look after another finds of a run with these tags."""
    run = instance.create_run_for_job(dg.GraphDefinition("empty").to_job(), run_id=RUN_ID, tags=tags)
    launcher = WatchedRunLauncher()
    launcher.register_instance(instance)
    assert launcher.supports_check_run_worker_health
    while True:
        yield launcher.check_run_worker_health(run).status


def test_a_run_that_no_server_was_given_is_left_alone(instance: dg.DagsterInstance) -> None:
    looks = looks_at(instance, {})
    assert [next(looks), next(looks)] == [WorkerStatus.RUNNING] * 2


def test_a_run_whose_server_is_gone_is_lost_at_the_second_look(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    looks = looks_at(instance, server_that_is_gone(tmp_path))
    assert [next(looks), next(looks)] == [WorkerStatus.RUNNING, WorkerStatus.NOT_FOUND]


def test_a_server_that_was_away_for_one_look_costs_no_run(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    looks = looks_at(instance, server_that_is_gone(tmp_path))
    assert next(looks) == WorkerStatus.RUNNING
    with code_server(tmp_path) as there:
        instance.add_run_tags(RUN_ID, there)
        assert next(looks) == WorkerStatus.RUNNING
    assert [next(looks), next(looks)] == [WorkerStatus.RUNNING, WorkerStatus.NOT_FOUND]


def test_a_run_that_its_server_no_longer_knows_may_still_go_on(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    with code_server(tmp_path) as tags:
        looks = looks_at(instance, tags)
        assert [next(looks), next(looks)] == [WorkerStatus.RUNNING] * 2
