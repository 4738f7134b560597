"""Image scores as a stage: the scores of known pictures, and images without a score."""

from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record, read_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import (
    ROWS,
    blurred_image,
    document,
    project,
    sharp_image,
    stages_before,
    write_shard,
)
from interleaved_assets_tests.pipeline.damage import accept_outputs


def with_rows(settings: Settings, key: str = "a") -> Record:
    """The record of the rows whose images are scored."""
    for stage in stages_before("image_scores"):
        record = take_through(stage_dag(settings)[stage], key, settings).record
    return record


def scored(settings: Settings, key: str = "a") -> tuple[Record, pa.Table]:
    with_rows(settings, key)
    record = take_through(stage_dag(settings)["image_scores"], key, settings).record
    return record, pq.read_table(record.outputs["rows"].uri)


def sharpness_of(png: bytes) -> float:
    return float(cv2.Laplacian(cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_COLOR), cv2.CV_64F).var())


def test_each_image_is_measured_in_the_order_of_the_rows(tmp_path: Path) -> None:
    settings = project(tmp_path)
    picture = sharp_image(3, width=80, height=40)
    write_shard(
        tmp_path / "raw" / "a.tar",
        {"one": document("text", picture, blurred_image()), "two": document(sharp_image(4), "text")},
    )
    record, scores = scored(settings)
    assert scores.select(["sample_id", "position", "width", "height", "aspect_ratio"]).to_pylist() == [
        {"sample_id": "one", "position": 1, "width": 80, "height": 40, "aspect_ratio": 2.0},
        {"sample_id": "one", "position": 2, "width": 64, "height": 48, "aspect_ratio": 64 / 48},
        {"sample_id": "two", "position": 0, "width": 64, "height": 48, "aspect_ratio": 64 / 48},
    ]
    assert scores["sharpness"].to_pylist() == pytest.approx([sharpness_of(picture), 0.0, sharpness_of(sharp_image(4))])
    assert scores["qr_area_ratio"].to_pylist() == [0.0, 0.0, 0.0]
    assert scores["score_error"].null_count == 3
    assert (record.counts_in.images, record.counts_in.samples, record.counts_out.rows) == (3, 2, 3)
    assert (record.errors, record.dropped) == ({}, {})
    assert record.columns == {field.name: str(field.type) for field in scores.schema}
    assert record.counts_in.image_bytes == len(picture) + len(blurred_image()) + len(sharp_image(4))


def test_an_image_that_cannot_be_measured_has_a_reason_and_no_score(tmp_path: Path) -> None:
    settings = project(tmp_path, '[errors]\non_materialize_error = "warn"\n')
    fields, images = document("text", b"no image at all", sharp_image(1))
    write_shard(tmp_path / "raw" / "a.tar", {"one": (fields, images), "two": document("text", sharp_image(2))})
    rows = normalized_with_a_missing_image(settings)
    record, scores = scored_from(settings, rows)
    assert scores["sharpness"].is_null().to_pylist() == [True, False, True]
    first, second, third = scores["score_error"].to_pylist()
    assert first.startswith("undecodable_image: ")
    assert second is None
    assert third == "missing_member: it is gone"  # carried over from normalization
    assert record.errors == {"undecodable_image": 1, "missing_member": 1}
    assert record.counts_out.rows == 3


def normalized_with_a_missing_image(settings: Settings) -> str:
    """The shard's rows, the last image of which could not be fetched."""
    record = with_rows(settings)
    uri = record.outputs["rows"].uri
    table = pq.read_table(uri)
    last = table.num_rows - 1
    content = table["binary_content"].to_pylist()
    errors = table["materialize_error"].to_pylist()
    content[last], errors[last] = None, "missing_member: it is gone"
    for name, values in {"binary_content": content, "materialize_error": errors}.items():
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), pa.array(values, table.schema.field(name).type))
    pq.write_table(table, uri)
    accept_outputs(settings, ROWS)
    return uri


def scored_from(settings: Settings, uri: str) -> tuple[Record, pa.Table]:
    assert Path(uri).exists()
    record = take_through(stage_dag(settings)["image_scores"], "a", settings).record
    return record, pq.read_table(record.outputs["rows"].uri)


@pytest.mark.parametrize("documents", [{}, {"one": document("only", "texts")}], ids=["no rows", "no images"])
def test_a_shard_without_images_has_an_empty_table_with_all_columns(tmp_path: Path, documents: dict) -> None:
    settings = project(tmp_path)
    write_shard(tmp_path / "raw" / "a.tar", documents)
    write_shard(tmp_path / "raw" / "b.tar", {"one": document("text", sharp_image(1))})
    record, scores = scored(settings)
    assert scores.num_rows == record.counts_out.rows == record.counts_in.images == 0
    assert scores.schema == scored(settings, "b")[1].schema


def test_the_batch_size_does_not_change_the_scores(tmp_path: Path) -> None:
    documents = {f"doc-{number:02}": document("text", sharp_image(number, 400, 300)) for number in range(8)}
    settings = project(tmp_path)
    write_shard(tmp_path / "raw" / "a.tar", documents)
    whole = scored(settings)[0]
    Path(settings.storage.shard("a").record("image_scores")).unlink()
    small = project(tmp_path, "[run]\nmax_batch_bytes = 1048576\n")  # three pictures a batch
    assert sum(len(sharp_image(number, 400, 300)) for number in range(8)) > 2 * 1048576
    again = scored(small)[0]
    differ = {"outputs": {}, "seconds": 0.0}
    assert again.model_copy(update=differ) == whole.model_copy(update=differ)
    assert again.outputs["rows"].content == whole.outputs["rows"].content


def test_only_scoring_settings_make_image_scores_stale(tmp_path: Path) -> None:
    write_shard(tmp_path / "raw" / "a.tar", {"one": document("text", sharp_image(1))})
    first = scored(project(tmp_path))[0]
    other = project(tmp_path, "[selection]\nmin_sharpness = 7\n[run]\nmax_batch_bytes = 2097152\n")
    assert take_through(stage_dag(other)["image_scores"], "a", other).unchanged
    fewer = project(tmp_path, '[scoring]\nscorers = ["sharpness"]\n[selection]\norder = ["sharpness"]\n')
    again = take_through(stage_dag(fewer)["image_scores"], "a", fewer)
    assert not again.unchanged
    assert "qr_area_ratio" in first.columns
    assert "qr_area_ratio" not in again.record.columns


def test_rows_that_are_missing_or_damaged_are_named_and_nothing_is_recorded(tmp_path: Path) -> None:
    settings = project(tmp_path)
    write_shard(tmp_path / "raw" / "a.tar", {"one": document("text", sharp_image(1))})
    with pytest.raises(ShardError, match=f"shard a: image_scores needs {ROWS}, which has not been materialized"):
        take_through(stage_dag(settings)["image_scores"], "a", settings)
    rows = Path(with_rows(settings).outputs["rows"].uri)
    rows.write_bytes(b"PAR1")
    accept_outputs(settings, ROWS)
    with pytest.raises(ShardError, match=rf"{ROWS}/a\.parquet is not a sound Parquet file"):
        take_through(stage_dag(settings)["image_scores"], "a", settings)
    rows.unlink()
    with pytest.raises(ShardError, match=rf"image_scores needs {ROWS}, whose outputs are not .* they were deleted"):
        take_through(stage_dag(settings)["image_scores"], "a", settings)
    uri = settings.storage.shard("a").record("image_scores")
    assert read_record(uri, {}) is None
    assert not (tmp_path / "out" / "image_scores" / "a.parquet").exists()
