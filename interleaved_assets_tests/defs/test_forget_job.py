"""Forgetting shards in Dagster: the job, and the partitions."""

from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.cli import main
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.forget_job import FORGET_SHARDS
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import (
    Watcher,
    definitions_of,
    files,
    instance_on_disk,
    run_chain,
    unfinished_run,
)

QUIETLY = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def made_and_renamed(settings: Settings, folder: Path) -> None:
    """The shard went through all stages, and then its raw shard was renamed from ``a`` to ``b``."""
    with instance_on_disk(folder / "home") as instance:
        assert run_chain(instance, settings, register_all(instance, settings.storage)).success
        (folder / "raw/a.tar").rename(folder / "raw/b.tar")
        instance.add_dynamic_partitions("shards", ["b"])


pytestmark = [
    pytest.mark.on_disk,
    pytest.mark.project("[watch]\nquiet_seconds = 0\n", shards={"a": 0}, done=(), finish=made_and_renamed),
]


def forget(instance: dg.DagsterInstance, settings: Settings, **config: object) -> tuple[bool, str]:
    """One run of the job: whether it succeeded, and what it says."""
    result = (
        definitions_of(settings)
        .resolve_job_def(FORGET_SHARDS)
        .execute_in_process(
            instance=instance,
            run_config=QUIETLY | {"ops": {"forget": {"config": config}}},
            raise_on_error=False,
        )
    )
    failures = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    if failures and failures[0]:
        return False, str(failures[0].description)
    log = [entry.user_message for entry in instance.all_logs(result.run_id) if entry.dagster_event is None]
    return result.success, "\n".join(log)


def test_a_launch_without_a_shard_says_what_to_set(instance: dg.DagsterInstance, settings: Settings) -> None:
    success, said = forget(instance, settings)
    assert success
    assert "no shard was named: set shards, or vanished to true" in said


def test_the_job_lists_first_and_then_removes_files_and_partition(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    before = files(tmp_path / "out")
    success, said = forget(instance, settings, vanished=True)
    assert success
    assert f"shard a: 16 files\n{tmp_path}/out/records/final_tars/a.json\n{tmp_path}/out/tars/a.tar\n" in said
    assert said.endswith("1 shard, 16 files: nothing was removed, because dry_run is set")
    assert files(tmp_path / "out") == before
    assert instance.get_dynamic_partitions("shards") == ["a", "b"]

    success, said = forget(instance, settings, shards=["a"], dry_run=False)
    assert (success, said.splitlines()[-1]) == (True, "1 shard, 16 files: removed, with their partitions")
    assert files(tmp_path / "out") == {}
    assert instance.get_dynamic_partitions("shards") == ["b"]


def test_the_job_refuses_a_shard_whose_tar_is_there_or_on_which_a_run_works(
    instance: dg.DagsterInstance, settings: Settings, tmp_path: Path
) -> None:
    before = files(tmp_path / "out")
    success, said = forget(instance, settings, shards=["a", "b"], dry_run=False)
    assert not success
    assert said.startswith(f"shard b is not forgotten: its raw shard {tmp_path}/raw/b.tar is still there")
    unfinished_run(instance, settings, "a")
    success, said = forget(instance, settings, shards=["a"], dry_run=False)
    assert (success, said) == (False, "shard a is not forgotten: a run is working on it. Wait for its end.")
    assert files(tmp_path / "out") == before
    assert instance.get_dynamic_partitions("shards") == ["a", "b"]


def test_the_command_lists_first_and_then_removes_files_and_partition(
    instance: dg.DagsterInstance,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "home/dagster.yaml").touch()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
    command = ["--settings", str(tmp_path / "interleaved.toml"), "forget"]
    assert main([*command, "--vanished"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("shard a: 16 files, ")
    assert lines[2] == f"  {tmp_path}/out/tars/a.tar"
    assert lines[-1] == "1 shard, 16 files: would be removed; --yes removes them, and the partitions"
    assert (tmp_path / "out/tars/a.tar").exists()
    assert main([*command, "b"]) == 2
    assert "shard b is not forgotten: its raw shard" in capsys.readouterr().err
    assert main([*command, "a", "--yes"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 shard, 16 files: removed, and the partitions"
    assert instance.get_dynamic_partitions("shards") == ["b"]
    assert main([*command, "a"]) == 1
    assert "nothing is stored of shard 'a'; interleaved forget --vanished lists" in capsys.readouterr().err
    instance.add_dynamic_partitions("shards", ["a"])  # a partition alone is something to remove
    assert main([*command, "a", "--yes"]) == 0
    assert instance.get_dynamic_partitions("shards") == ["b"]


def test_without_an_instance_the_sensor_removes_the_partition(
    instance: dg.DagsterInstance,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["forget", "--vanished", "--yes"]) == 0
    assert capsys.readouterr().out.endswith("16 files: removed; raw_shard_sensor removes the partitions\n")
    assert instance.get_dynamic_partitions("shards") == ["a", "b"]
    watcher = Watcher(instance, settings)
    watcher.tick()
    assert watcher.observed == ["b"]
    assert instance.get_dynamic_partitions("shards") == ["b"]
