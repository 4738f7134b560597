"""Selection as a stage: which rows it keeps, why it drops the others, and its errors."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io.parquet import reader as parquet_reader
from interleaved_assets.model.errors import OptionError, ScoreError, ShardError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record, read_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.tasks.filtered import deciding_rows, deciding_tables
from interleaved_assets.selection import SelectionSettings
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import ShardPaths
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, sharp_image, write_shard
from interleaved_assets_tests.pipeline.damage import accept_outputs

STAGE = stage_dag(Settings())["filtered"]


def prepared(folder: Path, documents: dict, text: str = "") -> Settings:
    """A project with shard ``a`` scored."""
    settings = project(folder, text)
    write_shard(folder / "raw" / "a.tar", documents)
    for stage in (stage_dag(settings)["normalized"], stage_dag(settings)["image_scores"]):
        take_through(stage, "a", settings)
    return settings


def paths(settings: Settings) -> ShardPaths:
    return settings.storage.shard("a")


def run(settings: Settings) -> tuple[Record, pa.Table, list[dict]]:
    """The record, the rows that are kept, the ledger."""
    record = take_through(STAGE, "a", settings).record
    rows, ledger = (pq.read_table(record.outputs[role].uri) for role in ("rows", "ledger"))
    return record, rows, ledger.to_pylist()


def items(rows: pa.Table) -> list[tuple[str, int, str]]:
    return [(row["sample_id"], row["position"], row["modality"]) for row in rows.to_pylist()]


def test_a_blurred_image_is_dropped_and_the_other_rows_are_unchanged(tmp_path: Path) -> None:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar")
    for stage in (stage_dag(settings)["normalized"], stage_dag(settings)["image_scores"]):
        take_through(stage, "a", settings)
    record, rows, ledger = run(settings)
    before = pq.read_table(paths(settings).output("normalized"))
    gone = pc.and_(pc.equal(before["sample_id"], "doc-0-b"), pc.equal(before["position"], 2))
    assert rows == before.filter(pc.invert(gone))
    assert ledger == [
        {
            "sample_id": "doc-0-b",
            "position": 2,
            "modality": "image",
            "stage": "filtered",
            "reason": "sharpness_below",
            "measured": 0.0,
            "threshold": 100.0,
            "detail": None,
        }
    ]
    assert (record.counts_in.rows, record.counts_out.rows, record.dropped) == (13, 12, {"sharpness_below": 1})
    assert (record.counts_out.samples, record.counts_out.images, record.counts_out.texts) == (3, 4, 5)
    assert record.notes["filters"] == "sharpness, qr, ratio"
    assert record.notes["filters_without_scores"] == "clip"
    assert set(record.inputs) == {"normalized", "image_scores"}
    # images per word of each sample, after the blurred image is gone
    assert pq.read_table(record.outputs["samples"].uri)["ratio"].to_pylist() == [1 / 4, 1 / 2, 2 / 3]


def test_a_sample_without_content_is_dropped_with_its_metadata(tmp_path: Path) -> None:
    settings = prepared(tmp_path, {"one": document(blurred_image()), "two": document("text", sharp_image(1))})
    record, rows, ledger = run(settings)
    assert items(rows) == [("two", -1, "metadata"), ("two", 0, "text"), ("two", 1, "image")]
    assert [(row["sample_id"], row["position"], row["reason"]) for row in ledger] == [
        ("one", -1, "sample_dropped"),
        ("one", 0, "sharpness_below"),
    ]
    assert record.dropped == {"sample_dropped": 1, "sharpness_below": 1}
    assert record.counts_in.rows == record.counts_out.rows + len(ledger)


def test_positions_are_numbered_anew_only_on_request(tmp_path: Path) -> None:
    documents = {"one": document(blurred_image(), "text", sharp_image(1))}
    assert items(run(prepared(tmp_path, documents))[1])[1:] == [("one", 1, "text"), ("one", 2, "image")]
    anew = project(tmp_path, "[selection]\nreindex_positions = true\n")
    assert items(run(anew)[1])[1:] == [("one", 0, "text"), ("one", 1, "image")]


@pytest.mark.parametrize(
    ("policy", "left", "reasons"),
    [
        ("warn", ["one", "one", "one", "two", "two", "two"], []),
        ("drop_row", ["one", "one", "two", "two", "two"], ["undecodable_image"]),
        ("drop_sample", ["two", "two", "two"], ["sample_dropped", "sample_dropped", "undecodable_image"]),
    ],
)
def test_the_error_policy_applies_to_images_without_a_score(
    tmp_path: Path, policy: str, left: Sequence[str], reasons: Sequence[str]
) -> None:
    settings = prepared(
        tmp_path,
        {"one": document("text", b"no image"), "two": document("text", sharp_image(1))},
        f'[selection]\norder = ["sharpness"]\non_score_error = "{policy}"\n',
    )
    record, rows, ledger = run(settings)
    assert rows["sample_id"].to_pylist() == left
    assert sorted(row["reason"] for row in ledger) == sorted(reasons)
    assert record.errors == {"undecodable_image": 1}
    assert record.dropped == {reason: reasons.count(reason) for reason in reasons}


def test_policy_error_names_the_image_and_records_nothing(tmp_path: Path) -> None:
    settings = prepared(tmp_path, {"one": document("text", sharp_image(1), b"no image")})
    with pytest.raises(
        ScoreError, match=r"^a: sample 'one', image at position 2: no score for filter 'sharpness': undecodable_image"
    ):
        run(settings)
    uri = paths(settings).record("filtered")
    assert read_record(uri, {}) is None
    assert not list((tmp_path / "out").rglob("filtered/*.parquet"))


def test_a_row_without_an_entry_in_the_score_table_has_a_missing_score(tmp_path: Path) -> None:
    settings = prepared(tmp_path, {"one": document("text", sharp_image(1), sharp_image(2))})
    uri = paths(settings).output("image_scores")
    pq.write_table(pq.read_table(uri).slice(0, 1), uri)
    accept_outputs(settings, "image_scores")
    with pytest.raises(ScoreError, match=r"sample 'one', image at position 2: no score for filter '.*': unscored"):
        run(settings)


def test_a_filter_without_scores_is_noted(tmp_path: Path) -> None:
    settings = prepared(tmp_path, {"one": document("text", sharp_image(1))})
    settings = settings.model_copy(update={"selection": SelectionSettings(max_nsfw=0.5)})
    with pytest.raises(OptionError, match=r"filter 'nsfw' needs the score nsfw_score, .*turn on what measures it"):
        run(settings)


@pytest.mark.parametrize("documents", [{}, {"one": document("only", "texts")}], ids=["no rows", "no images"])
def test_a_shard_without_images_stays_as_it_is(tmp_path: Path, documents: dict) -> None:
    settings = prepared(tmp_path, documents)
    record, rows, ledger = run(settings)
    before = pq.read_table(paths(settings).output("normalized"))
    assert rows == before
    assert rows.schema == before.schema
    assert ledger == []
    assert record.dropped == {}
    assert record.counts_in == record.counts_out
    assert pq.read_table(record.outputs["samples"].uri)["ratio"].to_pylist() == [0.0] * len(documents)


def test_missing_and_damaged_inputs_are_named(tmp_path: Path) -> None:
    settings = project(tmp_path)
    write_shard(tmp_path / "raw" / "a.tar", {"one": document("text", sharp_image(1))})
    with pytest.raises(ShardError, match="filtered needs normalized"):
        run(settings)
    take_through(stage_dag(settings)["normalized"], "a", settings)
    with pytest.raises(ShardError, match="filtered needs image_scores"):
        run(settings)
    take_through(stage_dag(settings)["image_scores"], "a", settings)
    scores = Path(paths(settings).output("image_scores"))
    scores.write_bytes(scores.read_bytes()[:-50])
    with pytest.raises(
        ShardError, match=r"filtered needs image_scores, whose outputs are not those that its record na"
    ):
        run(settings)
    accept_outputs(settings, "image_scores")
    with pytest.raises(ShardError, match=r"shard a: .*image_scores/a\.parquet .*Delete it and materialize image_scor"):
        run(settings)
    scores.unlink()
    with pytest.raises(ShardError, match=r"shard a: .*: they were deleted or replaced, .* Materialize image_scores ag"):
        run(settings)
    take_through(stage_dag(settings)["image_scores"], "a", settings)  # as the message says
    Path(paths(settings).output("normalized")).write_bytes(b"PAR1")
    accept_outputs(settings, "normalized")
    with pytest.raises(ShardError, match=r"normalized/a\.parquet is not a sound Parquet file"):
        run(settings)


def test_only_selection_settings_make_filtered_stale(tmp_path: Path) -> None:
    settings = prepared(tmp_path, {"one": document("text", sharp_image(1), blurred_image())})
    run(settings)
    assert take_through(STAGE, "a", project(tmp_path, "[run]\nmax_batch_bytes = 1048576\n")).unchanged
    loose = project(tmp_path, "[selection]\nmin_sharpness = 0\n")
    assert take_through(stage_dag(settings)["image_scores"], "a", loose).unchanged
    assert run(loose)[0].dropped == {}
    assert json.loads(json.dumps(STAGE.settings(loose))) == run(loose)[0].settings


def test_texts_are_read_in_batches_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "word " * 80_000  # 400 kB
    documents = {f"doc-{number:02}": document(long, sharp_image(number, 8, 8), "two words") for number in range(10)}
    settings = prepared(tmp_path, documents, "[run]\nmax_batch_bytes = 1048576\n")
    sizes: list[int] = []
    whole_samples = parquet_reader.whole_samples

    def measured(tables, max_batch_bytes):
        for table in whole_samples(tables, max_batch_bytes):
            sizes.append(table.nbytes)
            yield table

    monkeypatch.setattr(parquet_reader, "whole_samples", measured)
    rows, scores = deciding_tables(paths(settings), (), 2**20)
    assert len(sizes) == 5  # two documents each
    assert max(sizes) <= 1048576
    assert rows.column_names == ["sample_id", "position", "modality", "words"]
    assert rows["words"].to_pylist() == [None, 80_000, None, 2] * 10
    assert scores.num_rows == 10
    assert deciding_rows(paths(settings).output("normalized"), {}) == rows.combine_chunks()
