import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import register_all
from interleaved_assets.defs.requests import RANGE_END, RANGE_START, build_job, ranges_of
from interleaved_assets.defs.schedules import build_nightly_schedule, build_report_schedule
from interleaved_assets.model.errors import SettingsError
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.defs.runs import STAGES, definitions_of, instance_on_disk, run_chain
from interleaved_assets_tests.documents import good_shard, project, stages_before
from interleaved_assets_tests.projects import make_project
from interleaved_assets_tests.restorable import Restorable


@pytest.mark.parametrize(
    ("statuses", "at_most", "expected"),
    [
        ("......", 3, []),
        ("x.....", 3, ["aa"]),
        ("x.x...", 3, ["ac"]),
        ("x..x..", 3, ["aa", "dd"]),
        ("xxxxxx", 4, ["ad", "ef"]),
        (".x-x..", 6, ["bb", "dd"]),
        ("......", 1, []),
    ],
)
def test_ranges(statuses: str, at_most: int, expected: list[str]) -> None:
    keys = list("abcdef")
    due = {key for key, mark in zip(keys, statuses, strict=True) if mark == "x"}
    current = {key for key, mark in zip(keys, statuses, strict=True) if mark == "."}
    assert [first + last for first, last in ranges_of(keys, due, current, at_most)] == expected


@pytest.mark.parametrize(
    ("marks", "largest_gap", "ranges"),
    [
        ("x.x..x", 1, ["ac", "ff"]),
        ("x.x..x", 2, ["af"]),
        ("x.x..x", 0, ["aa", "cc", "ff"]),
        ("..x.x.", 2, ["ce"]),
        ("x..-x.", 3, ["aa", "ee"]),
    ],
)
def test_a_range_includes_gaps_up_to_a_length(marks: str, largest_gap: int, ranges: list[str]) -> None:
    keys = list("abcdef")
    due = {key for key, mark in zip(keys, marks, strict=True) if mark == "x"}
    current = {key for key, mark in zip(keys, marks, strict=True) if mark == "."}
    assert [first + last for first, last in ranges_of(keys, due, current, 6, largest_gap)] == ranges


def test_a_change_of_every_25th_shard_of_many_takes_a_run_for_each_hundred() -> None:
    keys = [f"{number:05}" for number in range(10_000)]
    due = set(keys[::25])
    assert len(list(ranges_of(keys, due, set(keys) - due, at_most=100))) == 100
    assert len(list(ranges_of(keys, set(keys[::50]), set(keys) - set(keys[::50]), at_most=100))) == 200


@given(st.lists(st.sampled_from(".x-"), max_size=40), st.integers(1, 7), st.integers(0, 4))
def test_ranges_hold_every_due_shard_once_and_no_vanished_one(marks: list[str], at_most: int, largest_gap: int) -> None:
    keys = [f"{number:02}" for number in range(len(marks))]
    due = {key for key, mark in zip(keys, marks, strict=True) if mark == "x"}
    current = {key for key, mark in zip(keys, marks, strict=True) if mark == "."}
    ranges = list(ranges_of(keys, due, current, at_most, largest_gap))
    covered = [key for first, last in ranges for key in keys[keys.index(first) : keys.index(last) + 1]]
    assert len(covered) == len(set(covered))
    assert due <= set(covered) <= due | current
    assert all(keys.index(last) - keys.index(first) < at_most for first, last in ranges)
    assert all(first in due and last in due for first, last in ranges)


FOUR_SHARDS = pytest.mark.project(
    "[run]\nshards_per_run = 2\n[watch]\nquiet_seconds = 0\n", shards=dict(zip("abcd", range(4), strict=True))
)
pytestmark = [pytest.mark.on_disk, FOUR_SHARDS]


