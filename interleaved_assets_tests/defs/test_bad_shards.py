"""A shard that always fails, clocks that are wrong, and two thousand new shards at once."""

import errno
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dagster import DagsterInstance

from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import Watcher, materialized, run_chain
from interleaved_assets_tests.documents import good_shard, project
from interleaved_assets_tests.system_calls import files_opened, system_calls

AT_ONCE = "[watch]\nquiet_seconds = 0\n"
DAY = 86_400


@pytest.mark.parametrize(
    "damage",
    [
        lambda tar: b"no tar" * 999,
        pytest.param(lambda tar: b"", marks=pytest.mark.system),
        pytest.param(lambda tar: tar[:9000], marks=pytest.mark.system),
    ],
)
def test_a_shard_that_always_fails_is_tried_once_a_run(
    tmp_path: Path, instance: DagsterInstance, damage: Callable[[bytes], bytes]
) -> None:
    settings = project(tmp_path, f"{AT_ONCE}[run]\nparallel_shards = 1\n")  # in this process, which is watched
    for name in ("a", "b", "c"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    bad = tmp_path / "raw" / "b.tar"
    bad.write_bytes(damage(bad.read_bytes()))
    watcher = Watcher(instance, settings)
    watcher.tick()
    for _ in range(2):
        with files_opened("/b.json") as opened:
            ran = run_chain(instance, settings, watcher.observed)
        assert not ran.success
        assert ran.errors[0].startswith("normalized, shard b: ")
        assert str(bad) in ran.errors[0] or "truncated_shard" in ran.errors[0]
        # each try begins with the shard's record: its later stages are not tried, and the others go on
        records = [path for path in opened if "/records/" in path]
        assert records == [settings.storage.shard("b").record("normalized")]
        assert materialized(instance, "final_tars") == {"a", "c"}
    # looked at again, it is as it was: nothing calls it new
    assert watcher.tick() == "3 unchanged"


def test_only_a_storage_that_does_not_answer_is_tried_again(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = project(tmp_path, "[run]\nstorage_tries = 3\nparallel_shards = 1\n")
    asked: list[str] = []

    def unavailable(event: str, path: str) -> None:
        if event == "open" and path.endswith(".tar"):
            asked.append(Path(path).stem)
            raise TimeoutError(errno.ETIMEDOUT, "timed out") if "away" in path else ValueError("a defect")

    for name in ("away", "defect"):
        good_shard(tmp_path / f"raw/{name}.tar")
    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)  # the pauses between tries
    with system_calls(unavailable):
        assert not run_chain(instance, settings, ["away", "defect"]).success
    assert sorted(asked) == ["away"] * 3 + ["defect"]


@pytest.mark.parametrize("days", [-10_000, -2, 0, 2, 10_000])
def test_the_clock_of_the_storage_may_be_wrong_by_days(tmp_path: Path, instance: DagsterInstance, days: int) -> None:
    settings = project(tmp_path, "[watch]\nquiet_seconds = 60\n")
    clock = Clock(settings, instance)
    tar = good_shard(tmp_path / "raw" / "a.tar", seed=1)
    os.utime(tar, (clock.now + days * DAY, clock.now + days * DAY))
    assert clock.tick(0) == []
    assert clock.tick(59) == []
    assert clock.tick(1) == ["a"]
    assert clock.tick(1) == []
    good_shard(tmp_path / "raw" / "a.tar", seed=2)
    os.utime(tar, (clock.now - days * DAY, clock.now - days * DAY))
    assert clock.tick(0) == []
    assert clock.tick(60) == ["a"]


@pytest.mark.parametrize("back", [30, 3600, 400 * DAY])
def test_our_own_clock_may_be_set_back(tmp_path: Path, instance: DagsterInstance, back: float) -> None:
    """A shard that was seen by the clock as it was waits ``quiet_seconds`` more, not until the clock has caught up."""
    settings = project(tmp_path, "[watch]\nquiet_seconds = 60\n")
    clock = Clock(settings, instance)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    assert clock.tick(0) == []
    assert clock.tick(-back) == []
    assert clock.tick(59) == []
    assert clock.tick(1) == ["a"]
    # reported once, whatever the clock does then
    assert clock.tick(-back) == []
    assert clock.tick(2 * back) == []
    good_shard(tmp_path / "raw" / "b.tar", seed=2)
    assert clock.tick(0) == []
    assert clock.tick(2 * back + 60) == ["b"]


class Clock:
    """The sensor, ticked by a clock that the test sets."""

    def __init__(self, settings: Settings, instance: DagsterInstance) -> None:
        self.now = 1_750_000_000.0
        self._watcher = Watcher(instance, settings)

    def tick(self, seconds: float) -> list[str]:
        """Let ``seconds`` pass and look; gives what was reported."""
        self.now += seconds
        before = len(self._watcher.observed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda: self.now)
            self._watcher.tick()
        return self._watcher.observed[before:]


@pytest.mark.system
def test_four_hundred_new_shards_at_once(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path, AT_ONCE + "max_per_tick = 90\n")
    names = [f"part-{number // 100}/shard {number:04}.tar" for number in range(400)]
    for name in names:
        path = tmp_path / "raw" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    watcher = Watcher(instance, settings)
    reported = []
    for _ in range(7):
        before = len(watcher.observed)
        watcher.tick()
        reported.append(len(watcher.observed) - before)
        assert len(watcher.cursor or "") < 1000
    assert reported == [90, 90, 90, 90, 40, 0, 0]
    keys = {name.removesuffix(".tar").replace(" ", "%20") for name in names}
    assert sorted(watcher.observed) == sorted(keys)  # each of them, and none twice
    registered = instance.get_dynamic_partitions(SHARDS)
    assert sorted(registered) == sorted(keys)
    # a restart of the daemon between two ticks forgets nothing, a changed shard stands out among the others
    (tmp_path / "raw" / names[177]).write_bytes(b"other content")
    before = len(watcher.observed)
    watcher.tick()
    assert watcher.observed[before:] == ["part-1/shard%200177"]
    snapshots = list((tmp_path / "out" / "state").rglob("*"))
    assert sum(path.stat().st_size for path in snapshots if path.is_file()) < 200_000
