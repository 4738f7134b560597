"""Shards as tasks of a Ray cluster. Ray itself repeats the tasks of a node or a worker that was lost.

A task takes one shard, or many if one worker has to take them together, and sends each result as soon as it is ready. A
task carries everything that it needs; a node needs the package and access to the storage, and nothing of Dagster.
Repeating a task does no harm: the outputs and the record of a stage are valid as a whole or not at all.
"""

import faulthandler
import hashlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.model.errors import (
    ClusterUnavailable,
    MissingDependency,
    ShardError,
    ShardTimeout,
    WorkerLost,
    how_to_install,
)
from interleaved_assets.pipeline.run.sendable import sendable
from interleaved_assets.pipeline.run.stage import ShardResult
from interleaved_assets.pipeline.run.threads import TICK_S
from interleaved_assets.settings import PluginSettings

Result = TypeVar("Result")

ClusterWork = Callable[[Sequence[str]], Iterator[tuple[str, Result | Exception] | None]]

_TRIES: Final = 3
"""Workers that may be lost with a task before its shards fail, since one of the shards may be what ends its worker."""
_AHEAD: Final = 2
"""Tasks given at a time for each CPU or GPU of the cluster, so that no worker waits for this process."""
_GRACE_S: Final = 60.0
"""Seconds beyond the time limit after which a worker ends if it has not noticed that the limit is exceeded."""
_END_S: Final = 5.0
"""Seconds after which a worker with a hanging thread ends. Its result is sent by then."""


class _Given(NamedTuple):
    """A task that was given to the cluster: its shards without a result, and the time."""

    left: dict[str, None]
    at: float


