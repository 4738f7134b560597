"""Recipes over a shard: what is dropped for which reason, and what is rewritten."""

import json
from pathlib import Path

import pyarrow.parquet as pq

from interleaved_assets.settings import load_settings
from interleaved_assets_tests.documents import document, sharp_image, write_shard
from interleaved_assets_tests.projects import take_all

PROSE = (
    "The old mill stands by the river, and people come to see how it grinds. It was built of stone in 1820 by two "
    "brothers who had seen such mills in the north. Write to mill@example.org if you want a tour of the house. The "
    "wheel turns with the water that the brook brings down from the hills, which have been bare for years."
)
FEW = "A mill that stands by the river, and that grinds."
SPAM = "Buy the best and cheap watches with us. " * 12
BRACES = "{ " + PROSE + " }"


def kept_and_dropped(folder: Path, recipe: str, more: str = "") -> tuple[list[str], set[tuple[str, str]]]:
    """The samples in the final tar, and the samples with a dropped document, each with the reason."""
    write_shard(
        folder / "raw/a.tar",
        {
            "good": document(PROSE, sharp_image(1, 300, 200)),
            "few": document(FEW, sharp_image(2, 300, 200)),
            "spam": document(SPAM, sharp_image(3, 300, 200)),
            "wide": document(PROSE.replace("old", "new"), sharp_image(4, 700, 200)),
            "braces": document(BRACES, sharp_image(5, 300, 200)),
        },
    )
    file = folder / "interleaved.toml"
    # the model of languages is an extra, and that of CLIP a download
    own = (
        f"[selection]\ndocument.language = {{}}\ndocument.language_probability = {{}}\n{more}[clip]\nenabled = false\n"
    )
    file.write_text(f'recipe = "{recipe}"\n{own}[storage]\nraw_root = "raw"\noutput_root = "out"\n')
    settings = load_settings(file)
    records = take_all(settings)
    paths = settings.storage.shard("a")
    kept = pq.read_table(paths.output("filtered"), columns=["sample_id"])["sample_id"].to_pylist()
    ledger = pq.read_table(paths.ledger("filtered")).to_pylist()
    assert records["final_tars"].counts_out.rows == len(kept)
    return sorted(set(kept)), {(row["sample_id"], row["reason"]) for row in ledger if row["reason"] != "sample_dropped"}


def test_nemotron_cc_mm(tmp_path: Path) -> None:
    kept, dropped = kept_and_dropped(tmp_path, "nemotron-cc-mm")
    assert kept == ["braces", "good"]
    assert {sample for sample, _ in dropped} == {"few", "spam", "wide"}
    assert {("few", "document_words_below"), ("wide", "aspect_above")} <= dropped
    assert any(sample == "spam" and reason.startswith("document_top_") for sample, reason in dropped)
    rows = pq.read_table(tmp_path / "out/filtered/a.parquet").to_pylist()
    assert sum("[EMAIL]" in (row["text_content"] or "") for row in rows) == 2
    record = json.loads((tmp_path / "out/records/rewritten/a.json").read_text())
    assert record["notes"] == {"rows_changed/redact_personal_data": 3}


def test_mmc4_takes_no_page_with_a_brace(tmp_path: Path) -> None:
    kept, dropped = kept_and_dropped(tmp_path, "mmc4")
    assert ("braces", "document_curly_braces_above") in dropped
    assert kept == ["few", "good", "spam"]
    assert not (tmp_path / "out/rewritten").exists()


def test_own_values_win_over_the_recipe(tmp_path: Path) -> None:
    own = "document.words = { min = 5 }\ndocument.curly_braces = { max = 0 }\nmax_aspect_ratio = 4\n"
    kept, dropped = kept_and_dropped(tmp_path, "nemotron-cc-mm", own)
    assert ("braces", "document_curly_braces_above") in dropped
    assert "wide" in kept
    assert ("few", "document_words_below") not in dropped
