"""Pictures of a shard: drawn once for each output and set of thresholds, and one small read from then on."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import dagster as dg
import pytest

from interleaved_assets.defs import shard_run
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.reporting.figures.drops import LONGEST_ID
from interleaved_assets.reporting.shard.report import REPORT_BYTES
from interleaved_assets.reporting.shard.stored_pictures import selection_pictures, store_pictures
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import blurred_image, document, good_shard, project, write_shard
from interleaved_assets_tests.projects import take_all
from interleaved_assets_tests.system_calls import files_opened, system_calls

pytestmark = pytest.mark.project(shards={"a": 1})


def shard_pictures(record: Record, settings: Settings) -> dict[str, dg.MetadataValue]:
    return shard_run.shard_pictures(record, store_pictures(record, settings), settings)


@pytest.fixture
def drawn() -> Iterator[list[str]]:
    """The pages that are put in place, which are drawn with the pictures."""
    pages: list[str] = []

    def see(event: str, path: str) -> None:
        if event == "os.rename" and "/out/pages/" in path:
            pages.append(path)

    with system_calls(see):
        yield pages


def test_drawn_once_for_each_output_and_set_of_thresholds(settings: Settings, drawn: list[str], tmp_path: Path) -> None:
    record = take_all(settings)["filtered"]
    first = shard_pictures(record, settings)
    assert shard_pictures(record, settings) == first
    assert len(drawn) == 1
    shard_pictures(record, project(tmp_path, "[selection]\nmin_sharpness = 5\n"))
    shard_pictures(record.model_copy(update={"data_version": "another"}), settings)
    assert len(drawn) == 3


def test_another_score_is_on_the_page_though_it_changes_no_row(settings: Settings, tmp_path: Path) -> None:
    page = tmp_path / "out/pages/a.html"
    before = take_all(settings)["filtered"]
    shard_pictures(before, settings)
    assert "stop_words" not in page.read_text()
    more = project(tmp_path, '[documents]\nscorers = ["words", "quality"]\n')
    record = take_all(more)["filtered"]
    assert record.data_version == before.data_version
    shard_pictures(record, more)
    assert "stop_words" in page.read_text()


@pytest.mark.parametrize(
    "damage", [b"", b"\0" * 400, b"{", b"[]", b'{"version": "x"}', b'{"version": "x", "report": ""}']
)
def test_damaged_stored_pictures_are_drawn_again(settings: Settings, drawn: list[str], damage: bytes) -> None:
    record = take_all(settings)["filtered"]
    first = shard_pictures(record, settings)
    kept = Path(settings.storage.shard("a").pictures("filtered"))
    kept.write_bytes(damage)
    assert shard_pictures(record, settings) == first
    assert shard_pictures(record, settings) == first
    assert len(drawn) == 2


def test_all_pictures_are_one_entry_beside_the_page(settings: Settings, tmp_path: Path) -> None:
    shown = shard_pictures(take_all(settings)["filtered"], settings)
    assert set(shown) == {"dropped_rows", "all_dropped_rows", "pictures", "page"}
    assert "data:image/webp" in str(shown["pictures"].value)
    assert (tmp_path / "out/pages/a.html").read_text().startswith("<!doctype html>")


def test_pictures_can_be_turned_off_and_on(settings: Settings, drawn: list[str], tmp_path: Path) -> None:
    record = take_all(settings)["filtered"]
    off = project(tmp_path, "[run]\npictures = false\n")
    assert set(shard_pictures(record, off)) == {"dropped_rows", "all_dropped_rows"}
    assert (drawn, (tmp_path / "out/pages").exists()) == ([], False)
    assert "pictures" in shard_pictures(record, settings)
    assert len(drawn) == 1
    # the outputs do not depend on it
    assert {name: stage.code_version(off) for name, stage in stage_dag(off).items()} == {
        name: stage.code_version(settings) for name, stage in stage_dag(settings).items()
    }


def test_stored_pictures_cost_one_read_and_no_parquet(settings: Settings) -> None:
    record = take_all(settings)["filtered"]
    shard_pictures(record, settings)
    with files_opened("") as opened:
        shard_pictures(record, settings)
    below = [path for path in opened if path.startswith(settings.storage.output_root)]
    assert below == [f"{settings.storage.output_root}/pictures/filtered/a.json"]


def test_pictures_of_a_shard(settings: Settings) -> None:
    take_all(settings)
    report, page = selection_pictures("a", settings)
    plots = unquote(page)
    # every score, also those without bounds
    for label in ("Sharpness (variance", "QR code area", "Images for each word", "Short side", "Aspect ratio"):
        assert label in plots
    assert "Aspect ratio" in unquote(report)
    assert "Not drawn" not in report
    assert "| filtered | sharpness\\_below | 1 |" in report
    # pictures of noise take more bytes than others: not all fit
    assert 1 <= report.count("data:image/webp") <= 5
    assert len(report.encode()) <= REPORT_BYTES
    assert page.count("data:image/jpeg") == 5
    assert 'alt="plots of the scores"' in page


def test_dropped_rows_are_a_table_with_the_command_for_all(settings: Settings, tmp_path: Path) -> None:
    made = take_all(settings)
    shown = shard_pictures(made["filtered"], settings)
    assert [record.data for record in shown["dropped_rows"].records] == [
        {
            "why": "sharpness 0 < 100",
            "sample": "doc-1-b",
            "position": 2,
            "modality": "image",
            "content or detail": "doc-1-b.2.png",
        }
    ]
    assert shown["all_dropped_rows"].value == "1 of 1 shown. All: interleaved drops --shard a"
    page = Path(str(shown["page"].value))
    assert page == tmp_path / "out/pages/a.html"
    assert "doc-1-b" in page.read_text()
    assert shard_pictures(made["normalized"], settings) == {}


def test_long_ids_are_cut_in_the_table_of_dropped_rows(tmp_path: Path) -> None:
    settings = project(tmp_path)
    ids = ["9f86d081884c7d659a2feaa0c55ad015", "9f86d081884c7d659a2feaa0c55ad016"]
    write_shard(tmp_path / "raw/a.tar", {one: document("one", blurred_image()) for one in ids})
    rows = shard_pictures(take_all(settings)["filtered"], settings)["dropped_rows"].records
    assert [row.data["sample"] for row in rows] == ["9f86d0818…a0c55ad015", "9f86d0818…a0c55ad016"]
    for row in rows:  # a longer word, such as the name of the image, would push the table out of the page
        assert str(row.data["content or detail"]).startswith("9f86d0818…")
        assert len(str(row.data["content or detail"])) == LONGEST_ID


def test_the_page_has_at_most_the_documents_of_its_setting_or_is_off(settings: Settings, tmp_path: Path) -> None:
    record = take_all(settings)["filtered"]
    assert Path(str(shard_pictures(record, settings)["page"].value)).read_text().count("<h2>") == 3
    fewer = project(tmp_path, "[pages]\nmax_documents = 1\n")
    page = Path(str(shard_pictures(record, fewer)["page"].value)).read_text()
    assert "1 of 3 documents: 1 with dropped rows" in page
    assert "page" not in shard_pictures(record, project(tmp_path, "[pages]\nenabled = false\n"))


def test_without_thumbnails_the_page_still_has_the_dropped_texts(tmp_path: Path) -> None:
    few = '[scoring]\nscorers = ["sharpness", "qr"]\n[selection]\nmax_ratio = 0.1\n'
    settings = project(tmp_path, few)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    take_all(settings)
    _, page = selection_pictures("a", settings)
    assert "one two three" in page
    assert "data:image/jpeg" not in page


def test_rows_dropped_for_errors_are_shown_where_they_were_dropped(settings: Settings, tmp_path: Path) -> None:
    lenient = project(tmp_path, '[errors]\non_materialize_error = "drop_row"\n')
    raw = tmp_path / "raw" / "a.tar"
    with tarfile.open(raw) as whole, tarfile.open(tmp_path / "less.tar", "w") as less:
        for member in whole.getmembers()[:-1]:
            less.addfile(member, whole.extractfile(member))
    (tmp_path / "less.tar").replace(raw)
    record = take_through(stage_dag(lenient)["normalized"], "a", lenient).record
    assert record.dropped == {"missing_member": 1}
    shown = shard_pictures(record, lenient)
    [row] = [record.data for record in shown["dropped_rows"].records]
    assert (row["why"], row["sample"], row["position"]) == ("missing_member", "doc-1-c", 2)
    assert str(row["content or detail"]).startswith("missing_member: ")
    assert set(shown) == {"dropped_rows", "all_dropped_rows"}
    assert sum(len(str(value.value)) for value in shown.values()) < 1_500
