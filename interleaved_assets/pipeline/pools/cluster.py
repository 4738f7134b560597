"""Shards as tasks of a Ray cluster: lost workers are replaced, and hanging ones are killed.

A task takes one shard, or many where one worker has to take them together, and sends each result as soon as it is
ready. What a task needs is sent along; a node needs the package, access to the storage, and nothing of Dagster. Only
this process knows which shards are left, so that a node may go at any moment: its unfinished shards are given to other
nodes, which is safe because what a stage writes and records is valid as a whole or not at all.
"""

import hashlib
import pickle
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from interleaved_assets.model.errors import (
    ClusterUnavailable,
    MissingDependency,
    ShardError,
    WorkerLost,
    how_to_install,
)
from interleaved_assets.pipeline.pools.arrival import TICK_S, Arrival, too_slow
from interleaved_assets.settings import PluginSettings

if TYPE_CHECKING:
    import ray

Result = TypeVar("Result")

Work = Callable[[Sequence[str]], Iterator[tuple[str, Result | BaseException]]]

_TRIES: Final = 3
"""Workers that may be lost with one shard alone before it fails: it may be the shard that ends them."""
_AHEAD: Final = 2
"""Tasks for each CPU of the cluster that are given to it and not ended, so that no worker waits for this process."""
_RESOURCES_AGE_S: Final = 5.0
"""Seconds after which the cluster is asked again for its CPUs: nodes come and go."""


class Needs(NamedTuple):
    """What one task takes of a node while it works."""

    cpus: int
    gpus: int


@dataclass
class _Task:
    """Shards that were given to the cluster together, and not yet returned."""

    left: dict[str, None]
    given: float
    started: float | None = None
    last: float = 0.0
    """When it last sent something."""
    host: str = ""


class _Started(NamedTuple):
    """The first thing that a task sends."""

    host: str


