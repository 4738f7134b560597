"""Dagster's SQLite files are open while a step logs events, so that SQLite keeps its log of each."""

from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.sqlite_files import sqlite_files_open
from interleaved_assets_tests.defs.runs import instance_on_disk


def run_with_an_event(instance: dg.DagsterInstance) -> str:
    @dg.op
    def nothing() -> None: ...

    @dg.job
    def job() -> None:
        nothing()

    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return job.execute_in_process(instance=instance, run_config=quiet).run_id


def logs(home: Path) -> set[str]:
    """SQLite's logs that are there, by name of the file."""
    return {path.name for path in home.rglob("*.db-wal")}


def test_the_files_of_a_run_are_held_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    with instance_on_disk(home) as instance:
        run_id = run_with_an_event(instance)
        instance.report_runless_asset_event(dg.AssetMaterialization("a"))
        assert logs(home).isdisjoint({"index.db-wal", f"{run_id}.db-wal"})
        with sqlite_files_open(run_id) as held:
            # where Dagster stores events in other files, nothing is held, and events take twice as long
            assert [path.name for path in held] == ["index.db", f"{run_id}.db"]
            instance.report_runless_asset_event(dg.AssetMaterialization("a"))
            assert "index.db-wal" in logs(home)
        instance.report_runless_asset_event(dg.AssetMaterialization("a"))
        assert "index.db-wal" not in logs(home)
        assert len(instance.fetch_materializations(dg.AssetKey("a"), limit=9).records) == 3


def test_nothing_is_held_without_such_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with sqlite_files_open("a-run") as held:
        assert held == []
    monkeypatch.delenv("DAGSTER_HOME")
    with sqlite_files_open("a-run") as held:
        assert held == []
    assert not list(tmp_path.iterdir())
