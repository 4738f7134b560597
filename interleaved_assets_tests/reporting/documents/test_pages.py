"""Pages of shards that went through the stages, and of files."""

import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.demo.pdf_report import pdf_report
from interleaved_assets.demo.web_archive import web_archive
from interleaved_assets.io import read_tar_shard
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.reporting.documents.choice import Choice, NothingChosen
from interleaved_assets.reporting.documents.document import ShownDocument
from interleaved_assets.reporting.documents.files import file_documents
from interleaved_assets.reporting.documents.html import documents_html
from interleaved_assets.reporting.documents.pages import DocumentPage, shard_documents, stored_pages
from interleaved_assets.reporting.documents.text_scores import text_scores
from interleaved_assets.reporting.figures.facts import ImageKey
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import (
    blurred_image,
    document,
    good_shard,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.reporting.dataset.test_report import Page

pytestmark = pytest.mark.project(shards={"a": 1})

MAY_LOSE_ALL = "[publish]\nmax_lost_samples = 1.0\n"


def made(settings: Settings, key: str = "a", *, until: str | None = None) -> Settings:
    for name, stage in stage_dag(settings).items():
        take_through(stage, key, settings)
        if name == until:
            break
    return settings


def outline(page: DocumentPage) -> dict[str, list[str]]:
    """By document a word for each row: its text or modality, and the reason where it was dropped."""
    return {
        found.sample_id: [
            f"{item.text or item.modality}{f' -{item.drop.reason}' if item.drop else ''}" for item in found.items
        ]
        for found in page.documents
    }


def test_a_shard_as_it_reads_with_what_was_dropped_in_its_place(settings: Settings) -> None:
    page = shard_documents("a", made(settings), Choice())
    assert outline(page) == {
        "doc-1-a": ["one two three", "image", "four"],
        "doc-1-b": ["five six", "image", "image -sharpness_below"],
        "doc-1-c": ["image", "seven", "image", "eight nine"],
    }
    assert (page.how, dict(page.reasons)) == ("3 documents", {"sharpness_below": 1})
    dropped = page.documents[1].items[2]
    assert dropped.drop is not None
    assert (dropped.drop.measured, dropped.drop.rule, dropped.name) == (0.0, "keep ≥ 100", "doc-1-b.2.png")
    assert str(dropped.picture)[:20].count("\\xff\\xd8")  # the stored thumbnail, a JPEG
    shown = Page(documents_html(page))
    words = " ".join(shown.text.split())
    assert "dropped by filtered: sharpness_below · measured 0, keep ≥ 100" in words
    assert "images kept 4 of 5 · 80.0 % · 1 dropped" in words
    assert "interleaved drops --shard a" in words
    assert len([tag for tag, _ in shown.elements if tag == "img"]) == 5


def test_previews_are_larger_than_thumbnails_and_serve_where_none_are_stored(tmp_path: Path) -> None:
    write_shard(tmp_path / "raw/a.tar", {"d": document("one", sharp_image(1, 600, 400), b"no image")})
    text = '[scoring]\nscorers = ["sharpness", "qr"]\n[selection]\non_score_error = "drop_row"\n'
    settings = project(tmp_path, f"{text}{MAY_LOSE_ALL}")
    made(settings)
    assert [item.picture for item in shard_documents("a", settings, Choice()).documents[0].items] == [None] * 3
    _, image, broken = shard_documents("a", settings, Choice(), with_previews=True).documents[0].items
    assert (image.picture or b"")[8:12] == b"WEBP"
    assert (broken.picture, broken.drop and broken.drop.reason) == (None, "undecodable_image")
    words = " ".join(Page(documents_html(shard_documents("a", settings, Choice()))).text.split())
    assert "dropped by filtered: undecodable_image · no image format that is known" in words


def test_before_scores_and_selection_the_documents_are_there(settings: Settings) -> None:
    page = shard_documents("a", made(settings, until="normalized"), Choice())
    assert [item.scores for item in page.documents[0].items] == [(), (), ()]
    assert page.reasons == {}


def test_positions_that_selection_renumbered_are_those_of_the_document(tmp_path: Path) -> None:
    body = document(blurred_image(), "one", sharp_image(1), "two", sharp_image(2))
    write_shard(tmp_path / "raw/a.tar", {"d": body})
    with tarfile.open(tmp_path / "raw/a.tar") as whole, tarfile.open(tmp_path / "less.tar", "w") as less:
        for member in whole.getmembers()[:-1]:
            less.addfile(member, whole.extractfile(member))
    (tmp_path / "less.tar").replace(tmp_path / "raw/a.tar")
    text = '[errors]\non_materialize_error = "{}"\n[selection]\nreindex_positions = true\non_score_error = "warn"\n'
    text += MAY_LOSE_ALL
    warned = project(tmp_path, text.format("warn"))
    for name in stages_before("final_tars"):
        take_through(stage_dag(warned)[name], "a", warned)
    strict = project(tmp_path, text.format("drop_row"))
    record = take_through(stage_dag(strict)["final_tars"], "a", strict).record
    assert record.dropped == {"missing_member": 1}
    page = shard_documents("a", strict, Choice())
    assert outline(page) == {"d": ["image -sharpness_below", "one", "image", "two", "image -missing_member"]}


def test_an_empty_shard_and_one_that_lost_everything(tmp_path: Path) -> None:
    write_shard(tmp_path / "raw/a.tar", {})
    write_shard(tmp_path / "raw/b.tar", {"d": document("one", sharp_image(1)), "e": document("two", sharp_image(2))})
    settings = project(tmp_path, "[selection]\nmin_ratio = 1000\n")
    empty = shard_documents("a", made(settings), Choice())
    assert "There is no document to show." in documents_html(empty)
    lost = shard_documents("b", made(settings, "b"), Choice())
    assert [found.is_gone for found in lost.documents] == [True, True]
    words = " ".join(Page(documents_html(lost)).text.split())
    assert words.count("dropped by filtered: ratio_below · measured 1, keep ≥ 1000") == 2
    assert "rows kept 0 of 6" in words


def test_what_cannot_be_shown_is_said(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="shard nobody: there are no normalized rows to show"):
        shard_documents("nobody", settings, Choice())
    made(settings)
    with pytest.raises(NothingChosen, match="shard a lost no row for 'qr_above'; its reasons: sharpness_below"):
        shard_documents("a", settings, Choice(reasons=("qr_above",)))
    (tmp_path / "out/image_scores/a.parquet").unlink()
    assert "1 row" not in documents_html(shard_documents("a", settings, Choice()))


def test_pages_are_listed_with_links_to_them(settings: Settings, tmp_path: Path) -> None:
    assert stored_pages(settings.storage) == {}
    for name in ("a", "web/b%2C#"):
        file = tmp_path / f"out/pages/{name}.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    assert stored_pages(settings.storage) == {"a": "pages/a.html", "web/b%2C#": "pages/web/b%252C%23.html"}


def test_a_tar_and_a_parquet_file_need_no_project(settings: Settings, tmp_path: Path) -> None:
    made(settings)
    expected = {
        "doc-1-a": ["one two three", "image", "four"],
        "doc-1-b": ["five six", "image", "image"],
        "doc-1-c": ["image", "seven", "image", "eight nine"],
    }
    for file in ("raw/a.tar", "out/normalized/a.parquet"):
        page = file_documents(str(tmp_path / file), Choice(), settings)
        assert outline(page) == expected
        blurred = page.documents[1].items[2]
        values = {score.name: score.value for score in blurred.scores}
        assert values == {"sharpness": 0.0, "sharpness_256": 0.0, "qr": 0.0}
        assert {score.passes for score in blurred.scores} == {None}  # of no project, so without bounds
        assert blurred.picture is not None
    kept = file_documents(str(tmp_path / "out/filtered/a.parquet"), Choice(2), settings)
    assert kept.how == "2 of 3 documents: 2 spread evenly"


def test_rows_without_bytes_get_them_from_their_locators(tmp_path: Path) -> None:
    tar = good_shard(tmp_path / "a.tar")
    [rows] = read_tar_shard(str(tar))
    pq.write_table(rows, tmp_path / "lazy.parquet")
    page = file_documents(str(tmp_path / "lazy.parquet"), Choice(sample_ids=("doc-0-c",)), project(tmp_path))
    assert [bool(item.picture) for item in page.documents[0].items] == [True, False, True, False]


def test_images_of_a_web_archive_and_of_a_pdf_file_are_named_by_url_and_page(tmp_path: Path) -> None:
    settings = project(tmp_path, 'image_bytes = "referenced"\n')
    rng = np.random.default_rng(0)
    (tmp_path / "raw/a.warc.gz").write_bytes(web_archive(rng))
    (tmp_path / "raw/b.pdf").write_bytes(pdf_report(rng))
    archive = shard_documents("a.warc.gz", made(settings, "a.warc.gz", until="normalized"), Choice())
    names = [item.name for item in archive.documents[0].items if item.modality == "image"]
    assert names == [f"https://example.org/news/000-{number}.jpg" for number in range(2)]
    report = shard_documents("b.pdf", made(settings, "b.pdf", until="normalized"), Choice())
    assert [item.name for item in report.documents[0].items if item.modality == "image"][:2] == ["page 1", "page 2"]


def test_a_file_is_read_by_its_content_and_with_the_limits_of_the_settings(settings: Settings, tmp_path: Path) -> None:
    made(settings)
    renamed = (tmp_path / "out/normalized/a.parquet").rename(tmp_path / "rows")
    assert file_documents(str(renamed), Choice(), settings).how == "3 documents"
    limits = settings.limits.model_copy(update={"max_member_bytes": 1024})
    small = settings.model_copy(update={"limits": limits})
    documents = file_documents(str(tmp_path / "raw/a.tar"), Choice(), small).documents
    images = [item for found in documents for item in found.items if item.modality == "image"]
    assert {str(item.error).partition(":")[0] for item in images if not item.picture} == {"member_too_large"}


def test_files_that_are_no_shards(tmp_path: Path) -> None:
    settings = project(tmp_path)
    (tmp_path / "a.tar").write_bytes(b"no tar" * 200)
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    for name, error, message in (
        ("a.tar", ShardError, "is not a tar"),
        ("a.parquet", ShardError, "is not a sound Parquet file"),
        ("b.parquet", ShardError, "is not interleaved Parquet"),
        ("gone.tar", StorageError, "No such file"),
    ):
        with pytest.raises(error, match=message):
            file_documents(str(tmp_path / name), Choice(), settings)
    with pytest.raises(NothingChosen, match="a file has no ledger of dropped rows"):
        file_documents(str(good_shard(tmp_path / "c.tar")), Choice(reasons=("qr_above",)), settings)
    with pytest.raises(NothingChosen, match="has no document 'x'; it has 3 documents"):
        file_documents(str(tmp_path / "c.tar"), Choice(sample_ids=("x",)), settings)
    empty = write_shard(tmp_path / "empty.tar", {})
    assert file_documents(str(empty), Choice(), settings).documents == []


def test_scores_of_documents_and_texts_are_shown_beside_those_of_images(tmp_path: Path) -> None:
    body = document("one two three", sharp_image(1), "four", language="en")
    other = document("No {braces} here, no {braces} at all", sharp_image(2), language="de")
    write_shard(tmp_path / "raw/a.tar", {"d": body, "e": other})
    text = '[documents]\nscorers = ["characters"]\n[selection]\ndocument.curly_braces = { max = 1 }\n'
    text += f'text.words = {{ min = 2 }}\nown.spoken = {{ field = "language", in = ["en"] }}\n{MAY_LOSE_ALL}'
    settings = project(tmp_path, text)
    page = shard_documents("a", made(settings), Choice())
    first, second = page.documents
    found = [[(score.name, score.value, score.passes) for score in item.scores] for item in first.items]
    assert found[0] == [("text_words", 3, True)]
    assert found[2] == [("text_words", 1, False)]
    assert {name for name, *_ in found[1]} >= {"sharpness", "qr"}
    judged = [(score.name, score.value, score.passes) for score in second.scores][:2]
    assert judged == [("document_curly_braces", 2, False), ("document_words", 7, None)]
    assert second.measured["curly_braces"] == 2
    assert second.measured["upper_case"] == pytest.approx(1 / 36, rel=1e-3)  # "N" of 36 characters
    shown = " ".join(Page(documents_html(page)).text.split())
    assert "one two threewords 3 " in shown
    assert "words of a text, lowest first" in shown
    assert "12 scores of the documentwords = 7 " in shown
    assert "curly_braces = 2" in shown


def test_a_language_is_shown_as_the_string_it_is(tmp_path: Path) -> None:
    documents = pa.table(
        {
            "sample_id": ["a", "a", "b"],
            "position": pa.array([-1, 0, -1], pa.int32()),
            "language": pa.array(["en", "de", None]),
            "score_error": pa.nulls(3, pa.string()),
        }
    )
    bounds = SelectionSettings.model_validate(
        {"document": {"language": {"in": ["de", "fr"]}}, "text": {"language": {"not_in": ["en"]}}}
    )
    found = text_scores(documents, ["a", "b"], bounds)
    (of_document,) = found.judged[ImageKey("a", -1)]
    assert (of_document.label, of_document.said, of_document.passes) == ("language", "en", False)
    assert of_document.rule == "document_language: en, keep de, fr"
    (of_text,) = found.judged[ImageKey("a", 0)]
    assert (of_text.said, of_text.passes, of_text.rule) == ("de", True, "text_language: de, drop en")
    assert ImageKey("b", -1) not in found.judged
    assert found.measured == {"a": {"language": "en"}, "b": {}}
    assert ShownDocument("a", (), {}, (of_document,)).extremes() == {}
    assert text_scores(None, ["a"], bounds) == ({}, {})
