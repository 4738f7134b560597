"""Why a shard is not current, from its records alone."""

import json
import os
from importlib import metadata
from pathlib import Path

import pytest

from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.raw.listing import find_raw_shard, list_raw_shards
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stored_records import read_records, read_valid_records
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import status_of_raws
from interleaved_assets.pipeline.status.due import Due, KnownRuns, due_shards, stages_due
from interleaved_assets.pipeline.status.status import COMPLETE, CURRENT, CurrentStages, State, Status
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import STAGES, good_shard, project, with_downstream
from interleaved_assets_tests.projects import take_all

pytestmark = pytest.mark.project(shards={"a": 1}, done=("a",))


def records_of(settings: Settings) -> dict[str, Record]:
    return read_records(settings.storage.shard("a"), stage_dag(settings))


def status(settings: Settings) -> str:
    raw = find_raw_shard("a", settings.storage)
    found = CurrentStages.of(settings).not_current(records_of(settings), raw)
    return next((why.text for why in found.values()), CURRENT)


def record_file(tmp_path: Path, stage: str) -> Path:
    return tmp_path / "out" / "records" / stage / "a.json"


def test_a_shard_that_completed_all_stages_is_complete(settings: Settings) -> None:
    assert status(settings) == CURRENT


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[selection]\nmin_sharpness = 80\n", "filtered stale: settings changed: min_sharpness 100.0 → 80.0"),
        (
            '[selection]\norder = ["sharpness"]\n',
            'filtered stale: settings changed: order ["sharpness", "qr", "ratio", "clip"] → ["sharpness"]',
        ),
        (
            "[selection.own.width]\nmin = 5\n",
            'filtered stale: settings changed: filters.width none → 1, order ["sharpness", "qr", "ratio", "clip"] → [',
        ),
        ("[scoring]\nmax_pixels = 1000\n", "image_scores stale: settings changed: max_pixels 89478485 → 1000"),
        (
            '[errors]\non_materialize_error = "drop_row"\n',
            'normalized stale: settings changed: on_materialize_error "error" → "drop_row"',
        ),
        ("[run]\nparallel_shards = 1\n", CURRENT),
    ],
)
def test_changed_settings_are_named(settings: Settings, tmp_path: Path, text: str, reason: str) -> None:
    assert status(project(tmp_path, text)).startswith(reason)


def test_many_changes_are_counted(settings: Settings, tmp_path: Path) -> None:
    text = "[selection]\nmin_sharpness = 1\nmax_ratio = 2\nmin_clip = 0.3\nmax_qr_area_ratio = 0.5\n"
    assert status(project(tmp_path, text)).endswith(" and 1 more")


def test_changed_code_and_changed_settings_have_different_reasons(settings: Settings, tmp_path: Path) -> None:
    file = record_file(tmp_path, "image_scores")
    record = json.loads(file.read_text())
    now = record["code_version"]
    file.write_text(json.dumps({**record, "code_version": "0-0123"}))
    assert status(settings) == f"image_scores stale: code changed, version 0-0123 → {now}"


