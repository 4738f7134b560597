"""Metadata and tags of one shard's materialization."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import xxhash

from interleaved_assets.defs.assets import definition_metadata
from interleaved_assets.defs.metadata import rounded, shard_metadata, version_tags
from interleaved_assets.defs.shard_run import shard_pictures
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import read_record
from interleaved_assets.pipeline.run.stage import StageOutcome
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.reporting.shard.stored_pictures import store_pictures
from interleaved_assets.settings import Settings
from interleaved_assets_tests.documents import good_shard, project, stages_before

pytestmark = pytest.mark.project(shards={"a": 1})

NOT_NUMBERS = {
    "dagster/uri",
    "passthrough_columns",
    "ledger",
    "record",
    "source",
    "filters_without_scores",
    "samples_over_max_tar_bytes",
}


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
        assert isinstance(event.metadata["dagster/partition_row_count"], dg.IntMetadataValue)


def test_counts_of_the_selection(settings: Settings) -> None:
    metadata = of(settings, "filtered")
    expected = {
        "rows_in": 13,
        "images_in": 5,
        "images": 4,
        "rows_dropped": 1,
        "dropped/sharpness_below": 1,
        "rows_keep_rate": round(12 / 13, 4),
        "images_keep_rate": 0.8,
        "dagster/partition_row_count": 12,
    }
    assert {name: metadata[name] for name in expected} == expected
    assert "errors" not in metadata
    scores = of(settings, "image_scores")
    assert scores["dagster/partition_row_count"] == 5
    assert not {"rows_in", "rows_keep_rate", "rows_dropped"} & set(scores)


def test_where_nothing_is_dropped_that_is_one_number(settings: Settings) -> None:
    metadata = of(settings, "final_tars")
    assert metadata["rows_dropped"] == 0
    assert not {"rows_in", "images_in", "rows_keep_rate", "ledger", "errors"} & set(metadata)


def test_every_stage_leads_back_to_the_raw_shard(settings: Settings, tmp_path: Path) -> None:
    raw = tmp_path / "raw" / "a.tar"
    for stage in stage_dag(settings):
        record = read_record(of(settings, stage)["record"].value, {})
        assert record is not None
        assert record.source is not None
        assert record.source.uri == str(raw)
        assert record.source.version == f"xxh3:{xxhash.xxh3_128_hexdigest(raw.read_bytes())}"


def test_an_output_has_its_place_and_the_record_its_hash_and_those_of_all(settings: Settings) -> None:
    done = outcomes(settings)
    for stage, outcome in done.items():
        metadata = shard_metadata(outcome, settings, {})
        rows = outcome.record.outputs["rows"]
        assert metadata["dagster/uri"] == rows.uri
        assert xxhash.xxh3_128_hexdigest(Path(rows.uri).read_bytes()) == rows.checksum
        assert metadata["output_bytes"] == Path(rows.uri).stat().st_size
        record = read_record(metadata["record"].value, {})
        assert record == outcome.record, stage


def test_columns_are_those_of_the_asset_and_passthrough_columns_those_of_the_shard(settings: Settings) -> None:
    done = outcomes(settings)
    for name in stages_before("final_tars"):
        metadata = definition_metadata(stage_dag(settings)[name], settings)
        columns = metadata["dagster/column_schema"].columns
        lineage = metadata["dagster/column_lineage"].deps_by_column
        assert list(lineage) == [column.name for column in columns]
        assert all(column.description for column in columns)
        found = done[name].record.columns
        assert {column.name: column.type for column in columns}.items() <= found.items()
        required = {column.name for column in columns if not column.constraints.nullable}
        assert required == set(done[name].record.required)
    assert lineage["text_content"] == [dg.TableColumnDep(dg.AssetKey("normalized"), "text_content")]
    assert metadata["rows_decided_by"].startswith("image_scores.sharpness, image_scores.qr_area_ratio")
    assert shard_metadata(done["normalized"], settings, {})["passthrough_columns"] == "url: string, year: int64"
    assert definition_metadata(stage_dag(settings)["final_tars"], settings) == {}


def test_embeddings_have_no_width_before_a_model_is_loaded(tmp_path: Path) -> None:
    settings = project(tmp_path, "[clip]\nenabled = true\nkeep_embeddings = true\n")
    schema = definition_metadata(stage_dag(settings)["clip_scores"], settings)["dagster/column_schema"]
    assert {column.name: column.type for column in schema.columns}["embedding"] == "fixed_size_list<item: halffloat>[*]"
    assert all(column.description for column in schema.columns)


def test_every_scorer_of_the_package_has_its_columns_described(tmp_path: Path) -> None:
    own = '"sharpness", "sharpness_grey", "sharpness_256", "qr", "nsfw", "thumbnail"'
    settings = project(tmp_path, f"[scoring]\nscorers = [{own}]\n")
    schema = definition_metadata(stage_dag(settings)["image_scores"], settings)["dagster/column_schema"]
    assert len(schema.columns) == 12
    assert {column.name for column in schema.columns if not column.description} == set()


def test_the_device_in_the_notes_of_a_model_is_shown(settings: Settings) -> None:
    outcome = outcomes(settings)["image_scores"]
    assert "device" not in shard_metadata(outcome, settings, {})
    record = outcome.record.model_copy(update={"notes": {"device": "NVIDIA H200"}})
    metadata = shard_metadata(StageOutcome(record, unchanged=False, seconds=1.25), settings, {})
    assert metadata["device"] == "NVIDIA H200"


def test_images_per_second_are_the_images_and_seconds_beside_it(settings: Settings) -> None:
    done = outcomes(settings)
    record = done["image_scores"].record.model_copy(update={"seconds": 1.25})
    metadata = shard_metadata(StageOutcome(record, unchanged=True, seconds=0.01), settings, {})
    assert record.counts_in.images == 5
    assert (metadata["seconds"], metadata["images_per_second"]) == (1.25, 4.0)
    older = record.model_copy(update={"seconds": None})
    metadata = shard_metadata(StageOutcome(older, unchanged=True, seconds=0.01), settings, {})
    assert {"seconds", "images_per_second"}.isdisjoint(metadata)
    assert "images_per_second" not in shard_metadata(done["final_tars"], settings, {})
    texts = done["document_scores"].record.model_copy(update={"seconds": 1.25})
    assert texts.counts_in.images == 5
    assert "images_per_second" not in shard_metadata(StageOutcome(texts, unchanged=False, seconds=1.25), settings, {})


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.99996, 0.99996),
        (0.9230769, 0.9231),
        (0.000031234567, 0.00003123),
        (12345.67891, 12345.6789),
        (1.0, 1.0),
        (7, 7),
    ],
)
def test_a_figure_near_0_or_1_is_not_rounded_to_it(value: float, shown: float) -> None:
    assert rounded(value) == shown


def test_places_are_links_where_outputs_are_served(settings: Settings, tmp_path: Path) -> None:
    outcome = outcomes(settings)["filtered"]
    paths = shard_metadata(outcome, settings, {})
    assert [paths[name] for name in ("ledger", "record")] == [
        dg.MetadataValue.path(f"{tmp_path}/out/{name}")
        for name in ("dropped/filtered/a.parquet", "records/filtered/a.json")
    ]
    served = project(tmp_path, '[serve]\nurl = "http://127.0.0.1:3010"\n')
    links = shard_metadata(outcome, served, {}) | shard_pictures(
        outcome.record, store_pictures(outcome.record, served), served
    )
    assert {name: links[name] for name in ("ledger", "record", "page")} == {
        "ledger": dg.MetadataValue.url("http://127.0.0.1:3010/dropped/filtered/a.parquet"),
        "record": dg.MetadataValue.url("http://127.0.0.1:3010/records/filtered/a.json"),
        "page": dg.MetadataValue.url("http://127.0.0.1:3010/pages/a.html"),
    }
    assert links["dagster/uri"] == f"{tmp_path}/out/filtered/a.parquet"


def test_tags_have_versions_and_events_of_inputs(settings: Settings) -> None:
    record = outcomes(settings)["filtered"].record
    tags = version_tags(record, "3-abc", {"normalized": 17})
    assert tags == {
        "dagster/data_version": record.data_version,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": "3-abc",
        "dagster/input_data_version/normalized": record.inputs["normalized"],
        "dagster/input_data_version/image_scores": record.inputs["image_scores"],
        "dagster/input_data_version/document_scores": record.inputs["document_scores"],
        "dagster/input_event_pointer/normalized": "17",
        "dagster/input_event_pointer/image_scores": "NULL",
        "dagster/input_event_pointer/document_scores": "NULL",
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
