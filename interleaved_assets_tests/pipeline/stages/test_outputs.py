from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES, stage_dag
from interleaved_assets.pipeline.stages.names import CLIP_SCORES, IMAGE_SCORES
from interleaved_assets.pipeline.stages.outputs import find_scores_of, read_ledgers, read_scores
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import ShardPaths
from interleaved_assets_tests.documents import project, stages_before
from interleaved_assets_tests.projects import take_all

pytestmark = pytest.mark.project(shards={"cc/a": 0})

SCORES = ["width", "height", "aspect_ratio", "sharpness", "qr_area_ratio"]


def paths(settings: Settings, key: str = "cc/a") -> ShardPaths:
    return settings.storage.shard(key)


def test_thumbnails_are_read_only_on_request(settings: Settings) -> None:
    for name in stages_before("document_scores"):
        take_through(stage_dag(settings)[name], "cc/a", settings)
    scores = read_scores(paths(settings))
    assert set(SCORES) < set(scores.column_names)
    assert "thumbnail" not in scores.column_names
    assert scores["position"].to_pylist() == [1, 1, 2, 0, 2]
    with_pictures = find_scores_of(IMAGE_SCORES, paths(settings), thumbnails=True)
    assert with_pictures is not None
    assert with_pictures.drop_columns(["thumbnail"]) == scores
    assert all(with_pictures["thumbnail"].to_pylist())


def test_clip_scores_are_joined_if_clip_is_on_and_has_run(settings: Settings, tmp_path: Path) -> None:
    for name in stages_before("document_scores"):
        take_through(stage_dag(settings)[name], "cc/a", settings)
    cheap = read_scores(paths(settings))
    clip = cheap.select(["sample_id", "position"]).slice(0, 4)
    clip = clip.append_column("clip_score", pa.array([0.1, 0.2, 0.3, 0.4])).append_column(
        "embedding", pa.array([[1.0, 0.0]] * 4)
    )
    on = project(tmp_path, "[clip]\nenabled = true\n")
    assert read_scores(paths(on), [CLIP_SCORES]) == cheap  # on, but has not run
    (tmp_path / "out" / "clip_scores" / "cc").mkdir(parents=True)
    pq.write_table(clip, paths(on).output("clip_scores"))
    assert read_scores(paths(settings)) == cheap  # has run, but is off
    both = read_scores(paths(on), [CLIP_SCORES])
    assert both.column_names == [*cheap.column_names, "clip_score"]
    assert both["clip_score"].to_pylist() == [0.1, 0.2, 0.3, 0.4, None]
    Path(paths(on).output("clip_scores")).write_bytes(b"PAR1")
    with pytest.raises(ShardError, match=r"shard cc/a: .*clip_scores/cc/a\.parquet .*materialize clip_scores again"):
        read_scores(paths(on), [CLIP_SCORES])


def test_a_missing_score_table_is_named(settings: Settings) -> None:
    with pytest.raises(ShardError, match=r"shard cc/a: .*image_scores/cc/a\.parquet is missing: materialize image_s"):
        read_scores(paths(settings))


def test_ledgers_of_several_stages_are_concatenated(settings: Settings) -> None:
    assert read_ledgers(paths(settings), LEDGER_STAGES).num_rows == 0
    take_all(settings, "cc/a")
    ledger = read_ledgers(paths(settings), LEDGER_STAGES)
    assert ledger.select(["sample_id", "position", "stage", "reason"]).to_pylist() == [
        {"sample_id": "doc-0-b", "position": 2, "stage": "filtered", "reason": "sharpness_below"}
    ]
    assert read_ledgers(paths(settings), ["normalized", "final_tars"]).num_rows == 0
    Path(paths(settings).ledger("final_tars")).write_bytes(b"")
    with pytest.raises(ShardError, match=r"shard cc/a: .*dropped/final_tars/cc/a\.parquet .*materialize final_tars"):
        read_ledgers(paths(settings), LEDGER_STAGES)
