"""The check whether a stage is current for every shard: what it counts, and what it says."""

from pathlib import Path

from interleaved_assets.defs.checks import judge_up_to_date, shards_not_current
from interleaved_assets.pipeline.status.dataset_status import read_dataset_status
from interleaved_assets.pipeline.status.status import State, Status
from interleaved_assets_tests.documents import good_shard, project, stages_before
from interleaved_assets_tests.projects import take_all


def stale(stage: str, number: int = 0) -> Status:
    return Status(State.STALE, f"{stage} stale: reason {number}", stage)


def test_all_current() -> None:
    assert judge_up_to_date({}, 1200) == (
        True,
        "WARN",
        "all 1,200 shards are current",
        {"shards": 1200, "shards_not_current": 0},
    )


def test_the_reasons_are_counted_and_the_most_urgent_named() -> None:
    statuses = {f"s{number}": stale("filtered", number % 4) for number in range(9)}
    statuses["x"] = Status(State.FAILED, "normalized failed", "normalized")
    verdict = judge_up_to_date(statuses, 60)
    assert (verdict.passed, verdict.severity) == (False, "WARN")
    assert verdict.summary == (
        "10 of 60 shards are not current: 1 normalized failed; 3 filtered stale: reason 0; 2 filtered stale: reason 1; "
        "and 2 more reasons"
    )
    assert verdict.figures == {"shards": 60, "shards_not_current": 10}


def test_it_does_not_pass_where_the_raw_shards_are_not_known() -> None:
    verdict = judge_up_to_date({}, 5, "cannot list /raw: Permission denied.")
    assert (verdict.passed, verdict.severity) == (False, "WARN")
    assert verdict.summary == ("new and changed raw shards cannot be recognized: cannot list /raw: Permission denied.")


def test_each_stage_counts_its_own_shards(tmp_path: Path) -> None:
    settings = project(tmp_path)
    for name in ("a", "b", "gone"):
        good_shard(tmp_path / "raw" / f"{name}.tar", seed=ord(name[0]))
        take_all(settings, name)
    good_shard(tmp_path / "raw/new.tar")
    (tmp_path / "raw/gone.tar").unlink()  # no run can make it current
    (tmp_path / "out/records/normalized/b.json").write_text("{}")
    changed = project(tmp_path, "[selection]\nmin_sharpness = 1\n")
    found = shards_not_current(read_dataset_status(changed, failed={"normalized": {"new"}}))
    assert {stage: sorted(statuses) for stage, statuses in found.items()} == {
        **{name: ["b", "new"] for name in stages_before("filtered")},
        "filtered": ["a", "b", "new"],
        "final_tars": ["a", "b", "new"],
    }
    assert found["final_tars"]["a"].text == "filtered stale: settings changed: min_sharpness 100.0 → 1.0"
    assert found["filtered"]["new"] == Status(State.FAILED, "normalized failed", "normalized")
    assert found["filtered"]["b"].state is State.UNREADABLE
