"""What arrives from the tasks of a cluster, with a stand-in for Ray; deploy/test_ray.py has a real cluster."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from interleaved_assets.model.errors import ClusterUnavailable
from interleaved_assets.pipeline.pools import cluster
from interleaved_assets.pipeline.pools.cluster import Needs, on_cluster
from interleaved_assets.settings import PluginSettings


class RayError(Exception):
    pass


class RayTaskError(RayError):
    cause = ImportError("another release")


class Sent:
    """A task that has sent these items; an error ends it."""

    def __init__(self, *items: object) -> None:
        self.items = deque(items)

    def __next__(self) -> object:
        if not self.items:
            raise StopIteration
        return self.items.popleft()


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Run a step whose tasks have sent all that is given, and return the keys that arrive before an error."""

    def get(item: object) -> object:
        if isinstance(item, Exception):
            raise item
        return item

    def run(sent: dict[str, Sent], lost: Exception | None = None) -> list[str]:
        waits = iter(range(100))

        def wait(generators: Sequence[Sent], **_: Any) -> tuple[Sequence[Sent], Sequence[Sent]]:
            if lost and next(waits) > 1:
                raise lost
            return generators, []

        ray = ModuleType("ray")
        exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)
        ray.__dict__.update(wait=wait, get=get, cancel=lambda *_, **__: None, exceptions=exceptions)
        monkeypatch.setitem(sys.modules, "ray", ray)
        monkeypatch.setattr(cluster, "_connect", lambda: None)
        monkeypatch.setattr(cluster, "_count", lambda _: 8)
        task = SimpleNamespace(remote=lambda keys: sent[keys[0]])
        monkeypatch.setattr(cluster, "_remote", lambda *_: task)
        arrivals = on_cluster(
            lambda _: iter(()),
            list(sent),
            "work",
            together=False,
            needs=Needs(1, 0),
            limit_s=60,
            plugins=PluginSettings(),
        )
        found: list[str] = []
        with pytest.raises(ClusterUnavailable) as error:
            found.extend(arrival.key for arrival in arrivals if arrival)
        return [*found, str(error.value)]

    return run


def test_what_was_sent_arrives_before_the_error_that_ends_the_step(tasks: Callable[..., list[str]]) -> None:
    started = cluster._Started("node")
    sent = {"a": Sent(started, ("a", 1)), "broken": Sent(RayTaskError()), "b": Sent(started, ("b", 2))}
    assert tasks(sent) == ["a", "b", "a worker cannot do work: another release"]


def test_what_was_sent_arrives_before_the_loss_of_the_cluster(tasks: Callable[..., list[str]]) -> None:
    sent = {"a": Sent(("a", 1)), "b": Sent(("b", 2))}
    assert tasks(sent, ConnectionError("no head")) == ["a", "b", "the cluster was lost during work: no head"]
