"""The nightly schedule over the real daemon, every minute: what is stale is requested, and nothing else."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from dagster import RunsFilter

from interleaved_assets.defs.requests import BRING_UP_TO_DATE, RANGE_END, RANGE_START
from interleaved_assets.pipeline.raw.listing import list_raw_shards
from interleaved_assets.pipeline.status.dataset_status import status_of_raws
from interleaved_assets.pipeline.status.status import CURRENT
from interleaved_assets.settings import load_settings
from interleaved_assets_tests.defs.runs import STAGES, materialized, run_chain
from interleaved_assets_tests.documents import document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.live import UNFINISHED, LiveDagster, live_dagster

pytestmark = pytest.mark.system

EVERY_MINUTE = '[watch]\nnightly = "* * * * *"\nquiet_seconds = 0\n'
WHERE = {"repositoryLocationName": "interleaved_assets", "repositoryName": "__repository__", "scheduleName": "nightly"}

START = """
mutation ($which: ScheduleSelector!) {
  startSchedule(scheduleSelector: $which) {
    __typename ... on ScheduleStateResult { scheduleState { status } } ... on PythonError { message }
  }
}"""
TICKS = """
query ($which: ScheduleSelector!) {
  scheduleOrError(scheduleSelector: $which) {
    ... on Schedule { scheduleState { ticks(limit: 20) { status runIds skipReason error { message } } } }
  }
}"""
RELOAD = """
mutation {
  reloadRepositoryLocation(repositoryLocationName: "interleaved_assets") {
    ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } }
    ... on PythonError { message }
  }
}"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveDagster]:
    project(tmp_path, EVERY_MINUTE)
    # the daemon learns of a changed threshold when it loads the definitions anew
    with live_dagster(tmp_path / "home", tmp_path / "interleaved.toml", reload_seconds=10) as running:
        yield running


def start_schedule(live: LiveDagster) -> None:
    started = live.ask(START, which=WHERE)["startSchedule"]
    assert started == {"__typename": "ScheduleStateResult", "scheduleState": {"status": "RUNNING"}}


def ticks(live: LiveDagster) -> list[dict[str, Any]]:
    """Finished ticks of the schedule, the last one first; none may fail."""
    found = live.ask(TICKS, which=WHERE)["scheduleOrError"]["scheduleState"]["ticks"]
    assert not [tick for tick in found if tick["status"] == "FAILURE"], found
    return [tick for tick in found if tick["status"] != "STARTED"]


def statuses(folder: Path) -> dict[str, str]:
    """The status of each shard under the settings in the file now."""
    settings = load_settings(folder / "interleaved.toml")
    found = status_of_raws(list_raw_shards(settings.storage), settings, {})
    return {shard.key: shard.status.text for shard in found.shards()}


def all_current(live: LiveDagster, folder: Path) -> bool:
    """Whether every shard is current, and no run is under way any more."""
    with live.instance() as instance:
        return set(statuses(folder).values()) == {CURRENT} and not instance.get_runs(RunsFilter(statuses=UNFINISHED))


def assert_next_tick_requests_nothing(live: LiveDagster) -> None:
    before = len(ticks(live))
    live.wait_for(lambda: len(ticks(live)) > before, "the next tick", lambda: str(ticks(live)))
    last = ticks(live)[0]
    assert (last["status"], last["runIds"]) == ("SKIPPED", [])
    assert "shards are current" in last["skipReason"]


def written(folder: Path, *below: str) -> dict[str, int]:
    """When each file below these folders of the output root was written, in ns."""
    found = (path for name in below for path in (folder / "out" / name).rglob("*") if path.is_file())
    return {str(path.relative_to(folder / "out")): path.stat().st_mtime_ns for path in found}


