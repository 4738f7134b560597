"""What dropped rows held: from the rows that the stage before stored, images unread."""

from pathlib import Path

import pytest

from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.lineage.contents import dropped_contents, row_keys
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES, stage_dag
from interleaved_assets.pipeline.stages.outputs import read_ledgers
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import ROWS, document, sharp_image, stages_before, write_shard


def shard(settings: Settings, folder: Path) -> None:
    """One shard, whose document ``wordy`` is kept and whose other document is dropped as a whole."""
    few = document("two words", sharp_image(1), sharp_image(2), url="https://example.org/ü", year=2024)
    wordy = document("one two three four five six", sharp_image(3))
    write_shard(folder / "raw/a.tar", {"few": few, "wordy": wordy})
    for name in stages_before("final_tars"):
        take_through(stage_dag(settings)[name], "a", settings)


pytestmark = pytest.mark.project("[selection]\nmax_ratio = 0.5\n", finish=shard)


def test_texts_fields_and_names_of_images(settings: Settings) -> None:
    paths = settings.storage.shard("a")
    ledger = read_ledgers(paths, LEDGER_STAGES)
    assert dropped_contents(ledger, paths) == {
        ("few", -1, "metadata"): '{"url": "https://example.org/ü", "year": 2024}',
        ("few", 0, "text"): "two words",
        ("few", 1, "image"): "few.1.png",
        ("few", 2, "image"): "few.2.png",
    }
    assert set(row_keys(ledger)) == set(dropped_contents(ledger, paths))
    assert dropped_contents(ledger.slice(1, 1), paths) == {("few", 0, "text"): "two words"}
    assert dropped_contents(ledger.slice(0, 0), paths) == {}


def test_a_deleted_output_has_no_contents_and_a_damaged_one_is_an_error(settings: Settings) -> None:
    paths = settings.storage.shard("a")
    ledger = read_ledgers(paths, LEDGER_STAGES)
    rows = Path(paths.output(ROWS))
    rows.write_bytes(rows.read_bytes()[:-40])
    with pytest.raises(ShardError, match="not a sound Parquet file"):
        dropped_contents(ledger, paths)
    rows.unlink()
    assert dropped_contents(ledger, paths) == {}
