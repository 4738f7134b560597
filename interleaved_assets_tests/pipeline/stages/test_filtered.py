"""Selection as a stage: which rows it keeps, why it drops the others, and its errors."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from interleaved_assets.io.parquet.reader import open_rows
from interleaved_assets.model.errors import OptionError, ScoreError, ShardError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record, read_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.pipeline.stages.filtered import deciding_tables
from interleaved_assets.reporting.figures.collect import shard_facts
from interleaved_assets.reporting.figures.measures import measures_of
from interleaved_assets.selection import SelectionSettings
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import ShardPaths
from interleaved_assets_tests.documents import (
    ROWS,
    blurred_image,
    document,
    good_shard,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.pipeline.damage import accept_outputs

STAGE = stage_dag(Settings())["filtered"]


def prepared(folder: Path, documents: dict, text: str = "") -> Settings:
    """A project with shard ``a`` scored."""
    settings = project(folder, text)
    write_shard(folder / "raw" / "a.tar", documents)
    for name in stages_before("filtered"):
        take_through(stage_dag(settings)[name], "a", settings)
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
    for name in stages_before("filtered"):
        take_through(stage_dag(settings)[name], "a", settings)
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
    assert set(record.inputs) == set(STAGE.inputs)
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
    with pytest.raises(ShardError, match=f"filtered needs {ROWS}"):
        run(settings)
    for name in stages_before("image_scores"):
        take_through(stage_dag(settings)[name], "a", settings)
    with pytest.raises(ShardError, match="filtered needs image_scores"):
        run(settings)
    for name in ("image_scores", "document_scores"):
        take_through(stage_dag(settings)[name], "a", settings)
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
    Path(paths(settings).output(ROWS)).write_bytes(b"PAR1")
    accept_outputs(settings, ROWS)
    with pytest.raises(ShardError, match=rf"{ROWS}/a\.parquet is not a sound Parquet file"):
        run(settings)


def test_only_selection_settings_make_filtered_stale(tmp_path: Path) -> None:
    settings = prepared(tmp_path, {"one": document("text", sharp_image(1), blurred_image())})
    run(settings)
    assert take_through(STAGE, "a", project(tmp_path, "[run]\nmax_batch_bytes = 1048576\n")).unchanged
    loose = project(tmp_path, "[selection]\nmin_sharpness = 0\n")
    assert take_through(stage_dag(settings)["image_scores"], "a", loose).unchanged
    assert run(loose)[0].dropped == {}
    assert json.loads(json.dumps(STAGE.settings(loose))) == run(loose)[0].settings


def test_the_decision_reads_no_text(tmp_path: Path) -> None:
    long = "word " * 80_000  # 400 kB
    documents = {f"doc-{number:02}": document(long, sharp_image(number, 8, 8), "two words") for number in range(10)}
    settings = prepared(tmp_path, documents, "[run]\nmax_batch_bytes = 1048576\n")
    stored = Path(paths(settings).output("normalized"))
    content = bytearray(stored.read_bytes())
    groups = pq.read_metadata(stored)
    for group in map(groups.row_group, range(groups.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in ("text_content", "binary_content"):
                first = column.dictionary_page_offset or column.data_page_offset
                content[first : first + column.total_compressed_size] = bytes(column.total_compressed_size)
    stored.write_bytes(content)
    with pytest.raises(OSError, match="Couldn't deserialize"):
        pq.read_table(stored, columns=["text_content"])
    with open_rows(paths(settings).output("normalized")) as rows_file:
        rows, scores, _ = deciding_tables(rows_file, paths(settings), (), (), 2**20)
    assert rows.column_names == ["sample_id", "position", "modality", "words"]
    assert rows["words"].to_pylist() == [None, 80_000, None, 2] * 10
    assert scores.num_rows == 10


def test_a_field_is_a_column_that_every_row_has(tmp_path: Path) -> None:
    text = '[selection.own.ids]\nfield = "sample_id"\nnot_in = ["a"]\n'
    settings = prepared(tmp_path, {"a": document("one", sharp_image(1)), "b": document("two", sharp_image(2))}, text)
    _, rows, ledger = run(settings)
    assert {sample_id for sample_id, _, _ in items(rows)} == {"b"}
    assert {(line["sample_id"], line["reason"], line["detail"]) for line in ledger} == {
        ("a", "ids_in", "field sample_id is a")
    }


def test_bounds_on_documents_texts_and_fields_are_decided_from_stored_scores(tmp_path: Path) -> None:
    documents = {
        "good": document("one two three", sharp_image(1), "four", stats={"copies": 1}),
        "copied": document("one two three", sharp_image(2), stats={"copies": 7}),
        "short": document("one", sharp_image(3), stats={"copies": 1}),
    }
    text = (
        "[selection]\ndocument.words.min = 2\ntext.words.min = 2\nmin_words = 1\n"
        'own.copies = { field = "stats.copies", max = 3 }\n'
    )
    settings = prepared(tmp_path, documents, text)
    record, rows, ledger = run(settings)
    assert set(items(rows)) == {("good", -1, "metadata"), ("good", 0, "text"), ("good", 1, "image")}
    dropped = {(row["sample_id"], row["reason"], row["measured"], row["threshold"]) for row in ledger}
    assert dropped == {
        ("good", "text_words_below", 1.0, 2.0),
        ("copied", "copies_above", 7.0, 3.0),
        ("short", "document_words_below", 1.0, 2.0),
    }
    assert record.notes["filters"] == "document_words, text_words, sharpness, qr, ratio, words, copies"
    stored = pq.read_table(record.outputs["samples"].uri).to_pylist()
    assert stored == [
        {"sample_id": "copied", "ratio": 1 / 3, "words": 3.0, "copies": 7.0},
        {"sample_id": "good", "ratio": 1 / 3, "words": 3.0, "copies": 1.0},
    ]
    sources = STAGE.decided_by(settings)
    assert ("document_scores", "words") in sources
    assert (ROWS, "stats.copies") in sources
    values = {}
    for measure in measures_of(settings.selection):
        found = shard_facts("a", settings).values_of(measure)
        values[measure.filter] = None if found is None else sorted(found.tolist())
    assert values["document_words"] == [1.0, 3.0, 4.0]
    assert values["text_words"] == [1.0, 1.0, 3.0, 3.0]
    assert values["words"] == [3.0, 3.0]
    assert values["copies"] == [1.0, 7.0]
    selection = measures_of(settings.selection)
    assert [(one.filter, one.unit, one.rule) for one in selection[:2]] == [
        ("document_words", "document", "keep ≥ 2"),
        ("text_words", "text", "keep ≥ 2"),
    ]


def test_a_field_that_no_document_has_is_told_with_similar_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = '[selection]\non_score_error = "warn"\nown.copies = { field = "stats.copis", max = 3 }\n'
    settings = prepared(tmp_path, {"a": document("one", sharp_image(1), stats={"copies": 4})}, text)
    run(settings)
    said = "no document has the field 'stats.copis'; did you mean stats.copies (selection.own)"
    assert [message for message in caplog.messages if message.endswith(said)]
    caplog.clear()
    run(project(tmp_path, text.replace("copis", "copies")))
    assert not [message for message in caplog.messages if "no document has" in message]


def test_numbers_of_fields_are_stored_for_the_reports(tmp_path: Path) -> None:
    text = (
        '[selection]\non_score_error = "drop_row"\nown.copies = { field = "stats.copies", max = 3 }\n'
        'own.tongue = { field = "tongue", in = ["en"] }\n[publish]\nmax_lost_samples = 1.0\n'
    )
    documents = {
        "a": document("one", sharp_image(1), stats={"copies": 4}, tongue="en"),
        "b": document("two", sharp_image(2), stats={"copies": 1}, tongue="en"),
        "c": document("three", sharp_image(3), tongue="en"),
    }
    settings = prepared(tmp_path, documents, text)
    record, _, ledger = run(settings)
    assert {(line["sample_id"], line["reason"]) for line in ledger} == {
        ("a", "copies_above"),
        ("c", "unscored"),
        ("c", "sample_dropped"),
    }
    stored = pq.read_table(record.outputs["samples"].uri)
    assert stored.column_names == ["sample_id", "ratio", "copies"]  # a string is no value of an axis
    assert stored.select(["sample_id", "copies"]).sort_by("sample_id").to_pylist() == [
        {"sample_id": "a", "copies": 4.0},
        {"sample_id": "b", "copies": 1.0},
        {"sample_id": "c", "copies": None},
    ]
    facts = shard_facts("a", settings)
    (copies,) = (one for one in measures_of(settings.selection) if one.filter == "copies")
    assert (copies.filter, copies.unit, copies.rule) == ("copies", "document", "keep ≤ 3")
    values = facts.values_of(copies)
    assert values is not None
    assert sorted(values[~np.isnan(values)].tolist()) == [1, 4]
