"""What automation requests and what it leaves alone: its sensor and that over the raw root, evaluated by hand."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.build import build_definitions
from interleaved_assets.defs.demo import materialize_all, register_all
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.requests import RANGE_END, RANGE_START
from interleaved_assets.defs.ticks.automation import REQUESTED
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline import many
from interleaved_assets.pipeline.forget import files_to_forget, remove_files
from interleaved_assets.pipeline.stage import Stage, StageOutcome
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defs.runs import Watcher, run_chain, unfinished_run
from interleaved_assets_tests.documents import document, good_shard, project, write_shard

AT_ONCE = "[watch]\nquiet_seconds = 0\n"


class Automation:
    """The definitions, an instance, and the ticks so far."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.configure()
        self.watcher = Watcher(instance, self.settings)
        self.cursor: str | None = None
        self.said = ""
        """Why the last tick requested nothing."""
        self.run_keys: list[str | None] = []
        """Of all runs requested so far."""

    def configure(self, text: str = "") -> None:
        self.settings: Settings = project(self.folder, AT_ONCE + text)
        self.definitions = build_definitions(self.settings)

    def put(self, name: str, seed: int) -> None:
        good_shard(self.folder / "raw" / f"{name}.tar", seed=seed)

    def observe(self) -> None:
        """A look at the raw root."""
        self.watcher.tick()

    def run(self, *keys: str) -> bool:
        return materialize_all(self.instance, self.settings, keys)

    def ranges(self) -> list[tuple[str, str]]:
        """One tick of the sensor; first and last shard of each run that it requests."""
        repository = self.definitions.get_repository_def()
        context = dg.build_sensor_context(
            self.instance, cursor=self.cursor, repository_def=repository, sensor_name="automation"
        )
        result = repository.get_sensor_def("automation")(context)
        if isinstance(result, dg.SkipReason):
            self.said = result.skip_message or ""
            return []
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        self.said = result.skip_reason.skip_message or "" if result.skip_reason else ""
        self.run_keys += [request.run_key for request in result.run_requests or ()]
        return [(request.tags[RANGE_START], request.tags[RANGE_END]) for request in result.run_requests or ()]

    def tick(self) -> list[str]:
        """One tick; every shard of the runs that it requests."""
        registered = list(self.instance.get_dynamic_partitions(SHARDS))
        return [
            key
            for first, last in self.ranges()
            for key in registered[registered.index(first) : registered.index(last) + 1]
        ]


@pytest.fixture
def automation(tmp_path: Path) -> Iterator[Automation]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield Automation(tmp_path, instance)


def test_shards_at_the_first_tick_and_later_ones_are_requested_once(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]
    assert automation.tick() == []
    automation.put("b", 2)
    automation.observe()
    assert automation.tick() == ["b"]
    assert automation.tick() == []


def test_a_current_shard_is_not_requested_after_a_reset_of_the_cursor(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]
    assert automation.run("a")
    assert automation.tick() == []
    automation.cursor = None
    assert automation.tick() == []


def test_a_start_from_the_beginning_uses_no_run_key_again(automation: Automation) -> None:
    # Dagster launches no run whose key an earlier run of the sensor has
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]
    shutil.rmtree(automation.folder / "out")
    automation.cursor, automation.watcher.cursor = None, ""
    automation.observe()
    assert automation.tick() == ["a"]
    assert len(set(automation.run_keys)) == 2


def test_shards_materialized_by_hand_are_not_requested(automation: Automation) -> None:
    assert automation.tick() == []
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == []
    assert automation.tick() == []


def test_the_same_content_in_a_new_file_is_not_requested(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == []
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == []


def test_new_content_requests_only_that_shard(automation: Automation) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        automation.put(name, seed)
    automation.observe()
    assert automation.run("a", "b")
    assert automation.tick() == []
    automation.put("a", 3)
    automation.observe()
    assert automation.tick() == ["a"]


def test_content_replaced_while_its_run_ends_is_requested(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]
    assert automation.run("a")
    automation.put("a", 2)
    automation.observe()
    assert automation.tick() == ["a"]
    assert automation.tick() == []


def test_content_replaced_after_its_request_is_requested(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]
    automation.put("a", 2)
    automation.observe()
    assert automation.tick() == ["a"]


def test_a_failed_shard_is_requested_again_when_its_content_changes(automation: Automation) -> None:
    raw = automation.folder / "raw" / "a.tar"
    raw.write_bytes(b"this is no tar" * 100)
    automation.observe()
    assert automation.tick() == ["a"]
    assert not automation.run("a")
    assert automation.tick() == []
    automation.observe()
    assert automation.tick() == []
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]


def test_a_shard_without_a_materialization_in_dagster_is_requested_despite_its_records(automation: Automation) -> None:
    automation.put("a", 1)
    with dg.DagsterInstance.ephemeral() as another:
        assert materialize_all(another, automation.settings, register_all(another, automation.settings.storage))
    automation.observe()
    assert automation.tick() == ["a"]


