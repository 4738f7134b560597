from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.errors import OptionError, SettingsError
from interleaved_assets.model.schema import INTERLEAVED_SCHEMA
from interleaved_assets.pipeline.checks.every_document_scored import judge_documents_complete
from interleaved_assets.pipeline.run.check import Basis
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.scoring import Scorer, TextBatch, register_scorer, unregister_scorer
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import document, project, sharp_image, stages_before, write_shard


def made(settings: Settings) -> Record:
    for name in (*stages_before("image_scores"), "document_scores"):
        record = take_through(stage_dag(settings)[name], "a", settings).record
    return record


def test_one_row_for_each_document_and_each_text(tmp_path: Path) -> None:
    settings = project(tmp_path)
    documents = {"a": document("one two", sharp_image(1), "three\u00a0four\nfive"), "b": document(sharp_image(2))}
    write_shard(tmp_path / "raw/a.tar", documents)
    record = made(settings)
    assert pq.read_table(tmp_path / "out/document_scores/a.parquet").drop_columns(["score_error"]).to_pylist() == [
        {"sample_id": "a", "position": -1, "words": 5, "characters": 24, "images": 1}
        | {"images_per_word": 0.2, "texts": 2, "longest_text": 3},
        {"sample_id": "a", "position": 0, "words": 2, "characters": 7, "images": None}
        | {"images_per_word": None, "texts": None, "longest_text": None},
        {"sample_id": "a", "position": 2, "words": 3, "characters": 15, "images": None}
        | {"images_per_word": None, "texts": None, "longest_text": None},
        {"sample_id": "b", "position": -1, "words": 0, "characters": 0, "images": 1}
        | {"images_per_word": 1.0, "texts": 0, "longest_text": 0},
    ]
    assert (record.counts_in.samples, record.counts_in.texts, record.counts_out.rows) == (2, 2, 4)
    verdict = judge_documents_complete(record, Basis(settings, stage_dag(settings)["document_scores"]))
    assert (verdict.passed, verdict.summary) == (
        True,
        "4 rows for 2 documents and 2 texts, 0 of them with a reason instead",
    )
    silent = record.model_copy(update={"counted": {"rows_without_score_or_reason": 1}})
    assert not judge_documents_complete(silent, Basis(settings, stage_dag(settings)["document_scores"])).passed
    lacking = record.model_copy(update={"counts_out": record.counts_out.model_copy(update={"rows": 3})})
    assert not judge_documents_complete(lacking, Basis(settings, stage_dag(settings)["document_scores"])).passed


def test_only_settings_of_documents_make_the_scores_stale(tmp_path: Path) -> None:
    settings = project(tmp_path)
    write_shard(tmp_path / "raw/a.tar", {"a": document("one two", sharp_image(1))})
    made(settings)
    other = project(tmp_path, "[scoring]\nmax_pixels = 1000000\n[selection]\nmin_sharpness = 1\n")
    assert take_through(stage_dag(other)["document_scores"], "a", other).unchanged
    other = project(tmp_path, "[documents]\nscorers = []\n")
    assert not take_through(stage_dag(other)["document_scores"], "a", other).unchanged


