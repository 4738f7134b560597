"""The project that the scale measurements share: its shards, its Dagster instance, and their state.

Each state is made once, by the first measurement that asks for it; a measurement that changes something puts it back.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from dagster import DagsterInstance

from benchmarks.scale_data import contents, finish_all, register_all, write_settings, write_shards
from benchmarks.scale_services import ROOT, Dagster, environment
from interleaved_assets.defs.executors import SLOTS
from interleaved_assets.pipeline.raw.listing import RawSource

INSTANCE_FILES: Final = {"postgres": "deploy/postgres/dagster.yaml", "sqlite": "dagster.yaml"}


class Figure(NamedTuple):
    """One measured value, with its target where there is one."""

    what: str
    value: float
    unit: str
    target: float | None = None

    @property
    def missed(self) -> bool:
        return self.target is not None and self.value > self.target


class World:
    """A project in ``work`` with ``shards`` raw shards and an instance whose storage is ``storage``."""

    def __init__(self, work: Path, storage: str, shards: int) -> None:
        self.work, self.shards = work, shards
        self.home = work / "home"
        self.home.mkdir(parents=True)
        shutil.copy(ROOT / INSTANCE_FILES[storage], self.home / "dagster.yaml")
        self.settings = write_settings(work)
        self.tars = contents(work / "tars")
        write_shards(self.raw, self.tars, range(shards))
        with self.instance() as instance:  # made once before services start: two at once have corrupted SQLite
            for pool, slots in SLOTS.items():
                instance.event_log_storage.set_concurrency_slots(pool, slots)
        self.is_finished = False
        self.sources: dict[str, RawSource] = {}
        """The observed source of each registered shard, by key."""

    @property
    def raw(self) -> Path:
        return self.work / "raw"

    @contextmanager
    def instance(self) -> Iterator[DagsterInstance]:
        """The Dagster instance, from inside this process."""
        with environment({"DAGSTER_HOME": str(self.home)}), DagsterInstance.get() as instance:
            yield instance

    def registered(self) -> list[str]:
        """Every shard is a partition and was observed, and the sensor's snapshot says so; gives the keys."""
        if not self.sources:
            with self.instance() as instance:
                self.sources = register_all(instance, self.settings)
        return list(self.sources)

    def finished(self) -> list[str]:
        """Every shard has passed all stages; returns the keys."""
        keys = self.registered()
        if not self.is_finished:
            with self.instance() as instance:
                finish_all(instance, self.settings, self.work)
            self.is_finished = True
        return keys

    def probe(self, what: str, *arguments: str, settings_file: Path | None = None) -> dict[str, Any]:
        """The output of :mod:`benchmarks.scale_probe`, run in a process of its own.

        Raises:
            RuntimeError: it failed; the message holds what it said.
        """
        file = settings_file or self.work / "interleaved.toml"
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale_probe", what, *arguments],
            cwd=ROOT,
            env={**os.environ, "DAGSTER_HOME": str(self.home), "INTERLEAVED_SETTINGS": str(file)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"scale_probe {what}: {done.stderr[-3000:]}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    @contextmanager
    def dagster(self) -> Iterator[Dagster]:
        """Code server, webserver and daemon on this project; ended with the block."""
        services = Dagster(self.home, self.work / "interleaved.toml")
        try:
            services.start()
            yield services
        finally:
            services.stop()


def memory_figures(probed: dict[str, Any], what: str, target: float | None = None) -> Sequence[Figure]:
    """Memory of a probe: of the loaded process, added by the evaluation, and the sum.

    The increase is what a target is about: imports are there once, whatever the number of shards.
    """
    peak = max(evaluation["peak_mib"] for evaluation in probed["evaluations"])
    return (
        Figure("memory once the definitions are loaded", probed["loaded_mib"], "MiB"),
        Figure(f"memory that {what} adds, at its peak", peak - probed["loaded_mib"], "MiB", target),
        Figure("memory of the whole process, at its peak", peak, "MiB"),
    )