def test_a_damaged_record_of_one_shard_does_not_stop_the_others(automation: Automation) -> None:
    for name, seed in (("a", 1), ("b", 2)):
        automation.put(name, seed)
    automation.observe()
    assert automation.run("a", "b")
    assert automation.tick() == []
    paths = automation.settings.storage.shard("a")
    Path(paths.record("normalized")).write_text("{")
    for name, seed in (("a", 3), ("b", 4)):
        automation.put(name, seed)
    automation.observe()
    assert automation.tick() == ["a", "b"]


def test_content_reported_before_the_run_on_the_old_content_fails_is_requested(
    automation: Automation, monkeypatch: pytest.MonkeyPatch
) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]
    take_through = many.take_through

    def replaced(stage: Stage, key: str, settings: Settings, *_: object) -> StageOutcome:
        if stage.name == "normalized":
            automation.put("a", 2)
            automation.observe()
            raise ShardError("changed while it was read")
        return take_through(stage, key, settings)

    with monkeypatch.context() as patched:
        patched.setattr(many, "take_through", replaced)
        assert not automation.run("a")
    assert automation.tick() == ["a"]


def test_shards_of_one_tick_are_requested_in_ranges_of_shards_per_run(automation: Automation) -> None:
    automation.configure("[run]\nshards_per_run = 3\n")
    for number in range(7):
        automation.put(f"{number}", number)
    automation.observe()
    assert automation.ranges() == [("0", "2"), ("3", "5"), ("6", "6")]


def test_a_tick_requests_at_most_max_per_tick_shards_and_the_next_one_the_rest(automation: Automation) -> None:
    for number in range(5):
        automation.put(f"{number}", number)
    automation.observe()
    automation.configure("max_per_tick = 2\n")
    assert [automation.ranges() for _ in range(4)] == [[("0", "1")], [("2", "3")], [("4", "4")], []]


def test_a_range_includes_a_few_current_shards_and_no_failed_one(automation: Automation) -> None:
    for number, key in enumerate("abcd"):
        automation.put(key, number)
    (automation.folder / "raw" / "e.tar").write_bytes(b"this is no tar" * 100)
    automation.put("f", 9)
    automation.observe()
    automation.tick()
    assert not automation.run(*"abcdef")
    for number, key in enumerate("adf"):
        automation.put(key, 20 + number)
    automation.observe()
    assert automation.ranges() == [("a", "d"), ("f", "f")]