class Made(NamedTuple):
    """A project whose four shards went through every stage."""

    folder: Path
    settings: Settings
    instance: dg.DagsterInstance


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Restorable:
    folder = tmp_path_factory.mktemp("made") / "project"
    folder.mkdir()
    settings = make_project(folder, *FOUR_SHARDS.args, **FOUR_SHARDS.kwargs)
    with instance_on_disk(folder / "home") as instance:
        assert run_chain(instance, settings, register_all(instance, settings.storage)).success
    return Restorable(folder)


@pytest.fixture
def made(made_once: Restorable) -> Iterator[Made]:
    folder = made_once.restore()
    with instance_on_disk(folder / "home") as instance:
        yield Made(folder, load_settings(folder / "interleaved.toml"), instance)


def requested(instance: dg.DagsterInstance, settings: Settings) -> list[str]:
    """First and last shard of each run that the schedule asks for."""
    return [request.tags[RANGE_START] + request.tags[RANGE_END] for request in requests(instance, settings)]


def requests(instance: dg.DagsterInstance, settings: Settings) -> list[dg.RunRequest]:
    """The runs that the schedule asks for; without any, the UI shows why."""
    context = dg.build_schedule_context(
        instance,
        scheduled_execution_time=datetime(2026, 1, 2, 2, tzinfo=UTC),
        repository_def=definitions_of(settings).get_repository_def(),
    )
    tick = build_nightly_schedule(settings, build_job(settings)).evaluate_tick(context)
    assert tick.run_requests or "shards are current, just written, or in the work of a run" in str(tick.skip_message)
    return list(tick.run_requests or [])