def on_cluster(
    work: ClusterWork[Result],
    keys: Sequence[str],
    name: str,
    *,
    together: bool,
    gpu: bool,
    limit_s: float,
    plugins: PluginSettings,
) -> Iterator[ShardResult[Result] | None]:
    """Yield the result of ``work`` for each of ``keys`` from the Ray cluster; None about once a second in between.

    Closing the generator cancels the remaining tasks, with the workers that work on them.

    Args:
        work: called on a worker with some of the keys. It yields each of them with its result or its error, and None
            about once a second while it waits. It enforces the time limit itself. cloudpickle must be able to pickle
            it.
        together: whether a task takes many shards, with as many tasks as there are GPUs or CPUs; else each task takes
            one.
        gpu: whether a task takes one GPU of its node, or one CPU.
        limit_s: seconds that ``work`` may take for one shard.

    Raises:
        ClusterUnavailable: there is no cluster, it does not accept this process, or one of its nodes cannot do the
            work.
    """
    _connect()
    import ray

    def size_of_cluster() -> int:
        return max(1, int(ray.cluster_resources().get("GPU" if gpu else "CPU", 0)))

    task = _remote(work, name, plugins, limit_s).options(
        name=name, num_returns="streaming", num_cpus=int(not gpu), num_gpus=int(gpu), max_retries=_TRIES - 1
    )
    size = -(-len(keys) // size_of_cluster()) if together else 1
    waiting = deque(list(keys[start : start + size]) for start in range(0, len(keys), size))
    given: dict[Any, _Given] = {}
    try:
        # Ray's calls lose the exception by which Dagster ends a run if its signal arrives in them. Signals arrive in
        # the main thread only, so another thread makes these calls.
        with Workers(1, f"{name}_results") as waiter:
            while waiting or given:
                while waiting and len(given) < _AHEAD * size_of_cluster():
                    some = waiting.popleft()
                    given[task.remote(some)] = _Given(dict.fromkeys(some), time.monotonic())
                answer = waiter.submit(_first_answer, list(given)).result()
                if answer is None:
                    yield None
                    continue
                ready, found = answer
                left, at = given[ready]
                if isinstance(found, ray.exceptions.RayTaskError):
                    # the work sends its own errors, so this node cannot load the work, and would fail every shard
                    raise ClusterUnavailable(f"a worker cannot do {name}: {found.cause or found}") from found
                if found is None or isinstance(found, ray.exceptions.RayError):
                    del given[ready]
                    if len(some := list(left)) == 1:
                        yield ShardResult(some[0], name, _lost(some[0], name, found))
                    elif some:  # one of the shards may end its worker; halving finds it
                        waiting.extend((some[: len(some) // 2], some[len(some) // 2 :]))
                    continue
                key, result, host, seconds = found
                if key in left:  # else a repeated task sent it before
                    del left[key]
                    queued = max(0.0, time.monotonic() - at - seconds)
                    yield ShardResult(key, name, result, host, queued)
    except (ConnectionError, ray.exceptions.RayError) as error:
        raise ClusterUnavailable(f"the cluster was lost during {name}: {error}") from error
    finally:
        for generator in given:
            ray.cancel(generator, force=True)


def _first_answer(tasks: list[Any]) -> tuple[Any, Any] | None:
    """Return the first of ``tasks`` that has a result, and its next result: an error of Ray, or None if it ended.

    Return None if none has one within a second.
    """
    import ray

    ready, _ = ray.wait(tasks, num_returns=1, timeout=TICK_S, fetch_local=False)
    if not ready:
        return None
    try:
        return ready[0], ray.get(next(ready[0]))
    except StopIteration:
        return ready[0], None
    except ray.exceptions.RayError as error:
        return ready[0], error


def _lost(key: str, name: str, error: Exception | None) -> ShardError:
    if error is None:
        return ShardError(f"shard {key}: {name} ended without a result for it; this is an error of its code")
    return WorkerLost(
        f"shard {key}: {_TRIES} workers were lost with {name}: {type(error).__name__}: {error}. It may take more "
        "memory than a node has, or crash a library"
    )


def _remote(work: ClusterWork[Any], name: str, plugins: PluginSettings, limit_s: float) -> Any:
    """Return the Ray function that does ``work`` and sends its results."""
    import ray

    release = _release()

    def watch_interpreter() -> None:
        """End this process if a thread keeps the interpreter lock, so that not even the time limit is checked."""
        faulthandler.dump_traceback_later(limit_s + _GRACE_S, exit=True)

    def task(keys: list[str]) -> Iterator[tuple[str, object, str, float]]:
        began, host = time.monotonic(), ray.util.get_node_ip_address()
        if _release() != release:
            raise ClusterUnavailable(
                f"the node {host} has another release of interleaved-assets than the run has: install the same on all"
            )
        PluginSettings.model_validate(plugins.model_dump())  # imports them
        hangs = False
        watch_interpreter()
        for found in work(keys):
            watch_interpreter()
            if found is not None:
                key, result = found
                hangs = hangs or isinstance(result, ShardTimeout)
                yield key, sendable(result, key, name), host, time.monotonic() - began
        faulthandler.cancel_dump_traceback_later()
        if hangs:  # Ray repeats tasks that the worker begins until then
            threading.Timer(_END_S, os._exit, [1]).start()

    try:
        ray.cloudpickle.dumps(task)
    except Exception as error:
        raise ClusterUnavailable(
            f"{name} cannot be sent to the cluster: {type(error).__name__}: {error}. What the stage and its drawing of "
            "pictures refer to has to be picklable: no locks, open files or connections"
        ) from error
    return ray.remote(task)


@cache
def _release() -> str:
    """Return a hash of the package's source: with other code, a worker would write other outputs."""
    root = Path(__file__).parents[2]
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        found.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def _connect() -> None:
    """Join the cluster that ``RAY_ADDRESS`` names, or that has a node on this machine, once for the process."""
    try:
        import ray
    except ImportError as error:
        raise MissingDependency(f'run.executor = "ray" needs the package ray: {how_to_install("ray")}') from error

    if ray.is_initialized():
        return
    try:
        with _kept_handlers():
            ray.init(address="auto", configure_logging=False)
    except (ConnectionError, RuntimeError, ray.exceptions.RayError) as error:
        raise ClusterUnavailable(
            f"no Ray cluster: {error}. The machine of the run has to be a node of it (deploy/ray/start.sh), with "
            "RAY_AUTH_MODE=token and the cluster's RAY_AUTH_TOKEN; RAY_ADDRESS names the head"
        ) from error


@contextmanager
def _kept_handlers() -> Iterator[None]:
    """Keep the signal handlers of this process: Ray replaces that of SIGTERM, by which Dagster ends a run."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Ray replaces no handler on another thread
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
