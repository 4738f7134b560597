import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from interleaved_assets.io.rows import processors as module
from interleaved_assets.io.rows.processors import processors, share_processors, thread_count, worker_processes
from interleaved_assets.model.errors import OptionError
from interleaved_assets.settings.sections import RunSettings
from interleaved_assets_tests.defects import stand_in


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    module._quota.cache_clear()
    yield
    module._quota.cache_clear()
    share_processors(1)


def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: int, quota: str | None = None) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    limit = tmp_path / "cpu.max"
    if quota is not None:
        limit.write_text(quota)
    stand_in(monkeypatch, module, "_QUOTA", limit)


@pytest.mark.parametrize(
    ("allowed", "quota", "expected"),
    [
        (3, None, 3),
        (16, "max 100000\n", 16),
        (16, "200000 100000\n", 2),
        (16, "150000 100000\n", 2),
        (16, "50000 100000\n", 1),
        (2, "400000 100000\n", 2),
    ],
)
def test_a_process_may_use_what_its_affinity_and_its_container_allow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: int, quota: str | None, expected: int
) -> None:
    _machine(monkeypatch, tmp_path, allowed, quota)
    assert processors() == expected


@pytest.mark.parametrize(
    ("allowed", "sharing", "share"), [(16, 1, 16), (16, 4, 4), (16, 8, 2), (16, 16, 2), (2, 2, 2), (1, 2, 1)]
)
def test_a_worker_has_its_share_and_at_least_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: int, sharing: int, share: int
) -> None:
    _machine(monkeypatch, tmp_path, allowed)
    share_processors(sharing)
    assert processors() == share


@pytest.mark.parametrize(("allowed", "workers"), [(1, 2), (2, 2), (4, 2), (6, 3), (16, 8), (64, 8)])
def test_workers_of_a_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: int, workers: int) -> None:
    _machine(monkeypatch, tmp_path, allowed)
    assert worker_processes() == workers
    assert RunSettings().shards_at_once == workers
    assert RunSettings(parallel_shards=5).shards_at_once == 5


def test_threads_are_a_whole_number_and_none_means_all_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _machine(monkeypatch, tmp_path, 3)
    assert [thread_count(threads) for threads in (None, 0, 5, np.int64(2))] == [3, 3, 5, 2]
    for wrong in (-1, 1.5, "2"):
        with pytest.raises(OptionError, match=f"threads is a whole number from 0, or None, got {wrong!r}"):
            thread_count(wrong)
