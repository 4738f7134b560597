"""Metadata and tags of one shard's materialization."""

import hashlib
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from interleaved_assets.defs.metadata import shard_metadata, version_tags
from interleaved_assets.pipeline.execute import take_through
from interleaved_assets.pipeline.record import read_record
from interleaved_assets.pipeline.stage import StageOutcome
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import good_shard, project

NOT_NUMBERS = {
    "dagster/uri",
    "dagster/column_schema",
    "dagster/column_lineage",
    "output_sha256",
    "source",
    "source_version",
    "ledger",
    "record",
    "filters",
    "filters_without_scores",
    "rows_decided_by",
    "samples_over_max_tar_bytes",
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = project(tmp_path)
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    return settings


def outcomes(settings: Settings) -> dict[str, StageOutcome]:
    return {name: take_through(stage, "a", settings) for name, stage in stage_dag(settings).items()}


def of(settings: Settings, stage: str) -> dict[str, Any]:
    return shard_metadata(outcomes(settings)[stage], settings, {})


def test_counts_are_numbers(settings: Settings) -> None:
    for outcome in outcomes(settings).values():
        metadata = shard_metadata(outcome, settings, {})
        others = {name for name, value in metadata.items() if not isinstance(value, int | float)}
        assert others <= NOT_NUMBERS
        assert isinstance(metadata["seconds"], float)
        # what Dagster makes of each is what the UI plots
        event = dg.AssetMaterialization("x", metadata=metadata)
        assert isinstance(event.metadata["rows"], dg.IntMetadataValue)


def test_counts_of_the_selection(settings: Settings) -> None:
    metadata = of(settings, "filtered")
    expected = {
        "rows_in": 13,
        "rows": 12,
        "samples_in": 3,
        "samples": 3,
        "images_in": 5,
        "images": 4,
        "rows_dropped": 1,
        "dropped/sharpness_below": 1,
        "errors": 0,
        "dagster/partition_row_count": 12,
    }
    assert {name: metadata[name] for name in expected} == expected
    assert metadata["rows_keep_rate"] == round(12 / 13, 4)
    assert metadata["images_keep_rate"] == 0.8
    assert metadata["image_bytes"] > 0
    assert metadata["rows_decided_by"].startswith("image_scores.sharpness, image_scores.qr_area_ratio")
    scores = of(settings, "image_scores")
    assert {name: scores[name] for name in ("rows", "images_in", "images", "errors")} == dict.fromkeys(
        ("rows", "images_in", "images"), 5
    ) | {"errors": 0}
    assert not {"rows_in", "rows_keep_rate", "samples"} & set(scores)


def test_every_stage_leads_back_to_the_raw_shard(settings: Settings, tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "a.tar"
    for stage in stage_dag(settings):
        metadata = of(settings, stage)
        assert metadata["source"].value == str(raw)
        assert metadata["source_version"] == f"sha256:{hashlib.sha256(raw.read_bytes()).hexdigest()}"


def test_an_output_has_its_place_and_hash_and_the_record_those_of_all(settings: Settings) -> None:
    done = outcomes(settings)
    for stage, outcome in done.items():
        metadata = shard_metadata(outcome, settings, {})
        rows = outcome.record.outputs["rows"]
        assert (metadata["dagster/uri"], metadata["output_sha256"]) == (rows.uri, rows.sha256)
        assert hashlib.sha256(Path(rows.uri).read_bytes()).hexdigest() == rows.sha256
        assert metadata["output_bytes"] == Path(rows.uri).stat().st_size
        record = read_record(metadata["record"].value, {})
        assert record == outcome.record, stage


def test_schema_and_lineage_name_the_same_columns(settings: Settings) -> None:
    for stage in ("normalized", "image_scores", "filtered"):
        metadata = of(settings, stage)
        lineage = metadata["dagster/column_lineage"].deps_by_column
        assert list(lineage) == [column.name for column in metadata["dagster/column_schema"].columns]
    assert lineage["url"] == [dg.TableColumnDep(dg.AssetKey("normalized"), "url")]
    tars = of(settings, "final_tars")
    assert not {"dagster/column_lineage", "dagster/column_schema"} & set(tars)


def test_the_device_in_the_notes_of_a_model_is_shown(settings: Settings) -> None:
    outcome = outcomes(settings)["image_scores"]
    assert "device" not in shard_metadata(outcome, settings, {})
    record = outcome.record.model_copy(update={"notes": {"device": "NVIDIA H200"}})
    metadata = shard_metadata(StageOutcome(record, unchanged=False, seconds=1.25), settings, {})
    assert metadata["device"] == "NVIDIA H200"


def test_images_per_second_are_the_images_and_seconds_beside_it(settings: Settings) -> None:
    done = outcomes(settings)
    record = done["image_scores"].record
    metadata = shard_metadata(StageOutcome(record, unchanged=False, seconds=1.25), settings, {})
    assert (metadata["images"], metadata["seconds"], metadata["images_per_second"]) == (5, 1.25, 4.0)
    assert "images_per_second" not in shard_metadata(StageOutcome(record, unchanged=True, seconds=0.01), settings, {})
    assert metadata["mb_per_second"] == round(record.counts_in.image_bytes / 1e6 / 1.25, 2)


def test_tags_have_versions_and_events_of_inputs(settings: Settings) -> None:
    record = outcomes(settings)["filtered"].record
    tags = version_tags(record, "3-abc", {"normalized": 17})
    assert tags == {
        "dagster/data_version": record.data_version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": "3-abc",
        "dagster/input_data_version/normalized": record.inputs["normalized"],
        "dagster/input_data_version/image_scores": record.inputs["image_scores"],
        "dagster/input_event_pointer/normalized": "17",
        "dagster/input_event_pointer/image_scores": "NULL",
    }


def test_a_final_tar_that_is_split(tmp_path: Path) -> None:
    settings = project(tmp_path, "[final_tars]\nmax_samples_per_tar = 2\n")
    good_shard(tmp_path / "raw" / "a.tar", seed=1)
    metadata = of(settings, "final_tars")
    sizes = [path.stat().st_size for path in sorted((tmp_path / "out/tars").iterdir())]
    assert {name: metadata[name] for name in ("tars", "output_bytes", "smallest_tar_bytes", "largest_tar_bytes")} == {
        "tars": 2,
        "output_bytes": sum(sizes),
        "smallest_tar_bytes": min(sizes),
        "largest_tar_bytes": max(sizes),
    }
    assert metadata["dagster/uri"] == f"{tmp_path}/out/tars/a~{{00000..00001}}.tar"
    assert "output_sha256" not in metadata  # those of the parts are in the record
