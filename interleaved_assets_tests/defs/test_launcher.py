"""What run monitoring learns of a run from the launcher."""

import json
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.launcher.base import WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._grpc.server import GrpcServerProcess

from interleaved_assets.defs.launcher import WatchedRunLauncher
from interleaved_assets_tests.defs.runs import NO_TELEMETRY


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def health(instance: dg.DagsterInstance, tags: dict[str, str]) -> WorkerStatus:
    run = instance.create_run_for_job(dg.GraphDefinition("empty").to_job(), tags=tags)
    launcher = WatchedRunLauncher()
    launcher.register_instance(instance)
    assert launcher.supports_check_run_worker_health
    return launcher.check_run_worker_health(run).status


def test_a_run_that_no_server_was_given_is_left_alone(instance: dg.DagsterInstance) -> None:
    assert health(instance, {}) == WorkerStatus.RUNNING


def test_a_run_whose_server_is_gone_is_lost(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    tags = {GRPC_INFO_TAG: json.dumps({"host": "localhost", "socket": str(tmp_path / "socket")})}
    assert health(instance, tags) == WorkerStatus.NOT_FOUND


def test_a_run_that_its_server_no_longer_knows_may_still_go_on(instance: dg.DagsterInstance, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("import dagster as dg\ndefs = dg.Definitions()\n")
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=NO_TELEMETRY) as own:
        server = GrpcServerProcess(
            instance_ref=own.get_ref(),
            loadable_target_origin=LoadableTargetOrigin(python_file=str(tmp_path / "empty.py")),
            wait_on_exit=True,
        )
        with server:
            client = server.create_client()
            tags = {GRPC_INFO_TAG: json.dumps({"host": "localhost", "socket": client.socket, "port": client.port})}
            assert health(instance, tags) == WorkerStatus.RUNNING
