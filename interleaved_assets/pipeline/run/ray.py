"""Tasks of the map over shards on a Ray cluster.

A task carries everything that it needs; a node needs the package and access to the storage, and nothing of Dagster. A
task that is given again does no harm: the outputs and the record of a stage are valid as a whole or not at all. Ray
would repeat the tasks of a lost worker by itself, but would not say when the repeated task begins, from when its time
limit counts.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.rows.processors import share_processors
from interleaved_assets.model.errors import (
    ClusterUnavailable,
    MissingDependency,
    WorkerLost,
    describe,
    how_to_install,
)
from interleaved_assets.model.shown import show_warnings
from interleaved_assets.pipeline.run.shard_map import TICK_S, Begun, Found, Task, TaskWork, each_result, sendable
from interleaved_assets.pipeline.run.stage import ShardResult
from interleaved_assets.settings.sections import RunSettings

Result = TypeVar("Result")

_AHEAD: Final = 2
"""Tasks given at a time for each CPU or GPU of the cluster, so that no worker waits for this process."""


def on_cluster(
    work: TaskWork[Result],
    keys: Sequence[str],
    stage: str,
    run: RunSettings,
    *,
    together: bool,
    gpu: bool,
) -> Iterator[ShardResult[Result] | None]:
    """Yield the result of ``work`` for each of ``keys`` from the Ray cluster; None about once a second in between.

    Closing the generator cancels the remaining tasks, with the workers that work on them.

    Args:
        work: does a task on a worker. cloudpickle must be able to pickle it.
        together: whether a task takes many shards, with as many tasks as there are GPUs or CPUs; else each takes one.
        gpu: whether a task takes one GPU of its node, or one CPU.

    Raises:
        ClusterUnavailable: there is no cluster, it does not accept this process, or one of its nodes cannot do the
            work.
    """

    def results() -> Iterator[ShardResult[Result] | None]:
        ray = _connect()
        try:
            cluster = OnCluster(ray, work, stage, gpu=gpu)
            size = -(-len(keys) // cluster.size()) if together else 1
            tasks = [Task(tuple(keys[start : start + size]), stage) for start in range(0, len(keys), size)]
            yield from each_result(cluster, tasks, limit_s=run.max_shard_seconds, tries=run.storage_tries)
        except (ConnectionError, ray.exceptions.RayError) as error:
            raise ClusterUnavailable(f"the cluster was lost during {stage}: {error}") from error

    # Ray's calls lose the exception by which Dagster ends a run if its signal arrives in them, and ray.init replaces
    # the handlers of signals. Both happen in the main thread only, so another thread makes these calls.
    return prefetch(results())


class OnCluster(Generic[Result]):
    """The workers of the cluster: a place of :func:`.each_result`."""

    queues = True

    def __init__(self, ray: Any, work: TaskWork[Result], name: str, *, gpu: bool) -> None:
        self._ray, self._name, self._resource = ray, name, "GPU" if gpu else "CPU"
        try:
            ray.cloudpickle.dumps(work)
        except Exception as error:
            raise ClusterUnavailable(
                f"{name} cannot be sent to the cluster: {type(error).__name__}: {error}. What the stage and its "
                "drawing of pictures refer to has to be picklable: no locks, open files or connections"
            ) from error
        release = _release()

        def do(task: Task) -> Iterator[Begun | Found[Result]]:
            show_warnings()
            if not gpu:  # a node has a task for each CPU
                share_processors(os.cpu_count() or 1)
            yield from _messages(task, work, release)

        self._do = ray.remote(do).options(
            name=name, num_returns="streaming", num_cpus=int(not gpu), num_gpus=int(gpu), max_retries=0
        )
        self._given: dict[Any, None] = {}

    def size(self) -> int:
        """Return how many tasks the cluster can do at a time."""
        return max(1, int(self._ray.cluster_resources().get(self._resource, 0)))

    def has_room(self) -> bool:
        return len(self._given) < _AHEAD * self.size()

    def give(self, task: Task, _: float) -> Any:
        given = self._do.remote(task)
        self._given[given] = None
        return given

    def messages(self) -> Iterator[tuple[Any, Begun | Found[Result] | WorkerLost | None]]:
        ready, _ = self._ray.wait(list(self._given), num_returns=1, timeout=TICK_S, fetch_local=False)
        for given in ready:
            yield given, self._next_message(given)

    def _next_message(self, given: Any) -> Begun | Found[Result] | WorkerLost | None:
        try:
            message: Begun | Found[Result] = self._ray.get(next(given))
            return message
        except StopIteration:
            del self._given[given]
            return None
        except self._ray.exceptions.RayTaskError as error:
            # the work yields errors of shards, so this node cannot load the work, and would fail every shard
            raise ClusterUnavailable(f"a worker cannot do {self._name}: {error.cause or error}") from error
        except self._ray.exceptions.RayError as error:
            del self._given[given]
            return WorkerLost(describe(error))

    def abandon(self, handle: Any) -> bool:
        if self._ray.wait([handle], timeout=0, fetch_local=False)[0]:
            return False
        self._ray.cancel(handle, force=True)  # with its worker
        del self._given[handle]
        return True

    def close(self, _: bool, /) -> None:
        for given in self._given:
            self._ray.cancel(given, force=True)


def _messages(task: Task, work: TaskWork[Result], release: str) -> Iterator[Begun | Found[Result]]:
    """Do a task on a worker, and yield what is sent."""
    import ray

    host = ray.util.get_node_ip_address()
    yield Begun(host)
    if _release() != release:
        raise ClusterUnavailable(
            f"the node {host} has another release of interleaved-assets than the run has: install the same on all"
        )
    for key, result in work(task):
        yield Found(key, sendable(result, key, task.stage))


@cache
def _release() -> str:
    """Return a hash of the package's source: with other code, a worker would write other outputs."""
    root = Path(__file__).parents[2]
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        found.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def _connect() -> Any:
    """Join the cluster that ``RAY_ADDRESS`` names, or that has a node on this machine; return the package ``ray``."""
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(f'run.executor = "ray" needs the package ray: {how_to_install("ray")}') from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto", configure_logging=False)
        except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
            raise ClusterUnavailable(
                f"no Ray cluster: {error}. The machine of the run has to be a node of it (deploy/ray/start.sh), with "
                "RAY_AUTH_MODE=token and the cluster's RAY_AUTH_TOKEN; RAY_ADDRESS names the head"
            ) from error
    return ray
