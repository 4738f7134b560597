"""Facts of shards from what the stages have stored, in order, whatever is wrong with one of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io.storage import atomic_output, read_stamp
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.status.dataset_status import VANISHED, read_dataset_status
from interleaved_assets.pipeline.status.status import State
from interleaved_assets.reporting.dataset.aggregate import aggregate
from interleaved_assets.reporting.figures.collect import UNREADABLE, all_shard_facts, shard_facts
from interleaved_assets.reporting.figures.facts import ShardFacts
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import ROWS, STAGES, document, project, write_shard
from interleaved_assets_tests.pipeline.damage import accept_outputs
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.system_calls import files_opened

KEYS = ["a", "b", "c", "d"]


pytestmark = pytest.mark.project(shards={key: ord(key) for key in KEYS}, done=KEYS)


def test_facts_of_one_shard(settings: Settings) -> None:
    facts = shard_facts("a", settings)
    assert (facts.counts_in.rows, facts.counts_in.samples, facts.counts_in.images) == (13, 3, 5)
    assert (facts.counts_out.rows, facts.counts_out.samples, facts.counts_out.images) == (12, 3, 4)
    assert facts.ledger is not None
    assert facts.ledger["reason"].to_pylist() == ["sharpness_below"]
    assert facts.rows_unaccounted == 0
    assert sorted(facts.sample_scores["ratio"].to_pylist()) == pytest.approx([0.25, 0.5, 2 / 3])


def test_thumbnails_are_read_for_one_shard_and_not_for_all(settings: Settings) -> None:
    one, all_scores = shard_facts("a", settings).scores, facts_of_a(settings).scores
    assert one is not None
    assert all_scores is not None
    assert set(one.column_names) - set(all_scores.column_names) == {"thumbnail"}


def test_a_shard_as_far_as_it_has_come(settings: Settings, tmp_path: Path) -> None:
    for stage in ("filtered", "final_tars"):
        (tmp_path / f"out/records/{stage}/a.json").unlink()
    facts = shard_facts("a", settings)
    assert (facts.counts_in.rows, facts.counts_out.rows) == (13, 13)
    assert facts.sample_scores is None
    assert facts.ledger is not None
    assert facts.ledger.num_rows == 0  # the selection's ledger lies there still, and no record vouches for it


def facts_of_a(settings: Settings) -> ShardFacts:
    return next(iter(all_shard_facts(read_dataset_status(settings))))


def test_a_changed_threshold_on_its_way_loses_no_row(settings: Settings, tmp_path: Path) -> None:
    changed = project(tmp_path, "[selection]\nmin_sharpness = 0\n")
    take_through(stage_dag(settings)["filtered"], "a", changed)
    facts = facts_of_a(changed)
    assert facts.status.text == "final_tars stale: filtered changed"
    assert facts.counted_to == "filtered"
    assert (facts.counts_in.rows, facts.counts_out.rows, facts.counts_out.images) == (13, 13, 5)
    assert facts.rows_unaccounted == 0
    take_through(stage_dag(changed)["final_tars"], "a", changed)
    assert facts_of_a(changed).counted_to == "final_tars"


def test_new_content_on_its_way_loses_no_row(settings: Settings, tmp_path: Path) -> None:
    write_shard(tmp_path / "raw/a.tar", {"only": document("one", "two")})
    take_through(stage_dag(settings)["normalized"], "a", settings)
    facts = facts_of_a(settings)
    assert facts.status.text == f"{STAGES[1]} stale: normalized changed"
    assert facts.counted_to == "normalized"
    assert (facts.counts_in.rows, facts.counts_out.rows, facts.counts_in.images) == (3, 3, 0)
    assert facts.rows_unaccounted == 0
    # scores of images that are not among the rows any more
    assert (facts.scores, facts.sample_scores, facts.not_stored) == (None, None, ())


def test_a_run_that_was_killed_between_two_outputs_loses_no_row(settings: Settings) -> None:
    def end(shard: ShardTask) -> Work:
        with atomic_output(shard.paths.ledger("filtered")) as out:
            out.write(b"another ledger")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        take_through(Stage("filtered", (ROWS, "image_scores"), 9, lambda settings: {}, end), "a", settings)
    facts = facts_of_a(settings)
    assert facts.status.state is State.MISSING
    assert facts.counted_to == ROWS
    assert (facts.counts_in.rows, facts.counts_out.rows) == (13, 13)
    assert facts.rows_unaccounted == 0
    assert facts.scores is not None


def test_scores_made_anew_leave_the_counts_as_they_are(settings: Settings, tmp_path: Path) -> None:
    changed = project(tmp_path, '[scoring]\nscorers = ["sharpness", "qr"]\n')
    take_through(stage_dag(changed)["image_scores"], "a", changed)
    facts = facts_of_a(changed)
    assert facts.status.text == "filtered stale: image_scores changed"
    assert (facts.counted_to, facts.counts_out.rows, facts.rows_unaccounted) == ("final_tars", 12, 0)


@pytest.mark.parametrize("gone", ["image_scores", "sample_scores"])
def test_scores_that_are_deleted_after_the_survey_leave_the_counts(
    settings: Settings, tmp_path: Path, gone: str
) -> None:
    listed = {str(path): read_stamp(str(path)) for path in (tmp_path / "out").rglob("*")}
    found = replace(read_dataset_status(settings), listed=listed)
    (tmp_path / f"out/{gone}/a.parquet").unlink()
    (facts, *_) = all_shard_facts(found)
    assert facts.status.state is State.COMPLETE
    assert (facts.counts_in.rows, facts.counts_out.rows, facts.rows_unaccounted) == (13, 12, 0)
    assert facts.not_stored == (gone,)
    assert (facts.scores is None, facts.sample_scores is None) == (gone == "image_scores", gone == "sample_scores")
    assert facts_of_a(settings).status.state is State.MISSING


def test_damaged_scores_of_samples_name_their_shard(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "out/sample_scores/a.parquet").write_bytes(b"PAR1 no more")
    accept_outputs(settings, "filtered")
    facts = facts_of_a(settings)
    assert facts.status == UNREADABLE
    assert facts.problem.startswith("shard a: ")
    assert "sample_scores/a.parquet is not a sound Parquet file" in facts.problem


def test_every_shard_in_order_with_its_status(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "raw/b.tar").unlink()
    (tmp_path / "out/records/normalized/c.json").write_text("{}")
    (tmp_path / "out/image_scores/d.parquet").write_bytes(b"PAR1 no more")
    accept_outputs(settings, "image_scores", "d")
    found = list(all_shard_facts(read_dataset_status(settings, ["registered"])))
    assert [facts.key for facts in found] == [*KEYS, "registered"]
    assert [facts.status.state for facts in found] == [
        State.COMPLETE,
        State.VANISHED,
        State.UNREADABLE,
        State.UNREADABLE,
        State.VANISHED,
    ]
    assert found[1].status == VANISHED
    assert found[1].counts_out.rows == 12  # outputs of a vanished shard are outputs
    assert found[2].status == found[3].status == UNREADABLE  # one line in the table of reasons, whatever is broken
    assert "records/normalized/c.json is not a stage record" in found[2].problem
    assert found[3].problem
    data = aggregate(found, measures_of(settings.selection))
    assert [(line.status.state, line.shards, line.examples) for line in data.by_status()] == [
        (State.UNREADABLE, 2, "c, d"),
        (State.VANISHED, 1, "b"),
        (State.VANISHED, 1, "registered"),
        (State.COMPLETE, 1, "a"),
    ]


def test_a_final_tar_without_a_raw_tar_is_published_in_a_tree_that_was_copied_too(
    settings: Settings, tmp_path: Path
) -> None:
    """Stamps of copied files are others, and of shards without a raw shard no run comes to compare the contents."""
    (tmp_path / "raw/a.tar").rename(tmp_path / "raw/renamed.tar")
    take_all(settings, "renamed")
    (tmp_path / "raw/b.tar").unlink()
    (tmp_path / "raw/c.tar").unlink()
    (tmp_path / "out").rename(tmp_path / "before")
    shutil.copytree(tmp_path / "before", tmp_path / "out")
    (tmp_path / "out/tars/c.tar").unlink()
    dataset = read_dataset_status(settings)
    assert dataset.valid_records("a") == {}
    data = aggregate(all_shard_facts(dataset), measures_of(settings.selection))
    assert data.published(State.VANISHED) == ["a", "b"]
    assert [shard.key for shard in data.shards if shard.status == VANISHED] == ["a", "b", "c"]
    take_all(settings, "renamed")
    data = aggregate(all_shard_facts(read_dataset_status(settings)), measures_of(settings.selection))
    assert data.published_twice() == [("a", "renamed")]


@pytest.mark.parametrize(("policy", "images"), [("drop_row", 1), ("warn", 2)])
def test_each_row_with_an_error_counts_once(tmp_path: Path, policy: str, images: int) -> None:
    errors = f'[errors]\non_materialize_error = "{policy}"\n[publish]\nmax_lost_samples = 1\n'
    settings = project(tmp_path, f'{errors}[selection]\non_score_error = "warn"\n')
    row = {"sample_id": "d", "modality": "image", "content_type": "image/png"}
    rows = [
        {"sample_id": "d", "position": 0, "modality": "text", "text_content": "one two"},
        {**row, "position": 1, "materialize_error": "undecodable_image: of the page"},
        {**row, "position": 2, "binary_content": b"no image"},
    ]
    (tmp_path / "raw").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=INTERLEAVED_SCHEMA), tmp_path / "raw/a.parquet")
    take_all(settings, "a.parquet")
    facts = shard_facts("a.parquet", settings)
    assert (facts.counts_out.images, facts.errors) == (images, {"undecodable_image": 2})


def test_an_empty_ledger_is_not_read(settings: Settings) -> None:
    with files_opened("/a.parquet") as opened:
        facts = facts_of_a(settings)
    assert facts.ledger is not None
    assert facts.ledger.num_rows == 1
    assert {Path(path).parent.name for path in opened if "/dropped/" in path} == {"filtered"}


def test_records_are_read_once(settings: Settings) -> None:
    with files_opened(".json") as opened:
        list(all_shard_facts(read_dataset_status(settings)))
    read = [path for path in opened if "/records/" in path]
    assert len(read) == len(set(read)) == len(KEYS) * len(stage_dag(settings))


def test_the_same_shards_give_the_same_sums(settings: Settings) -> None:
    measures = measures_of(settings.selection)
    one, two = (aggregate(all_shard_facts(read_dataset_status(settings)), measures) for _ in range(2))
    assert [shard.key for shard in one.shards] == [shard.key for shard in two.shards] == KEYS
    assert json.dumps(one.scored[0].percentiles((1.0, 50.0))) == json.dumps(two.scored[0].percentiles((1.0, 50.0)))