def test_a_changed_raw_shard(settings: Settings, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar", seed=2)
    assert status(settings) == "normalized stale: raw_shards changed"
    # without the raw shard as an argument, it counts as unchanged
    assert CurrentStages.of(settings).not_current(records_of(settings)) == {}


def test_a_changed_input(settings: Settings, tmp_path: Path) -> None:
    good_shard(tmp_path / "raw" / "a.tar", seed=2)
    take_through(stage_dag(settings)["normalized"], "a", settings)
    assert status(settings) == f"{STAGES[1]} stale: normalized changed"


def test_an_input_that_the_stage_no_longer_reads(settings: Settings, tmp_path: Path) -> None:
    # as after clip.enabled = false: a run would make filtered again, from what is left
    file = record_file(tmp_path, "filtered")
    record = json.loads(file.read_text())
    record["inputs"]["clip_scores"] = "0" * 64
    file.write_text(json.dumps(record))
    assert status(settings) == "filtered stale: made from clip_scores, which it no longer reads"


def test_a_missing_record(settings: Settings, tmp_path: Path) -> None:
    record_file(tmp_path, "filtered").unlink()
    assert status(settings) == "no filtered"
    for stage in stage_dag(settings):
        record_file(tmp_path, stage).unlink(missing_ok=True)
    assert status(settings) == "never materialized"


def test_a_record_whose_output_was_replaced_counts_as_missing(settings: Settings, tmp_path: Path) -> None:
    output = tmp_path / "out" / "filtered" / "a.parquet"
    output.write_bytes(output.read_bytes())
    records = read_valid_records(settings.storage.shard("a"), stage_dag(settings))
    assert list(records) == [name for name in STAGES if name != "filtered"]
    first, *_ = CurrentStages.of(settings).not_current(records).values()
    assert first == (State.MISSING, "no filtered", "filtered")
    assert list(records_of(settings)) == list(stage_dag(settings))
    take_through(stage_dag(settings)["filtered"], "a", settings)
    assert read_valid_records(settings.storage.shard("a"), stage_dag(settings)) == records_of(settings)


def test_a_damaged_record_is_named(settings: Settings, tmp_path: Path) -> None:
    record_file(tmp_path, "filtered").write_text("{}")
    with pytest.raises(ShardError, match=r"records/filtered/a\.json is not a stage record"):
        records_of(settings)


def statuses(settings: Settings, versions: dict[str, str]) -> list[tuple[str, Status]]:
    found = status_of_raws(list_raw_shards(settings.storage), settings, versions)
    return [(shard.key, shard.status) for shard in found.shards()]


def test_another_tar_with_the_same_file_time_is_a_change(settings: Settings, tmp_path: Path) -> None:
    raw = tmp_path / "raw/a.tar"
    before = raw.stat()
    good_shard(raw, seed=9)
    raw.write_bytes(raw.read_bytes() + bytes(10240))
    os.utime(raw, ns=(before.st_atime_ns, before.st_mtime_ns))
    for versions in ({}, {"a": "sha256:of the new content"}):
        assert statuses(settings, versions) == [
            ("a", (State.STALE, "normalized stale: raw_shards changed", "normalized"))
        ]
    assert not take_through(stage_dag(settings)["normalized"], "a", settings).unchanged
    take_all(settings, "a")
    assert statuses(settings, {}) == [("a", COMPLETE)]


def test_all_raw_shards_in_their_order(settings: Settings, tmp_path: Path) -> None:
    for name in ("b", "c"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=3)
    take_through(stage_dag(settings)["normalized"], "b", settings)
    assert statuses(settings, {}) == [
        ("a", COMPLETE),
        ("b", (State.MISSING, f"no {STAGES[1]}", STAGES[1])),
        ("c", (State.MISSING, "never materialized", "normalized")),
    ]


def test_due_shards_have_the_first_stage_that_is_not_current_and_the_reason(settings: Settings, tmp_path: Path) -> None:
    for name in ("b", "c", "d", "e"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=3)
    take_through(stage_dag(settings)["normalized"], "b", settings)
    record_file(tmp_path, "normalized").with_name("d.json").write_text("{")
    refused = record_file(tmp_path, "normalized").with_name("e.json")
    refused.mkdir()  # a folder cannot be read
    everywhere = {stage: {"a", "b", "c", "d"} for stage in stage_dag(settings)}

    def due(progress: KnownRuns, at_most: int | None = None) -> Due:
        return due_shards(list_raw_shards(settings.storage), settings, {}, progress, at_most=at_most)

    found = due(KnownRuns(everywhere, {}, {"c"}))
    assert (found.current, found.refused) == ({"a"}, {"e"})
    assert {key: (status.state, status.stage) for key, status in found.shards.items()} == {
        "b": (State.MISSING, STAGES[1]),
        "d": (State.UNREADABLE, None),
    }
    assert list(due(KnownRuns(everywhere, {}, set()), at_most=1).shards) == ["b"]
    unknown = due(KnownRuns(everywhere | {"filtered": {"b"}}, {}, set())).shards["a"]
    assert unknown == (State.MISSING, "filtered is recorded, and has no materialization", "filtered")
    failed = due(KnownRuns(everywhere, {"final_tars": {"a"}}, set())).shards["a"]
    assert (failed.state, failed.stage) == (State.FAILED, "final_tars")


def test_stages_that_wait_for_a_stale_one_have_its_status_and_others_none(settings: Settings, tmp_path: Path) -> None:
    changed = project(tmp_path, "[selection]\nmin_sharpness = 80\n[scoring]\nmax_pixels = 1000000\n")
    found = CurrentStages.of(changed).not_current(records_of(settings))
    scores = "image_scores stale: settings changed: max_pixels 89478485 → 1000000"
    assert {name: status.text for name, status in found.items()} == dict.fromkeys(
        with_downstream("image_scores"), scores
    )
    stages = stage_dag(changed)
    assert stages_due(list(found.values()), stages) == [*STAGES[STAGES.index("image_scores") :]]
    assert stages_due([COMPLETE], stages) == []
    assert stages_due([COMPLETE, Status(State.UNREADABLE, "damaged")], stages) == list(stages)
    assert CurrentStages.of(settings).not_current(records_of(settings)) == {}


def with_packages(file: Path, **versions: str | None) -> None:
    """Change versions in a record; None removes one."""
    record = json.loads(file.read_text())
    packages = {**record["packages"], **{name.replace("_", "-"): version for name, version in versions.items()}}
    record["packages"] = {name: version for name, version in packages.items() if version is not None}
    file.write_text(json.dumps(record))


def test_scores_of_another_release_of_what_measures_them_are_stale(settings: Settings, tmp_path: Path) -> None:
    file = record_file(tmp_path, "image_scores")
    now = json.loads(file.read_text())["packages"]
    assert now == {name: metadata.version(name) for name in ("opencv-python-headless", "pillow", "zxing-cpp")}
    with_packages(file, zxing_cpp="2.2.1", pillow="10.4.0")
    before = file.read_text()
    changes = f"pillow 10.4.0 → {now['pillow']}, zxing-cpp 2.2.1 → {now['zxing-cpp']}"
    assert status(settings) == f"image_scores stale: {changes}"
    assert not take_through(stage_dag(settings)["image_scores"], "a", settings).unchanged
    assert file.read_text() != before
    assert json.loads(file.read_text())["packages"] == now
    assert status(settings) == CURRENT  # the scores are the same, and so is all that was made of them
    assert "packages" not in json.loads(record_file(tmp_path, "filtered").read_text())


def test_patch_releases_and_versions_that_are_not_known_make_nothing_stale(settings: Settings, tmp_path: Path) -> None:
    file = record_file(tmp_path, "image_scores")
    version = metadata.version("opencv-python-headless").split(".")
    with_packages(file, opencv_python_headless=".".join([*version[:2], "1234"]), pillow=None, of_another_machine="1.0")
    assert status(settings) == CURRENT
    assert take_through(stage_dag(settings)["image_scores"], "a", settings).unchanged
    earlier = json.loads(file.read_text())
    del earlier["packages"]  # as in records of older versions
    file.write_text(json.dumps(earlier))
    assert status(settings) == CURRENT
    assert take_through(stage_dag(settings)["image_scores"], "a", settings).unchanged