def test_a_shard_with_an_unfinished_run_waits(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == []
    run = unfinished_run(automation.instance, automation.settings, "a")
    automation.put("a", 2)
    automation.put("b", 3)
    automation.observe()
    assert automation.tick() == ["b"]
    assert automation.tick() == []
    assert automation.said == "1 shard new or changed: 1 in runs"
    automation.instance.report_run_canceled(run)
    assert automation.tick() == ["a"]
    assert automation.tick() == []


def test_a_range_does_not_include_a_shard_with_an_unfinished_run(automation: Automation) -> None:
    for number, key in enumerate("abc"):
        automation.put(key, number)
    automation.observe()
    assert automation.run(*"abc")
    assert automation.tick() == []
    unfinished_run(automation.instance, automation.settings, "b")
    for number, key in enumerate("ac"):
        automation.put(key, 20 + number)
    automation.observe()
    assert automation.ranges() == [("a", "a"), ("c", "c")]


def test_a_stage_materialized_again_by_hand_with_the_same_result_is_not_requested(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == []
    done = automation.definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=automation.instance,
        asset_selection=[dg.AssetKey("normalized")],
        tags={RANGE_START: "a", RANGE_END: "a"},
    )
    assert done.success
    automation.cursor = None
    assert automation.tick() == []


@pytest.mark.parametrize("with_note", [False, True], ids=["failure alone", "status note after the failure"])
@pytest.mark.parametrize("stage", ["normalized", "filtered", "final_tars"])
def test_a_failed_shard_is_not_requested_after_a_reset_of_the_cursor(
    automation: Automation, monkeypatch: pytest.MonkeyPatch, stage: str, with_note: bool
) -> None:
    """Its failure in Dagster's event log decides, also where a status note on its page is the latest observation."""
    automation.put("a", 1)
    automation.observe()
    take_through = many.take_through

    def failing(at: Stage, key: str, settings: Settings, *_: object) -> StageOutcome:
        if at.name == stage:
            raise ShardError("failed for this test")
        return take_through(at, key, settings)

    with monkeypatch.context() as patched:
        patched.setattr(many, "take_through", failing)
        assert not run_chain(automation.instance, automation.settings, ["a"]).success
    if with_note:
        report = [automation.definitions.get_assets_def("dataset_report")]
        assert dg.materialize(report, instance=automation.instance).success
        (note,) = automation.instance.fetch_observations(dg.AssetKey("final_tars"), limit=1).records
        assert note.asset_observation is not None
        assert "status" in note.asset_observation.metadata
    assert automation.tick() == []
    assert automation.said == "current: 0, failed with their present content: 1"
    automation.cursor = None
    assert automation.tick() == []
    automation.put("a", 2)
    automation.observe()
    assert automation.tick() == ["a"]


def test_a_shard_that_failed_behind_normalized_is_requested_again_when_its_content_changes(
    automation: Automation,
) -> None:
    """New materializations of the failed run at earlier assets are no reason to try it again."""
    automation.configure('[selection]\non_score_error = "error"\n')
    write_shard(automation.folder / "raw" / "a.tar", {"doc": document("text", b"this is no image")})
    automation.observe()
    assert automation.tick() == ["a"]
    assert not automation.run("a")
    assert automation.instance.get_materialized_partitions(dg.AssetKey("image_scores")) == {"a"}
    assert automation.tick() == []
    automation.cursor = None
    assert automation.tick() == []
    automation.put("a", 1)
    automation.observe()
    assert automation.tick() == ["a"]


def test_a_shard_that_is_still_being_written_waits(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    automation.watcher.settings = project(automation.folder, "[watch]\nquiet_seconds = 600\n")
    automation.put("a", 2)
    automation.observe()
    assert automation.tick() == []
    automation.watcher.settings = automation.settings
    automation.observe()
    assert automation.tick() == ["a"]


def test_a_look_whose_events_are_not_stored_yet_loses_no_content(automation: Automation) -> None:
    """The snapshot of a look is written before its observations are stored: automation may be evaluated in between."""
    raw = automation.folder / "raw" / "a.tar"
    raw.write_bytes(b"this is no tar" * 100)
    automation.observe()
    assert automation.tick() == ["a"]
    assert not automation.run("a")
    automation.put("a", 1)
    with pytest.MonkeyPatch.context() as between:
        between.setattr(automation.instance, "report_runless_asset_event", lambda _: None)
        automation.observe()
    assert automation.tick() == ["a"]


def test_a_tick_that_failed_is_made_up_for_by_the_next(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    before = automation.cursor
    assert automation.tick() == ["a"]
    automation.cursor = before  # the daemon stored neither cursor nor requests
    assert automation.tick() == ["a"]


def test_after_a_reset_of_the_cursor_of_the_raw_root_sensor_new_content_is_requested(automation: Automation) -> None:
    for seed in (1, 2, 3):
        automation.put("a", seed)
        automation.observe()
    assert automation.run("a")
    assert automation.tick() == []
    automation.watcher.cursor = None
    automation.observe()
    assert automation.tick() == []
    automation.put("a", 4)
    automation.observe()
    assert automation.tick() == ["a"]


@pytest.mark.parametrize("content", [None, b"damaged"])
def test_a_table_that_cannot_be_read_means_comparing_every_shard_anew(
    automation: Automation, content: bytes | None
) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == []
    automation.put("b", 2)
    automation.observe()
    storage = automation.settings.storage
    table = Path(REQUESTED.uri(int(automation.cursor or 0), storage))
    table.unlink()
    if content is not None:
        table.write_bytes(content)
    assert automation.tick() == ["b"]
    assert set(REQUESTED.read(int(automation.cursor or 0), storage)["key"].to_pylist()) == {"a", "b"}


def test_a_forgotten_shard_whose_tar_comes_back_is_requested(automation: Automation) -> None:
    """Its version is the one that was requested before, and its outputs are gone."""
    for seed, name in enumerate("ab"):
        automation.put(name, seed)
    automation.observe()
    assert automation.run("a", "b")
    assert automation.tick() == []
    tar = automation.folder / "raw/a.tar"
    aside = tar.rename(automation.folder / "a.tar")
    storage = automation.settings.storage
    remove_files(files_to_forget(["a"], storage), storage)
    automation.observe()
    assert automation.instance.get_dynamic_partitions(SHARDS) == ["b"]
    assert automation.tick() == []
    assert automation.said == "no shard is new or changed"
    aside.rename(tar)
    automation.observe()
    assert automation.tick() == ["a"]
    assert automation.run("a")


def test_a_vanished_shard_that_comes_back_with_its_outputs_launches_nothing(automation: Automation) -> None:
    automation.put("a", 1)
    automation.observe()
    assert automation.run("a")
    assert automation.tick() == []
    tar = automation.folder / "raw/a.tar"
    aside = tar.rename(automation.folder / "a.tar")
    automation.observe()
    assert automation.tick() == []
    aside.rename(tar)
    automation.observe()
    assert automation.tick() == []
    assert automation.said == "current: 1, failed with their present content: 0"


def test_shards_that_wait_and_shards_without_a_partition_are_named(automation: Automation) -> None:
    automation.put("a", 1)
    automation.watcher.settings = project(automation.folder, "[watch]\nquiet_seconds = 600\n")
    automation.observe()
    assert automation.tick() == []
    assert automation.said == "no shard is new or changed; raw_shard_sensor waits until 1 shard can be read"
    automation.watcher.settings = automation.settings
    automation.observe()
    automation.instance.delete_dynamic_partition(SHARDS, "a")
    assert automation.tick() == []
    assert automation.said == "1 shard new or changed: 1 without a partition"
    automation.observe()
    assert automation.tick() == ["a"]
