"""The launcher of runs on one machine, which can tell that a run has been lost.

Dagster's own leaves it to the code server to report a run whose process has died. Where the code server dies with it
(the machine went down, the container was replaced), nobody does: the run counts as under way for good, keeps its place
in the queue and its pool slots, and its backfill never ends. With this one, run monitoring looks for the code server
that the run was given to, and ends the run as failed where two looks in a row found none.

What it cannot see is a run whose code server has a successor on the same port: such a run has to be terminated by hand.
"""

from typing import Any

import dagster as dg
import grpc  # type: ignore[import-untyped]  # it has no annotations
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus
from dagster._grpc.types import CanCancelExecutionRequest


class WatchedRunLauncher(dg.DefaultRunLauncher):
    """``DefaultRunLauncher`` with what run monitoring needs; named in ``dagster.yaml``."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._unreachable: set[str] = set()
        """Runs whose code server did not answer at the last look."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """It does."""
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        """Whether the code server that ``run`` was given to is still there.

        A server that is slow to answer counts as there, and so does a run that no server was given: one that a script
        executes in its own process. One that cannot be reached gets until the next look: a run that goes on beside its
        successor costs both. What a server says of the run does not count: behind ``dagster dev`` stands one that, once
        definitions were reloaded, no longer knows of runs that go on.
        """
        client = self._get_grpc_client_for_termination(run.run_id)
        if client is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        try:
            client.can_cancel_execution(CanCancelExecutionRequest(run_id=run.run_id))
        except DagsterUserCodeUnreachableError as error:
            cause = error.__cause__
            if not isinstance(cause, grpc.RpcError) or cause.code() != grpc.StatusCode.UNAVAILABLE:
                return CheckRunHealthResult(WorkerStatus.RUNNING, f"its code server did not answer: {error}")
            if run.run_id in self._unreachable:
                return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server is gone")
            self._unreachable.add(run.run_id)
            return CheckRunHealthResult(WorkerStatus.RUNNING, "its code server cannot be reached; it has one more look")
        self._unreachable.discard(run.run_id)
        return CheckRunHealthResult(WorkerStatus.RUNNING)
