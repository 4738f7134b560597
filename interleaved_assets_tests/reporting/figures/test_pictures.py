"""Thumbnails are made of what is shown: with the scores, or from the images when they are drawn."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages import image_scores
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.reporting.dataset.aggregate import Example
from interleaved_assets.reporting.dataset.examples import held_by
from interleaved_assets.reporting.documents.choice import Choice
from interleaved_assets.reporting.documents.pages import shard_documents
from interleaved_assets.reporting.figures.collect import shard_facts
from interleaved_assets.reporting.figures.facts import ImageKey, thumbnails_in
from interleaved_assets.reporting.figures.pictures import shown_thumbnails
from interleaved_assets.reporting.shard.stored_pictures import selection_pictures
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import blurred_image, document, project, sharp_image, stages_before, write_shard

SAMPLED = 4
BLURRED = "d05"


def ten_documents(settings: Settings, folder: Path) -> None:
    """Ten documents, of which one has a blurred image too."""
    documents = {f"d{at:02}": document("some words", sharp_image(at, 24, 16)) for at in range(10)}
    documents[BLURRED] = document("some words", sharp_image(5, 24, 16), blurred_image(width=24, height=16))
    write_shard(folder / "raw/a.tar", documents)


@pytest.fixture(
    autouse=True,
    params=[
        pytest.param(where, marks=pytest.mark.project(f'image_bytes = "{where}"\n', finish=ten_documents))
        for where in ("copied", "referenced")
    ],
)
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of the documents have thumbnails of all their images."""
    stand_in(monkeypatch, image_scores, "SHOWN_DOCUMENTS", SAMPLED)


def through(settings: Settings, stages: Iterable[str] = ()) -> None:
    dag = stage_dag(settings)
    for name in stages or dag:
        take_through(dag[name], "a", settings)


def with_thumbnails(folder: Path) -> list[tuple[str, int]]:
    rows = pq.read_table(folder / "out/image_scores/a.parquet").to_pylist()
    return [(row["sample_id"], row["position"]) for row in rows if row["thumbnail"] is not None]


def test_images_outside_a_bound_and_those_of_a_spread_sample_have_thumbnails(
    settings: Settings, tmp_path: Path
) -> None:
    through(settings, stages_before("document_scores"))
    assert with_thumbnails(tmp_path) == [("d00", 1), ("d03", 1), (BLURRED, 2), ("d06", 1), ("d09", 1)]


def test_a_sample_is_spread_over_all_batches(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through(settings, stages_before("document_scores"))
    whole = (tmp_path / "out/image_scores/a.parquet").read_bytes()
    (tmp_path / "out/records/image_scores/a.json").unlink()
    stand_in(monkeypatch, image_scores, "_BATCH_BYTES", 1)
    through(settings, ["image_scores"])
    assert (tmp_path / "out/image_scores/a.parquet").read_bytes() == whole


@pytest.mark.parametrize("bound", ["min_short_side = 17", "max_aspect_ratio = 1.4", "max_long_side = 23"])
def test_bounds_of_the_size_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    stand_in(monkeypatch, image_scores, "SHOWN_DOCUMENTS", 0)
    settings = project(tmp_path, f"[selection]\n{bound}\n")
    images = [sharp_image(1, 24, 16), sharp_image(2, 20, 20)]
    write_shard(tmp_path / "raw/a.tar", {"a": document(*images), "b": document("text")})
    through(settings, stages_before("document_scores"))
    assert with_thumbnails(tmp_path) == [("a", 0)]


def test_a_moved_bound_makes_no_scores_stale_and_what_it_drops_is_drawn(settings: Settings, tmp_path: Path) -> None:
    through(settings)
    stored = with_thumbnails(tmp_path)
    file = tmp_path / "interleaved.toml"
    file.write_text(f"{file.read_text()}[selection]\nmin_sharpness = 1e9\n")
    from interleaved_assets.settings import load_settings

    moved = load_settings(file)
    assert take_through(stage_dag(moved)["image_scores"], "a", moved).unchanged
    through(moved)
    assert with_thumbnails(tmp_path) == stored
    report, page = selection_pictures("a", moved)
    assert report.count("![picture](data:image/webp") == 11
    assert page.count("data:image/") >= 11


def test_a_page_without_drops_shows_documents_whose_pictures_are_stored(settings: Settings, tmp_path: Path) -> None:
    through(settings)
    page = shard_documents("a", settings, Choice(limit=5))
    shown = {document.sample_id: [item.picture is not None for item in document.items] for document in page.documents}
    assert list(shown) == [sample for sample, _ in with_thumbnails(tmp_path)] == ["d00", "d03", BLURRED, "d06", "d09"]
    assert sum(map(sum, shown.values())) == 6  # one of the document with a blurred image is made


def test_missing_pictures_are_made_and_equal_stored_ones(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    through(settings)
    paths, scores = settings.storage.shard("a"), shard_facts("a", settings).scores
    keys = [ImageKey(f"d{at:02}", 1) for at in range(10)]
    made = shown_thumbnails(keys, scores, paths, settings.storage)
    assert sorted(made) == keys
    (tmp_path / "out/records/image_scores/a.json").unlink()
    monkeypatch.undo()
    through(settings, ["image_scores"])
    all_stored = thumbnails_in(shard_facts("a", settings).scores)
    assert {key: all_stored[key] for key in keys} == made
    (tmp_path / "raw/a.tar").unlink()
    (tmp_path / "out/normalized/a.parquet").unlink()
    assert len(shown_thumbnails(keys, scores, paths, settings.storage)) == SAMPLED
    assert "shard a: 6 pictures are not drawn" in caplog.text


def test_examples_of_a_report_are_drawn(settings: Settings) -> None:
    through(settings)
    example = Example("a", "filtered", "d01", 1, "image", 1.0, 100.0, None)
    assert held_by([example], settings.storage)[example].thumbnail is not None
