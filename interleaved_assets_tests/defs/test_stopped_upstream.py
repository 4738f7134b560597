"""A shard that fails at a stage goes no further in that run, whatever lies there from runs before."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dagster as dg
import pytest

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.partitions import shards
from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.pipeline.run.check import UP_TO_DATE
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.defs.runs import STAGES, instance_on_disk, run_chain
from interleaved_assets_tests.documents import document, good_shard, project, write_shard
from interleaved_assets_tests.restorable import Restorable


@pytest.mark.system  # test_a_shard_that_was_good_and_fails_now_is_not_called_current is its short case
@pytest.mark.parametrize("storage", ["sqlite", "memory"])
def test_old_outputs_of_a_failed_shard_are_not_recorded_as_new(tmp_path: Path, storage: str) -> None:
    settings = project(tmp_path)
    for name in "ab":
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    with instance_on_disk(tmp_path / "home") if storage == "sqlite" else dg.DagsterInstance.ephemeral() as instance:
        keys = register_all(instance, settings.storage)
        assert run_chain(instance, settings, keys).success
        (tmp_path / "raw" / "a.tar").unlink()
        assert not run_chain(instance, settings, keys).success
        (failed,) = [run for run in instance.get_runs() if run.status is dg.DagsterRunStatus.FAILURE]
        logged = instance.all_logs(failed.run_id, dg.DagsterEventType.ASSET_MATERIALIZATION)
        done = {(entry.step_key, entry.get_dagster_event().partition) for entry in logged}
        assert done == {(name, "b") for name in STAGES}


def test_the_error_of_a_shard_is_on_its_page_at_every_stage_and_ends_the_run(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar")
    bad = tmp_path / "raw" / "b.tar"
    bad.write_bytes(b"this is no tar" * 100)
    cause = f"{bad} is not a tar: its first 512 bytes are not a tar header"
    with dg.DagsterInstance.ephemeral() as instance:
        ran = run_chain(instance, settings, ["a", "b"])
        assert f"\nb: final_tars was skipped because normalized failed: {cause}" in ran.summary
        assert "this run does not repeat" not in ran.summary
        for name in STAGES:
            (observed,) = instance.fetch_observations(dg.AssetKey(name), limit=10).records
            assert observed.asset_observation is not None
            assert observed.asset_observation.partition == "b"
            metadata = {key: value.value for key, value in observed.asset_observation.metadata.items()}
            assert metadata == {"error": cause, "failed_at": "normalized"}


def chain_job() -> dg.JobDefinition:
    """The chain under the settings that the environment names: Dagster loads it anew for each run."""
    return build_definitions(load_settings()).resolve_job_def(BRING_UP_TO_DATE)


def repeat(instance: dg.DagsterInstance, options: dg.ReexecutionOptions | None = None) -> str:
    """A run of the chain over a to c, or the repetition of parts of one; gives its id."""
    job = dg.reconstructable(chain_job)
    selection = None if options else [dg.AssetKey(name) for name in STAGES]
    tags = {RANGE_START: "a", RANGE_END: "c"}
    with dg.execute_job(job, instance, tags=tags, asset_selection=selection, reexecution_options=options) as result:
        return result.run_id


def ended(instance: dg.DagsterInstance, run_id: str) -> tuple[list[str], str]:
    """The steps of a run, and the failure that ended it."""
    log = instance.all_logs(run_id)
    steps = [str(entry.step_key) for entry in log if entry.dagster_event and entry.dagster_event.is_step_start]
    failures = [
        str(entry.dagster_event.step_failure_data.user_failure_data.description)
        for entry in log
        if entry.dagster_event and entry.dagster_event.is_step_failure
    ]
    return steps, "".join(failures)


def states(instance: dg.DagsterInstance, asset: str) -> dict[str, str]:
    found = instance.get_status_by_partition(dg.AssetKey(asset), ["a", "b", "c"], shards)
    return {key: str(state.value) for key, state in (found or {}).items() if state}


B_ALONE_FAILED = {"a": "MATERIALIZED", "b": "FAILED", "c": "MATERIALIZED"}
ALL_MADE = dict.fromkeys("abc", "MATERIALIZED")


class Repeated(NamedTuple):
    """Three shards that went through; then b was replaced by one that fails at ``filtered``, and all ran again."""

    instance: dg.DagsterInstance
    settings: Settings
    failed: str
    """Id of the run that b has failed."""
    tar: bytes
    """The final tar of b from before."""


@pytest.fixture(scope="module")
def repeated_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Restorable, str]:
    """The project after these two runs, and the id of the second."""
    folder = tmp_path_factory.mktemp("repeated") / "project"
    folder.mkdir()
    settings = project(folder, '[selection]\non_score_error = "error"\n')
    for name in "abc":
        good_shard(folder / "raw" / f"{name}.tar", seed=ord(name))
    with pytest.MonkeyPatch.context() as patch, instance_on_disk(folder / "home") as instance:
        patch.setenv("INTERLEAVED_SETTINGS", str(folder / "interleaved.toml"))
        register_all(instance, settings.storage)
        steps, summary = ended(instance, repeat(instance))
        assert (sorted(steps), summary) == (sorted([*STAGES, UP_TO_DATE]), "")
        shutil.copy(folder / "out" / "tars" / "b.tar", folder / "b-before.tar")
        write_shard(folder / "raw" / "b.tar", {"doc": document("text", b"this is no image")})
        register_all(instance, settings.storage)
        failed = repeat(instance)
    return Restorable(folder), failed


@pytest.fixture
def repeated(repeated_once: tuple[Restorable, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Repeated]:
    project, failed = repeated_once
    folder = project.restore()
    monkeypatch.setenv("INTERLEAVED_SETTINGS", str(folder / "interleaved.toml"))
    with instance_on_disk(folder / "home") as instance:
        yield Repeated(instance, load_settings(), failed, (folder / "b-before.tar").read_bytes())


def test_retry_from_failure_repeats_the_last_step_and_keeps_good_shards_good(repeated: Repeated) -> None:
    instance, settings, first, tar = repeated
    for _ in range(2):  # also one of a run that was itself a retry
        retry = repeat(instance, dg.ReexecutionOptions.from_failure(first, instance))
        steps, summary = ended(instance, retry)
        assert steps == ["final_tars"]
        assert summary.startswith(
            "final_tars: 1 of 3 shards failed (1 at filtered), the others are materialized.\n"
            "b: final_tars was skipped because filtered failed: b: sample 'doc', image at position 1: no sc"
        )
        assert "this run does not repeat filtered: once the cause is mended, press Materialize all" in summary
        assert states(instance, "filtered") == states(instance, "final_tars") == B_ALONE_FAILED
        first = retry
    assert Path(settings.storage.output_root, "tars/b.tar").read_bytes() == tar


@pytest.mark.system
def test_retry_from_failure_takes_up_a_shard_that_was_made_meanwhile(repeated: Repeated) -> None:
    instance, settings, first, _ = repeated
    good_shard(Path(settings.storage.raw_root, "b.tar"), seed=9)
    assert run_chain(instance, settings, ["b"]).success
    retry = repeat(instance, dg.ReexecutionOptions.from_failure(first, instance))
    assert ended(instance, retry) == (["final_tars", UP_TO_DATE], "")
    assert states(instance, "final_tars") == ALL_MADE


def test_repeating_only_the_last_step_ends_the_run_as_failed(repeated: Repeated) -> None:
    instance, _, first, _ = repeated
    again = dg.ReexecutionOptions(parent_run_id=first, step_selection=["filtered"])
    steps, summary = ended(instance, repeat(instance, again))
    assert steps == ["filtered"]
    assert summary.startswith("filtered: 1 of 3 shards failed, the others are materialized.\nb: b: sample 'doc', image")
    assert states(instance, "filtered") == B_ALONE_FAILED