def on_cluster(
    work: Work[Result],
    keys: Sequence[str],
    name: str,
    *,
    together: bool,
    needs: Needs,
    limit_s: float,
    plugins: PluginSettings,
) -> Iterator[Arrival[Result] | None]:
    """``work`` of ``keys`` on the Ray cluster of this machine, as they become ready; None about once a second else.

    Closing the generator cancels what is left, with the workers that work on it.

    Args:
        work: called on a worker with some of the keys, yields each of them with its result or its error. cloudpickle
            has to be able to pickle it.
        together: whether a task takes many shards, as many tasks as there are devices (``needs.gpus``) or CPUs; else
            each task takes one.
        limit_s: seconds that a worker may take for one shard; then the worker is killed and the shard fails.

    Raises:
        ClusterUnavailable: there is no cluster, it does not accept this process, or a node of it cannot do the work.
    """
    _connect()
    pool = _Pool(_remote(work, plugins, needs, name), name, limit_s)
    kind = "GPU" if needs.gpus else "CPU"
    size = -(-len(keys) // max(1, _count(kind))) if together else 1
    pool.waiting += [keys[start : start + size] for start in range(0, len(keys), size)]
    try:
        while pool.waiting or pool.tasks:
            pool.submit()
            nothing = True
            for arrival in pool.arrivals():  # each at once: the next one may be the error that ends the step
                nothing = False
                yield arrival
            if nothing:
                yield None
    finally:
        pool.cancel()


@dataclass
class _Pool:
    """The tasks of one call of :func:`on_cluster`."""

    task: Any
    name: str
    limit_s: float
    waiting: deque[Sequence[str]] = field(default_factory=deque)
    tasks: dict["ray.ObjectRefGenerator", _Task] = field(default_factory=dict)
    lost: Counter[str] = field(default_factory=Counter)
    """Workers that were lost with this shard alone."""
    _room: int = 0
    _counted: float | None = None

    def submit(self) -> None:
        """Give the cluster as much as keeps it busy."""
        now = time.monotonic()
        if self._counted is None or now - self._counted > _RESOURCES_AGE_S:
            self._counted, self._room = now, _AHEAD * max(1, _count("CPU"), _count("GPU"))
        while self.waiting and len(self.tasks) < self._room:
            keys = self.waiting.popleft()
            self.tasks[self.task.remote(list(keys))] = _Task(dict.fromkeys(keys), time.monotonic())

    def arrivals(self) -> Iterator[Arrival[Any]]:
        """What tasks have sent, waited for up to a tick; then the shards that took too long.

        Raises:
            ClusterUnavailable: a worker cannot do the work, or the cluster does not answer; all that tasks have sent
                until then came before it.
        """
        import ray

        try:
            ready, _ = ray.wait(list(self.tasks), num_returns=1, timeout=TICK_S, fetch_local=False)
        except (ConnectionError, ray.exceptions.RayError) as error:
            raise ClusterUnavailable(f"the cluster was lost during {self.name}: {error}") from error
        if ready:
            ready = self._ready()
        # this process may have been busy: a task is late only if it has nothing to give now
        overdue = time.monotonic() - self.limit_s
        late = [item for item in self.tasks.items() if item[1].started is not None and item[1].last < overdue]
        broken: Exception | None = None
        while ready:
            for generator in ready:
                try:
                    yield from self._next_of(generator)
                except ray.exceptions.RayTaskError as error:
                    del self.tasks[generator]
                    broken = broken or error
            # before an error ends the step, all that other tasks have sent
            ready = self._ready() if broken else []
        if broken:
            # the work sends its errors: this is a node that cannot load it, and would go on to fail every shard
            cause = getattr(broken, "cause", None) or broken
            raise ClusterUnavailable(f"a worker cannot do {self.name}: {cause}") from broken
        for generator, task in late:
            if generator in self.tasks and task.last < overdue and task.left:
                del self.tasks[generator]
                ray.cancel(generator, force=True)
                # a task sends its results in order
                key, *others = task.left
                yield self._arrival(task, key, too_slow(key, self.name, self.limit_s))
                if others:
                    self.waiting.appendleft(others)

    def _ready(self) -> "list[ray.ObjectRefGenerator]":
        """The tasks that have sent something which was not taken yet, or have ended."""
        import ray

        if not self.tasks:
            return []
        ready, _ = ray.wait(list(self.tasks), num_returns=len(self.tasks), timeout=0, fetch_local=False)
        return list(ready)

    def _next_of(self, generator: "ray.ObjectRefGenerator") -> Iterator[Arrival[Any]]:
        """The next thing that a task has sent."""
        import ray

        try:
            item = ray.get(next(generator))
        except StopIteration:
            task = self.tasks.pop(generator)
            for key in task.left:  # none but for a defect
                skipped = f"shard {key}: {self.name} ended without a result for it; this is an error of its code"
                yield self._arrival(task, key, ShardError(skipped))
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            yield from self._lose(self.tasks.pop(generator), error)
        else:
            yield from self._take(generator, item)

    def _take(self, generator: "ray.ObjectRefGenerator", item: Any) -> Iterator[Arrival[Any]]:
        task = self.tasks[generator]
        task.last = time.monotonic()
        match item:
            case _Started(host):
                task.started, task.host = task.last, host
            case key, result:
                del task.left[key]
                yield self._arrival(task, key, result)

    def _lose(self, task: _Task, error: Exception) -> Iterator[Arrival[Any]]:
        """Try shards again whose worker was lost; many are split in two, so that one that ends workers is found."""
        keys = list(task.left)
        if len(keys) > 1:
            self.waiting.extendleft((keys[len(keys) // 2 :], keys[: len(keys) // 2]))
            return
        for key in keys:
            self.lost[key] += 1
            if self.lost[key] < _TRIES:
                self.waiting.appendleft([key])
                continue
            yield self._arrival(
                task,
                key,
                WorkerLost(
                    f"shard {key}: {_TRIES} workers were lost with {self.name}, the last on {task.host or 'no node'}: "
                    f"{type(error).__name__}: {error}. It may take more memory than a node has, or crash a library"
                ),
            )

    def _arrival(self, task: _Task, key: str, result: Any) -> Arrival[Any]:
        waited = (task.started or time.monotonic()) - task.given
        return Arrival(key, result, task.host, waited)

    def cancel(self) -> None:
        import ray

        for generator in self.tasks:
            ray.cancel(generator, force=True)


def _remote(work: Work[Result], plugins: PluginSettings, needs: Needs, name: str) -> Any:
    """The Ray function that does ``work`` and sends its results."""
    import ray

    release = _release()

    def task(keys: list[str]) -> Iterator[object]:
        host = ray.util.get_node_ip_address()
        yield _Started(host)
        if _release() != release:
            raise ClusterUnavailable(
                f"the node {host} has another release of interleaved-assets than the run has: install the same on all"
            )
        PluginSettings.model_validate(plugins.model_dump())  # imports them
        for key, result in work(keys):
            yield key, _sendable_result(key, result, name)

    try:
        ray.cloudpickle.dumps(task)
    except Exception as error:
        raise ClusterUnavailable(
            f"{name} cannot be sent to the cluster: {type(error).__name__}: {error}. What the stage and its drawing of "
            "pictures refer to has to be picklable: no locks, open files or connections"
        ) from error
    return ray.remote(task).options(
        name=name,
        num_returns="streaming",
        num_cpus=needs.cpus,
        num_gpus=needs.gpus,
        max_retries=0,  # a lost worker is reported here, where its results are known
    )


def _sendable_result(key: str, result: object, name: str) -> object:
    """``result``, or an error of this shard where its result cannot be pickled: Ray would fail the whole task."""
    import ray

    if isinstance(result, BaseException):
        return sendable(result)
    try:
        pickle.loads(ray.cloudpickle.dumps(result))
    except Exception as error:  # noqa: BLE001  pickling runs code of any class
        return ShardError(
            f"shard {key}: the result of {name} cannot be sent from its worker: {type(error).__name__}: {error}"
        )
    return result


def sendable(error: BaseException) -> BaseException:
    """``error`` with its traceback as a note, which pickling keeps; one that cannot be pickled, as a ShardError."""
    error.add_note("".join(traceback.format_exception(error)).rstrip())
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  pickling runs code of any class of exception
        return ShardError(f"{type(error).__name__}: {error}")
    return error


def _count(resource: str) -> int:
    import ray

    return int(ray.cluster_resources().get(resource, 0))


@cache
def _release() -> str:
    """Hash of the package's source: a worker with other code would write other outputs under the run's versions."""
    root = Path(__file__).parents[2]
    found = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        found.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return found.hexdigest()


def _connect() -> None:
    """Join the cluster that ``RAY_ADDRESS`` names, or that has a node on this machine; once for the process."""
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
        yield  # Ray leaves them alone there
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