def test_shards_that_no_sensor_has_reported_are_registered_and_requested(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    assert requested(instance, settings) == ["ab", "cd"]
    assert instance.get_dynamic_partitions("shards") == ["a", "b", "c", "d"]


def test_only_stale_missing_and_failed_shards_are_requested(made: Made) -> None:
    folder, settings, instance = made
    (folder / "raw" / "d.tar").unlink()
    (folder / "raw" / "d.tar").write_bytes(b"this is no tar" * 100)
    assert not run_chain(instance, settings, ["d"]).success
    assert requested(instance, settings) == ["dd"]
    good_shard(folder / "raw" / "b.tar", seed=9)
    assert requested(instance, settings) == ["bb", "dd"]
    Path(settings.storage.shard("c").record("filtered")).unlink()
    assert requested(instance, settings) == ["bc", "dd"]


def test_changed_settings_make_every_shard_a_case_for_the_night(made: Made) -> None:
    assert requested(made.instance, made.settings) == []
    changed = project(
        made.folder, "[run]\nshards_per_run = 4\n[watch]\nquiet_seconds = 0\n[selection]\nmin_sharpness = 1\n"
    )
    (request,) = requests(made.instance, changed)
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("a", "d")
    # what the preview of the tick shows, and later the run
    assert {name: tag for name, tag in request.tags.items() if name.startswith("interleaved/")} == {
        "interleaved/shards_due": "4 of 4 in the range",
        "interleaved/stages": "filtered, final_tars",
        "interleaved/reasons": "4 filtered stale: settings changed: min_sharpness 100.0 → 1.0",
    }


@pytest.mark.parametrize("sharpness", [100, 1])
def test_a_tick_that_is_previewed_in_the_ui_can_be_launched(made: Made, sharpness: int) -> None:
    good_shard(made.folder / "raw/e.tar", seed=9)
    changed = project(
        made.folder,
        f"[run]\nshards_per_run = 4\n[watch]\nquiet_seconds = 0\n[selection]\nmin_sharpness = {sharpness}\n",
    )
    job = definitions_of(changed).resolve_job_def("bring_up_to_date")
    requested = requests(made.instance, changed)
    assert requested
    for request in requested:
        assets, checks = set(request.asset_selection or ()), set(request.asset_check_keys or ())
        job.get_subset(asset_selection=assets, asset_check_selection=checks)  # as the UI does, also with no checks
        graph = definitions_of(changed).resolve_asset_graph()
        assert checks == dg.AssetSelection.checks_for_assets(*assets).resolve_checks(graph)


def test_a_run_of_the_night_leaves_out_the_stages_that_are_current(made: Made) -> None:
    changed = project(
        made.folder, "[run]\nshards_per_run = 4\n[watch]\nquiet_seconds = 0\n[selection]\nmin_sharpness = 1\n"
    )
    good_shard(made.folder / "raw/e.tar", seed=9)
    requested = requests(made.instance, changed)
    assert [(request.tags[RANGE_START], request.tags[RANGE_END]) for request in requested] == [("a", "d"), ("e", "e")]
    last, new = requested
    assert last.asset_selection == [dg.AssetKey("filtered"), dg.AssetKey("final_tars")]
    assert new.asset_selection == [dg.AssetKey(name) for name in STAGES]
    before = {name: materializations(made.instance, name) for name in STAGES}
    job = definitions_of(changed).resolve_job_def("bring_up_to_date")
    result = job.execute_in_process(instance=made.instance, tags=last.tags, asset_selection=last.asset_selection)
    assert result.success
    made_now = {name: materializations(made.instance, name) - before[name] for name in STAGES}
    assert made_now == {**dict.fromkeys(stages_before("filtered"), 0), "filtered": 4, "final_tars": 4}
    assert [request.tags[RANGE_START] for request in requests(made.instance, changed)] == ["e"]


def materializations(instance: dg.DagsterInstance, asset: str) -> int:
    return len(instance.fetch_materializations(dg.AssetKey(asset), limit=100).records)


def test_a_recorded_shard_without_materialization_is_requested(made: Made) -> None:
    with instance_on_disk(made.folder / "another home") as another:
        assert run_chain(another, made.settings, register_all(another, made.settings.storage)[:2]).success
        assert requested(another, made.settings) == ["cd"]


def test_shards_whose_runs_were_deleted_are_requested_for_their_pages(made: Made) -> None:
    _, settings, instance = made
    for run in instance.get_runs():
        instance.delete_run(run.run_id)
    assert requested(instance, settings) == ["ab", "cd"]
    tar = Path(settings.storage.shard("a").output("final_tars"))
    before = tar.stat().st_mtime_ns
    assert run_chain(instance, settings, ["a", "b", "c", "d"]).success
    assert (materializations(instance, "final_tars"), tar.stat().st_mtime_ns) == (4, before)
    assert requested(instance, settings) == []


def test_a_damaged_record_keeps_no_other_shard_from_its_night(made: Made) -> None:
    damaged = Path(made.settings.storage.shard("a").record("filtered"))
    damaged.unlink()
    damaged.write_text("{")
    good_shard(made.folder / "raw" / "d.tar", seed=9)
    assert requested(made.instance, made.settings) == ["aa", "dd"]


def test_a_shard_that_is_being_uploaded_waits(instance: dg.DagsterInstance, settings: Settings, tmp_path: Path) -> None:
    long_ago = time.time() - 3600
    for name in "abd":
        os.utime(tmp_path / "raw" / f"{name}.tar", (long_ago, long_ago))
    waiting = project(tmp_path, "[watch]\nquiet_seconds = 600\n")
    assert requested(instance, waiting) == ["ad"]
    assert instance.get_dynamic_partitions("shards") == ["a", "b", "d"]


def test_a_refused_record_leaves_out_only_its_shard(made: Made) -> None:
    refused = Path(made.settings.storage.shard("a").record("filtered"))
    refused.unlink()
    refused.mkdir()  # a folder cannot be read as a file, also by root
    good_shard(made.folder / "raw" / "d.tar", seed=9)
    assert requested(made.instance, made.settings) == ["dd"]


def test_shards_of_a_run_under_way_are_left_to_it(instance: dg.DagsterInstance, settings: Settings) -> None:
    register_all(instance, settings.storage)
    instance.create_run_for_job(
        definitions_of(settings).resolve_implicit_global_asset_job_def(),
        asset_selection=frozenset({dg.AssetKey("normalized")}),
        tags={RANGE_START: "b", RANGE_END: "c"},
        status=dg.DagsterRunStatus.STARTED,
    )
    assert requested(instance, settings) == ["aa", "dd"]


def test_a_shard_whose_last_run_failed_is_requested_though_its_records_are_current(made: Made) -> None:
    folder, settings, instance = made
    refused = Path(settings.storage.shard("c").record("final_tars"))
    away = folder / "away"
    refused.rename(away)
    refused.mkdir()  # a folder cannot be read as a file, also by root
    assert not run_chain(instance, settings, ["c"]).success
    refused.rmdir()
    away.rename(refused)
    assert requested(instance, settings) == ["cc"]
    assert run_chain(instance, settings, ["c"]).success
    assert requested(instance, settings) == []


@pytest.mark.parametrize("stage", [pytest.param("normalized", marks=pytest.mark.system), "final_tars"])
def test_a_shard_whose_run_was_terminated_between_record_and_event_is_requested(
    made: Made, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    """Else its page would show the figures and the version of the content before, for ever."""
    folder, settings, instance = made
    good_shard(folder / "raw/c.tar", seed=9)
    job = definitions_of(settings).resolve_job_def("bring_up_to_date")
    log = instance.handle_new_event

    def terminated(event: dg.EventLogEntry, **options: Any) -> None:
        of = event.dagster_event
        if of is not None and of.is_step_materialization and of.asset_key == dg.AssetKey(stage):
            run = instance.get_run_by_id(event.run_id)
            assert run is not None
            instance.report_run_canceling(run)  # as the button in the UI does, and then sends SIGTERM
            raise KeyboardInterrupt
        log(event, **options)

    with monkeypatch.context() as patched:
        patched.setattr(instance, "handle_new_event", terminated)
        tags = {RANGE_START: "c", RANGE_END: "c"}
        ended = job.execute_in_process(instance=instance, tags=tags, raise_on_error=False)
    assert instance.get_run_by_id(ended.run_id).status is dg.DagsterRunStatus.CANCELED  # type: ignore[union-attr]
    before = materializations(instance, stage)
    nights = 0
    while nightly := requests(instance, settings):
        nights += 1
        assert nights < 3
        (request,) = nightly
        selected = request.asset_selection
        assert job.execute_in_process(instance=instance, tags=request.tags, asset_selection=selected).success
    assert materializations(instance, stage) > before


def test_a_vanished_shard_is_not_requested(instance: dg.DagsterInstance, settings: Settings, tmp_path: Path) -> None:
    register_all(instance, settings.storage)
    (tmp_path / "raw" / "b.tar").unlink()
    assert requested(instance, settings) == ["aa", "cd"]


def test_a_wrong_cron_expression_is_named(tmp_path: Path) -> None:
    settings = project(tmp_path, '[watch]\nnightly = "at two"\nreport = "at six"\n')
    with pytest.raises(SettingsError, match=r"watch\.nightly: 'at two' is not a cron expression"):
        build_nightly_schedule(settings, build_job(settings))
    with pytest.raises(SettingsError, match=r"watch\.report: 'at six' is not a cron expression"):
        build_report_schedule(settings)


def test_the_report_is_made_once_a_day(tmp_path: Path) -> None:
    schedule = build_report_schedule(project(tmp_path))
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("0 6 * * *", "UTC")
    tick = build_definitions(project(tmp_path)).get_repository_def().get_schedule_def("daily_report")
    job = build_definitions(project(tmp_path)).get_repository_def().get_job(tick.job_name)
    assert job.asset_layer.executable_asset_keys == {dg.AssetKey("dataset_report")}


def test_a_stage_materialized_alone_is_a_reason_to_request_the_rest(
    instance: dg.DagsterInstance, settings: Settings
) -> None:
    register_all(instance, settings.storage)
    done = (
        build_definitions(settings)
        .resolve_implicit_global_asset_job_def()
        .execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey("normalized")],
            tags={RANGE_START: "a", RANGE_END: "d"},
        )
    )
    assert done.success
    assert requested(instance, settings) == ["ab", "cd"]
