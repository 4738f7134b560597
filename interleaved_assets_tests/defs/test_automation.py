"""What automation launches and what it leaves alone, evaluated without a daemon."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs import shard_run
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets.defs.schedules import RANGE_END, RANGE_START
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.execute import Stage, StageOutcome
from interleaved_assets.pipeline.record import ShardPaths
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import STAGES
from interleaved_assets_tests.documents import document, good_shard, project, write_shard


class Automation:
    """The definitions, an instance, and the ticks so far."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.settings: Settings = project(folder)
        self.definitions = build_definitions(self.settings)
        self.cursor: object = None

    def put(self, name: str, seed: int) -> None:
        good_shard(self.folder / "raw" / f"{name}.tar", seed=seed)

    def observe(self) -> None:
        register_all(self.instance, self.settings)

    def run(self, *keys: str) -> bool:
        return materialize_all(self.instance, self.settings, keys)

    def tick(self) -> dict[str, set[str]]:
        """One tick; what it requests, by asset."""
        result = dg.evaluate_automation_conditions(
            defs=self.definitions,
            instance=self.instance,
            asset_selection=dg.AssetSelection.assets(*STAGES),
            cursor=self.cursor,  # type: ignore[arg-type]  # whatever the last tick gave
        )
        self.cursor = result.cursor
        requested = {name: result.get_requested_partitions(dg.AssetKey(name)) for name in STAGES}
        return {name: {str(key) for key in keys} for name, keys in requested.items() if keys}


@pytest.fixture
def automation(tmp_path: Path) -> Iterator[Automation]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Automation(tmp_path, instance)


def whole_chain(*keys: str) -> dict[str, set[str]]:
    return {name: set(keys) for name in STAGES}


