"""Which columns each column of a stage is made from."""

from pathlib import Path

import pytest

from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.pipeline.run.stage import SourceColumn
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.scoring.clip.samples import clip_schema
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import ROWS, document, project, sharp_image, write_shard
from interleaved_assets_tests.layouts import foreign_tar
from interleaved_assets_tests.projects import take_all

pytestmark = pytest.mark.project(shards={"a": 1})


def of(stage: str, *columns: str) -> tuple[SourceColumn, ...]:
    return tuple(SourceColumn(stage, column) for column in columns)


def lineage_of(record: Record, settings: Settings) -> dict[str, tuple[SourceColumn, ...]]:
    stage = stage_dag(settings)[record.stage]
    return {name: stage.made_from(name, settings) for name in record.columns}


def with_clip(settings: Settings) -> Settings:
    return settings.model_copy(update={"clip": settings.clip.model_copy(update={"enabled": True})})


def test_columns_of_the_row_model_come_from_the_documents_json(settings: Settings) -> None:
    lineage = lineage_of(take_all(settings)["normalized"], settings)
    assert lineage["sample_id"] == of("raw_shards", "__key__")
    assert lineage["position"] == lineage["modality"] == of("raw_shards", "texts", "images")
    assert lineage["text_content"] == of("raw_shards", "texts")
    assert lineage["binary_content"] == lineage["source_ref"] == of("raw_shards", "images")
    assert lineage["url"] == of("raw_shards", "url")


def test_lineage_of_images_with_texts_beside_them(tmp_path: Path) -> None:
    settings = project(tmp_path, '[reading]\nlayout = "images"\n')
    (tmp_path / "raw/a.tar").write_bytes(foreign_tar("img2dataset"))
    record = take_through(stage_dag(settings)["normalized"], "a", settings).record
    lineage = lineage_of(record, settings)
    assert lineage["text_content"] == of("raw_shards", "txt")
    assert lineage["position"] == of("raw_shards", "txt", "__key__")
    assert lineage["binary_content"] == lineage["sample_id"] == of("raw_shards", "__key__")
    assert lineage["caption"] == of("raw_shards", "caption")


def test_lineage_follows_the_layout_of_the_documents(tmp_path: Path) -> None:
    settings = project(
        tmp_path,
        '[reading]\nsample_id_field = "name"\ntexts_field = "words"\nimages_field = "tokens"\n'
        'image_member_field = "file"\n',
    )
    fields, _ = document("one", sharp_image(1), name="x", position=7)
    fields = {"words": fields.pop("texts"), "tokens": [None, None], **fields}
    del fields["images"]
    write_shard(tmp_path / "raw" / "a.tar", {"k": ({"images": [], **fields}, [])})
    lineage = lineage_of(take_through(stage_dag(settings)["normalized"], "a", settings).record, settings)
    assert lineage["sample_id"] == of("raw_shards", "name")
    assert lineage["text_content"] == of("raw_shards", "words")
    assert lineage["binary_content"] == of("raw_shards", "tokens", "file")
    assert lineage["position_"] == of("raw_shards", "position")  # renamed, since the row model has a position


def test_scores_come_from_the_bytes_of_the_images(settings: Settings) -> None:
    record = take_all(settings)["image_scores"]
    lineage = lineage_of(record, settings)
    assert set(lineage) == set(record.columns)
    assert lineage["sample_id"] == of(ROWS, "sample_id")
    assert lineage["sharpness"] == lineage["width"] == of(ROWS, "binary_content")
    assert lineage["score_error"] == of(ROWS, "binary_content", "materialize_error")


def test_clip_scores_come_from_images_and_texts(settings: Settings) -> None:
    columns = {field.name: str(field.type) for field in clip_schema(settings.clip, 8)}
    record = take_all(settings)["image_scores"].model_copy(update={"stage": "clip_scores", "columns": columns})
    lineage = lineage_of(record, with_clip(settings))
    assert lineage["position"] == of(ROWS, "position")
    assert lineage["clip_score"] == of(ROWS, "binary_content", "text_content")
    assert lineage["clip_error"] == of(ROWS, "binary_content", "text_content", "materialize_error")


def test_the_selection_keeps_columns_and_decides_by_scores(settings: Settings) -> None:
    found = take_all(settings)
    lineage = lineage_of(found["filtered"], settings)
    assert set(lineage) == set(found["normalized"].columns)
    assert all(sources == of(ROWS, name) for name, sources in lineage.items())
    # clip has a threshold by default, and is not applied while its stage is off
    assert stage_dag(settings)["filtered"].decided_by(settings) == (
        *of("image_scores", "sharpness", "qr_area_ratio"),
        *of(ROWS, "modality"),
        *of("document_scores", "words"),
    )
    *_, last = stage_dag(with_clip(settings))["filtered"].decided_by(with_clip(settings))
    assert last == SourceColumn("clip_scores", "clip_score")


def test_a_tar_has_no_columns(settings: Settings) -> None:
    record = take_all(settings)["final_tars"]
    assert lineage_of(record, settings) == {}
    assert stage_dag(settings)["final_tars"].decided_by(settings) == ()


def test_functions_decide_by_the_texts(settings: Settings) -> None:
    rewriting = settings.rewriting.model_copy(update={"functions": ("drop_boilerplate",)})
    changed = settings.model_copy(update={"rewriting": rewriting})
    assert stage_dag(changed)["rewritten"].decided_by(changed) == of(ROWS, "modality", "text_content")