def test_lists_of_words_are_found_from_the_settings_file(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("One\n\n two \n")
    settings = project(tmp_path, '[documents]\nscorers = ["obelics"]\nflagged_words = "words.txt"\n')
    assert settings.documents.flagged_words == str(tmp_path / "words.txt")
    write_shard(tmp_path / "raw/a.tar", {"a": document("one Two three four")})
    record = made(settings)
    assert pq.read_table(record.outputs["rows"].uri)["flagged_words"].to_pylist() == [0.5, 0.5]
    (tmp_path / "words.txt").write_text("one\n")  # another list is another score
    assert not take_through(stage_dag(settings)["document_scores"], "a", settings).unchanged
    (tmp_path / "words.txt").unlink()
    with pytest.raises(SettingsError, match=r"^documents\.flagged_words: .*words\.txt cannot be read as a list"):
        take_through(stage_dag(settings)["document_scores"], "a", settings)


def test_words_in_the_url_of_documents_drop_them(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text("casino\n")
    listed = '[documents]\nscorers = ["url"]\nurl_words = "urls.txt"\n[selection]\ndocument.url_words = { max = 0 }\n'
    settings = project(tmp_path, listed)
    documents = {
        "a": document("one two", url="https://casino.example"),
        "b": document("three", url="https://garden.example"),
        "c": document("four"),
    }
    write_shard(tmp_path / "raw/a.tar", documents)
    record = made(settings)
    scores = pq.read_table(record.outputs["rows"].uri)
    assert scores["url_words"].to_pylist() == [1, None, 0, None, 0, None]
    for name in ("image_scores", "filtered"):
        record = take_through(stage_dag(settings)[name], "a", settings).record
    ledger = pq.read_table(record.outputs["ledger"].uri).to_pylist()
    assert {(line["sample_id"], line["reason"], line["measured"]) for line in ledger} == {
        ("a", "document_url_words_above", 1.0)
    }


def test_a_shard_without_the_field_of_the_url_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "urls.txt").write_text("casino\n")
    settings = project(tmp_path, '[documents]\nscorers = ["url"]\nurl_words = "urls.txt"\nurl_field = "meta.link"\n')
    write_shard(tmp_path / "raw/a.tar", {"a": document("one", meta={"links": "https://casino.example"})})
    said = r"^documents\.url_field: shard a: no document has the field 'meta\.link'; did you mean meta\.links$"
    with pytest.raises(OptionError, match=said):
        made(settings)


def test_fields_and_files_of_a_plugin_are_read_and_versioned(tmp_path: Path) -> None:
    words = tmp_path / "mine.txt"
    words.write_text("open\n")

    def measure(batch: TextBatch) -> list[pa.Array]:
        allowed = {*words.read_text().split()}
        licences = batch.field("meta.licence")
        assert licences is not None
        return [batch.documents_only(np.array([one in allowed for one in licences.to_pylist()], dtype=np.int64))]

    mine = Scorer(
        "licence",
        {"allowed": "int64"},
        lambda _: measure,
        section="documents",
        fields=("meta.licence",),
        needs=lambda _: ("meta.licence",),
        files=(str(words),),
        of_documents=("allowed",),
    )
    register_scorer(mine)
    try:
        settings = project(tmp_path, '[documents]\nscorers = ["licence"]\n')
        stage = stage_dag(settings)["document_scores"]
        shard = {"a": document("x", meta={"licence": "open"}), "b": document("y", meta={"licence": "own"})}
        write_shard(tmp_path / "raw/a.tar", shard)
        scores = pq.read_table(made(settings).outputs["rows"].uri)
        assert scores["allowed"].to_pylist() == [1, None, 0, None]
        assert {one.column for one in stage.made_from("allowed", settings)} == {"modality", "meta"}
        assert take_through(stage, "a", settings).unchanged
        words.write_text("own\n")
        assert not take_through(stage, "a", settings).unchanged
        with pytest.raises(SettingsError, match=r"selection\.text\.allowed: it is a score of documents|text\.allowed"):
            project(tmp_path, "[selection]\ntext.allowed = { min = 1 }\n")
        write_shard(tmp_path / "raw/a.tar", {"a": document("x", meta={"license": "open"})})
        with pytest.raises(
            OptionError, match=r"^meta\.licence: shard a: no document has the field 'meta\.licence'; did"
        ):
            made(settings)
    finally:
        unregister_scorer("licence")


def test_a_text_that_was_not_read_has_its_reason_instead_of_scores(tmp_path: Path) -> None:
    settings = project(tmp_path, '[errors]\non_materialize_error = "warn"\n')
    rows = [
        {"sample_id": "a", "position": 0, "modality": "text", "text_content": "one two"},
        {"sample_id": "a", "position": 1, "modality": "text", "materialize_error": "missing_source: gone"},
    ]
    pq.write_table(pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA), tmp_path / "raw/a.parquet")
    for name in (*stages_before("image_scores"), "document_scores"):
        record = take_through(stage_dag(settings)[name], "a.parquet", settings).record
    scores = pq.read_table(record.outputs["rows"].uri).to_pylist()
    assert [row["words"] for row in scores] == [2, 2, None]
    assert [row["score_error"] for row in scores] == [None, None, "missing_source: gone"]
    assert sum(record.errors.values()) == 1
    assert judge_documents_complete(record, Basis(settings, stage_dag(settings)["document_scores"])).passed