def test_what_is_there_at_the_first_tick_and_what_lands_later_is_requested_once(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")
    assert automation.tick() == {}
    automation.put("b", 2)
    automation.observe()
    assert automation.tick() == whole_chain("b")
    assert automation.tick() == {}


def test_all_new_shards_of_a_tick_are_one_backfill_in_runs_of_a_set_size(automation: Automation) -> None:
    keys = [f"{number:03}" for number in range(7)]
    for number, key in enumerate(keys):
        automation.put(key, number)
    automation.observe()
    repository = automation.definitions.get_repository_def()
    tick = dg.build_sensor_context(automation.instance, repository_def=repository, sensor_name="automation")
    (request,) = repository.get_sensor_def("automation").evaluate_tick(tick).run_requests or ()
    assert request.requires_backfill_daemon()
    assert request.asset_graph_subset is not None
    requested = request.asset_graph_subset.iterate_asset_partitions()
    assert {(item.asset_key.path[-1], item.partition_key) for item in requested} == {
        (name, key) for name in STAGES for key in keys
    }
    graph = automation.definitions.resolve_asset_graph()
    policies = {graph.get(dg.AssetKey(name)).backfill_policy for name in STAGES}
    assert policies == {dg.BackfillPolicy.multi_run(automation.settings.run.shards_per_run)}


def test_a_shard_that_was_taken_through_is_left_alone_also_by_a_new_sensor(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")
    assert automation.run("a")
    assert automation.tick() == {}
    automation.cursor = None
    assert automation.tick() == {}


def test_a_backfill_by_hand_is_not_run_again(automation: Automation) -> None:
    assert automation.tick() == {}
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == {}
    assert automation.tick() == {}


def test_the_same_content_observed_again_wakes_nothing(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == {}
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == {}


def test_new_content_requests_that_shard_alone(automation: Automation) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        automation.put(name, seed)
    automation.observe()
    assert automation.run("a", "b")
    assert automation.tick() == {}
    automation.put("a", 3)
    automation.observe()
    assert automation.tick() == whole_chain("a")


def test_new_content_in_the_tick_that_sees_the_old_one_done_is_not_lost(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")
    assert automation.run("a")
    automation.put("a", 2)
    automation.observe()
    assert automation.tick() == whole_chain("a")
    assert automation.tick() == {}


def test_new_content_right_after_the_request_is_not_lost(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")
    automation.put("a", 2)
    automation.observe()
    assert automation.tick() == whole_chain("a")


def test_a_shard_waits_while_a_run_is_working_on_it(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == {}
    job = automation.definitions.resolve_implicit_global_asset_job_def()
    run = automation.instance.create_run_for_job(
        job,
        asset_selection=frozenset({dg.AssetKey("final_tars")}),
        tags={RANGE_START: "a", RANGE_END: "a"},
        status=dg.DagsterRunStatus.STARTED,
    )
    automation.put("a", 2)
    automation.observe()
    assert automation.tick() == {}
    assert automation.tick() == {}
    automation.instance.report_run_canceled(run)
    assert automation.tick() == whole_chain("a")


def test_a_shard_that_failed_is_not_tried_again_until_its_content_changes(automation: Automation) -> None:
    raw = automation.folder / "raw" / "a.tar"
    raw.write_bytes(b"this is no tar" * 100)
    automation.observe()
    assert automation.tick() == whole_chain("a")
    assert not automation.run("a")
    assert automation.tick() == {}
    automation.observe()
    assert automation.tick() == {}
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")


def test_an_input_that_came_out_as_before_wakes_nothing_downstream(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == {}
    job = automation.definitions.resolve_implicit_global_asset_job_def()
    done = job.execute_in_process(
        instance=automation.instance,
        asset_selection=[dg.AssetKey("normalized")],
        tags={RANGE_START: "a", RANGE_END: "a"},
    )
    assert done.success
    assert automation.tick() == {}


def test_a_stage_run_alone_wakes_those_that_lack_it(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")  # requested, and never run
    job = automation.definitions.resolve_implicit_global_asset_job_def()
    assert job.execute_in_process(
        instance=automation.instance,
        asset_selection=[dg.AssetKey("normalized")],
        tags={RANGE_START: "a", RANGE_END: "a"},
    ).success
    assert automation.tick() == {name: {"a"} for name in STAGES[1:]}


def test_a_record_that_dagster_does_not_know_of_counts_for_nothing(automation: Automation) -> None:
    automation.put("a", 1)
    with dg.DagsterInstance.ephemeral() as another:
        register_all(another, automation.settings)
        assert materialize_all(another, automation.settings, ["a"])
    automation.observe()
    assert automation.tick() == whole_chain("a")


def test_a_damaged_record_of_one_shard_does_not_stop_the_others(automation: Automation) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        automation.put(name, seed)
    automation.observe()
    assert automation.run("a", "b")
    assert automation.tick() == {}
    paths = ShardPaths(output_root=automation.settings.storage.output_root, key="a")
    Path(paths.record("normalized")).write_text("{")
    for name, seed in (("a", 3), ("b", 4)):
        automation.put(name, seed)
    automation.observe()
    assert automation.tick() == whole_chain("a", "b")


def test_a_shard_that_failed_behind_normalized_is_not_tried_again_until_its_content_changes(
    automation: Automation,
) -> None:
    """What the failed run itself has made of the shard is no news: it was what the shard failed with."""
    automation.settings = project(automation.folder, '[selection]\non_score_error = "error"\n')
    automation.definitions = build_definitions(automation.settings)
    write_shard(automation.folder / "raw" / "a.tar", {"doc": document("text", b"this is no image")})
    automation.observe()
    assert automation.tick() == whole_chain("a")
    assert not automation.run("a")
    assert automation.instance.get_materialized_partitions(dg.AssetKey("image_scores")) == {"a"}
    assert not automation.instance.get_materialized_partitions(dg.AssetKey("filtered"))
    assert automation.tick() == {}
    automation.cursor = None
    assert automation.tick() == {}
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")


def test_new_content_that_is_told_of_before_the_run_on_the_old_one_fails_is_not_lost(
    automation: Automation, monkeypatch: pytest.MonkeyPatch
) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == whole_chain("a")
    take_through = shard_run.take_through

    def replaced(stage: Stage, key: str, settings: Settings) -> StageOutcome:
        if stage.name == "normalized":
            automation.put("a", 2)
            automation.observe()
            raise ShardError("changed while it was read")
        return take_through(stage, key, settings)

    with monkeypatch.context() as patched:
        patched.setattr(shard_run, "take_through", replaced)
        assert not automation.run("a")
    assert automation.tick() == whole_chain("a")


@pytest.mark.parametrize("before", [(), (1,)], ids=["new", "changed"])
def test_an_event_whose_version_is_not_written_yet_is_not_lost(
    automation: Automation, monkeypatch: pytest.MonkeyPatch, before: tuple[int, ...]
) -> None:
    """PostgreSQL commits an event first, and its tags in a second transaction: a tick may come in between."""
    assert automation.tick() == {}
    for seed in before:
        automation.put("a", seed)
        automation.observe()
        assert automation.run("a")
        assert automation.tick() == {}
    automation.put("a", 2)
    with monkeypatch.context() as between:
        between.setattr(automation.instance.event_log_storage, "_store_asset_event_tags", lambda *_: None)
        automation.observe()
    assert automation.tick() == whole_chain("a")
    assert automation.tick() == {}