def test_only_what_is_not_current_is_requested_and_after_a_changed_threshold_the_selection_of_all(
    live: LiveDagster, tmp_path: Path
) -> None:
    raw = tmp_path / "raw"
    for seed, name in enumerate(("changed", "current", "mended")):
        good_shard(raw / f"{name}.tar", seed=10 * seed)
    (raw / "mended.tar").write_bytes(b"this is no tar" * 100)
    with live.instance() as instance:
        ran = run_chain(instance, load_settings(tmp_path / "interleaved.toml"), ["changed", "current", "mended"])
        assert not ran.success
        assert materialized(instance, "final_tars") == {"changed", "current"}
    untouched = {name: at for name, at in written(tmp_path, "").items() if "current" in name}
    assert len(untouched) > 2 * len(STAGES)
    changed = (tmp_path / "out" / "tars" / "changed.tar").read_bytes()
    for seed, name in enumerate(("changed", "mended", "new")):
        good_shard(raw / f"{name}.tar", seed=100 + 10 * seed)
    assert {key for key, status in statuses(tmp_path).items() if status == CURRENT} == {"current"}
    start_schedule(live)
    live.wait_for(lambda: all_current(live, tmp_path), "all shards to be current", lambda: str(statuses(tmp_path)))
    with live.instance() as instance:
        for asset in STAGES:
            assert materialized(instance, asset) == {"changed", "current", "mended", "new"}
    assert (tmp_path / "out" / "tars" / "changed.tar").read_bytes() != changed
    assert {name: at for name, at in written(tmp_path, "").items() if "current" in name} == untouched
    assert_next_tick_requests_nothing(live)

    # the threshold: the selection of all four is made again, in one run, once the code location is reloaded
    scores = written(tmp_path, "normalized", "image_scores")
    selected = written(tmp_path, "filtered", "tars")
    with live.instance() as instance:
        before = {run.run_id for run in instance.get_runs()}
    project(tmp_path, EVERY_MINUTE + "[selection]\nmin_sharpness = 0\n")
    assert all(status.startswith("filtered stale: settings changed: ") for status in statuses(tmp_path).values())
    reloaded = live.ask(RELOAD)["reloadRepositoryLocation"]
    assert reloaded == {"locationOrLoadError": {"__typename": "RepositoryLocation"}}
    live.wait_for(
        lambda: all_current(live, tmp_path),
        "all shards to be current under the new threshold",
        lambda: str(statuses(tmp_path)),
    )
    with live.instance() as instance:
        runs = instance.get_runs(RunsFilter(job_name=BRING_UP_TO_DATE))
        (ranges,) = [run for run in runs if run.run_id not in before]  # all of them in one
        assert (ranges.tags[RANGE_START], ranges.tags[RANGE_END]) == ("changed", "new")
    assert written(tmp_path, "normalized", "image_scores") == scores
    again = written(tmp_path, "filtered", "tars")
    assert again.keys() == selected.keys()
    assert not set(again.items()) & set(selected.items())
    assert_next_tick_requests_nothing(live)


def test_functions_that_change_texts_are_applied_in_the_next_night(live: LiveDagster, tmp_path: Path) -> None:
    keys = ("a", "b")
    for key in keys:
        write_shard(tmp_path / f"raw/{key}.tar", {"d": document(f"write to {key}@mail.example", sharp_image(1))})
    with live.instance() as instance:
        assert run_chain(instance, load_settings(tmp_path / "interleaved.toml"), list(keys)).success
    kept = written(tmp_path, "normalized", "image_scores")

    project(tmp_path, EVERY_MINUTE + '[rewriting]\nfunctions = ["redact_personal_data"]\n')
    assert all("rewritten" in status for status in statuses(tmp_path).values())
    reloaded = live.ask(RELOAD)["reloadRepositoryLocation"]
    assert reloaded == {"locationOrLoadError": {"__typename": "RepositoryLocation"}}
    start_schedule(live)
    live.wait_for(lambda: all_current(live, tmp_path), "all shards to be current", lambda: str(statuses(tmp_path)))
    with live.instance() as instance:
        for asset in (*STAGES, "rewritten"):
            assert materialized(instance, asset) == set(keys)
    # no image changes, so that neither rows nor image scores are made again
    assert written(tmp_path, "normalized", "image_scores") == kept
    for key in keys:
        (changed,) = pq.read_table(tmp_path / f"out/changes/{key}.parquet").to_pylist()
        assert (changed["function"], changed["kind"]) == ("redact_personal_data", "changed")
        with tarfile.open(tmp_path / f"out/tars/{key}.tar") as tar:
            assert json.load(tar.extractfile("d.json"))["texts"][0] == "write to [EMAIL]"  # type: ignore[arg-type]
    assert_next_tick_requests_nothing(live)
