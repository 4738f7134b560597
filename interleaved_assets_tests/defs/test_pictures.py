"""Pictures of a shard: drawn once for each output and set of thresholds, and one small read from then on."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.defs import pictures as module
from interleaved_assets.defs.pictures import score_pictures, selection_pictures, shard_pictures
from interleaved_assets.pipeline.execute import take_through
from interleaved_assets.pipeline.record import Record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import good_shard, project

pytestmark = pytest.mark.real_plots
NONE = pa.nulls(2, pa.string())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    return settings


def records(settings: Settings) -> dict[str, Record]:
    return {name: take_through(stage, "a", settings).record for name, stage in stage_dag(settings).items()}


class Drawn:
    """Counts how often something was drawn."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, key: str, settings: Settings) -> Mapping[str, bytes | str]:
        self.times += 1
        return {"text": f"| {key} |", "plot": b"\x89PNG and so on", "sheet": b"\xff\xd8 JPEG"}


def test_drawn_once_for_each_output_and_set_of_thresholds(settings: Settings, tmp_path: Path) -> None:
    draw = Drawn()
    record = records(settings)["filtered"]
    first = shard_pictures(record, settings, draw)
    assert shard_pictures(record, settings, draw) == first
    assert draw.times == 1
    shard_pictures(record, project(tmp_path, "[selection]\nmin_sharpness = 5\n"), draw)
    shard_pictures(record.model_copy(update={"data_version": "another"}), settings, draw)
    assert draw.times == 3


@pytest.mark.parametrize("damage", [b"", b"\0" * 400, b"{", b"[]", b'{"version": "x"}'])
def test_damaged_stored_pictures_are_drawn_again(settings: Settings, damage: bytes) -> None:
    draw = Drawn()
    record = records(settings)["filtered"]
    first = shard_pictures(record, settings, draw)
    kept = Path(settings.storage.shard("a").pictures("filtered"))
    kept.write_bytes(damage)
    assert shard_pictures(record, settings, draw) == first
    assert shard_pictures(record, settings, draw) == first
    assert draw.times == 2


def test_text_stays_text_and_pictures_are_inlined(settings: Settings) -> None:
    shown = shard_pictures(records(settings)["filtered"], settings, Drawn())
    assert shown["text"].value == "| a |"
    assert shown["plot"].value.startswith("![plot](data:image/png;base64,")
    assert shown["sheet"].value.startswith("![sheet](data:image/jpeg;base64,")


def test_an_unchanged_shard_costs_one_read_and_no_parquet(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    record = records(settings)["filtered"]
    shard_pictures(record, settings, selection_pictures)
    read: list[str] = []
    real = module.read_small

    def counting(uri: str, options: Mapping[str, object] | None = None) -> bytes | None:
        read.append(uri)
        return real(uri, options)

    monkeypatch.setattr(module, "read_small", counting)
    for name in ("selection_pictures", "score_pictures", "read_scores_of", "shard_facts"):
        monkeypatch.setattr(module, name, pytest.fail)
    shard_pictures(record, settings, module.selection_pictures)
    assert read == [f"{settings.storage.output_root}/pictures/filtered/a.json"]


def test_pictures_of_a_shard(settings: Settings) -> None:
    records(settings)
    assert {"histogram_sharpness", "histogram_qr"} <= set(score_pictures("image_scores")("a", settings))
    shown = selection_pictures("a", settings)
    assert {"summary", "drops", "kept_and_dropped", "dropped_pictures", "kept_pictures"} <= set(shown)
    assert "sharpness\\_below" in str(shown["drops"])


def test_a_stage_that_measures_waits_for_no_other_to_be_drawn(settings: Settings, tmp_path: Path) -> None:
    records(settings)
    scores = pa.table(
        {
            "sample_id": ["x", "x"],
            "position": pa.array([0, 1], pa.int32()),
            "clip_score": [0.1, 0.3],
            "clip_error": NONE,
        }
    )
    (tmp_path / "out" / "clip_scores").mkdir()
    pq.write_table(scores, tmp_path / "out" / "clip_scores" / "a.parquet")
    (tmp_path / "out" / "image_scores" / "a.parquet").unlink()
    assert set(score_pictures("clip_scores")("a", settings)) == {"histogram_clip"}
