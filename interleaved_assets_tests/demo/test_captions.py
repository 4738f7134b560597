"""The demo's point about CLIP: pictures with swapped captions go, those with their own stay."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.errors import SettingsError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.stage import ShardTask, StageOutcome
from interleaved_assets.pipeline.stages import clip_scores as score_clip
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import load_settings

pytestmark = pytest.mark.torch

PROJECT = Path(__file__).parents[2]
KEY = "crawl-2/captions-000"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, drawn: Callable[[str], Path]) -> dict[str, StageOutcome]:
    """The captions shard through the chain, under the project's own settings."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "data/raw" / KEY).parent.mkdir(parents=True)
    shutil.copy(drawn(f"{KEY}.tar"), folder / f"data/raw/{KEY}.tar")
    shutil.copytree(PROJECT / "data/models", folder / "data/models")
    shutil.copy(PROJECT / "interleaved.toml", folder)
    settings = load_settings(folder / "interleaved.toml")
    return {name: take_through(stage, KEY, settings) for name, stage in stage_dag(settings).items()}


def test_exactly_the_swapped_captions_are_dropped(outcomes: dict[str, StageOutcome]) -> None:
    rows = pq.read_table(outcomes["normalized"].record.outputs["rows"].uri)
    swapped = {
        (row["sample_id"], int(position))
        for row in rows.to_pylist()
        if row["demo_note"]
        for position in re.findall(r"at (\d+): swapped caption", row["demo_note"])
    }
    ledger = pq.read_table(outcomes["filtered"].record.outputs["ledger"].uri).to_pylist()
    assert len(swapped) == 14
    assert {(row["sample_id"], row["position"]) for row in ledger} == swapped
    assert {row["reason"] for row in ledger} == {"clip_below"}
    assert all(row["measured"] < row["threshold"] == 0.15 for row in ledger)
    assert outcomes["final_tars"].record.counts_out.images == 14


def test_the_record_has_model_device_and_speed_of_the_scores(outcomes: dict[str, StageOutcome]) -> None:
    notes = outcomes["clip_scores"].record.notes
    assert notes["model"] == "scenes-clip/scenes-clip.safetensors"
    assert notes["device"]
    assert notes["precision"]


def test_the_demos_model_is_refused_beside_other_shards_before_any_work(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "data/models", tmp_path / "data/models")
    shutil.copy(PROJECT / "interleaved.toml", tmp_path)
    (tmp_path / "data/raw/mint").mkdir(parents=True)
    (tmp_path / "data/raw/mint/pdf-000.tar").write_bytes(b"the demo's by its name")
    (tmp_path / "data/raw/mine.tar").write_bytes(b"")
    settings = load_settings(tmp_path / "interleaved.toml")

    def shards() -> Iterator[ShardTask]:
        raise AssertionError("a shard was asked for")
        yield

    with pytest.raises(SettingsError, match=r"clip\.allow_demo_model = true"):
        list(score_clip.score_together(shards(), settings))
