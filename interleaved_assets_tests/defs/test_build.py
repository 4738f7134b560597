"""The definitions as a whole: that they load, what runs from the start, and that every asset says what it is."""

import re
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.assets import OWNERS
from interleaved_assets.defs.build import build_definitions
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets_tests.documents import project

MODEL = '[clip]\nenabled = true\nmodel = "ViT-B-32"\npretrained = "openai"\n'


@pytest.mark.parametrize("text", ["", MODEL], ids=["without a model", "with a model"])
def test_the_definitions_load_as_a_code_location(tmp_path: Path, text: str) -> None:
    dg.Definitions.validate_loadable(build_definitions(project(tmp_path, text)))


@pytest.mark.parametrize(("text", "sensors"), [("", "STOPPED"), ("[watch]\nenabled = true\n", "RUNNING")])
def test_what_launches_runs_is_off_and_what_shows_stale_shards_is_on_from_the_start(
    tmp_path: Path, text: str, sensors: str
) -> None:
    repository = build_definitions(project(tmp_path, text)).get_repository_def()
    assert {sensor.name: sensor.default_status.value for sensor in repository.sensor_defs} == {
        "raw_shard_sensor": sensors,
    }
    assert {schedule.name: schedule.default_status.value for schedule in repository.schedule_defs} == {
        "nightly": "STOPPED",  # turned on in the UI
        "daily_report": "RUNNING",
        "delete_old_runs": "RUNNING",
    }


def test_assets_lead_to_the_state_of_all_shards_where_outputs_are_served(tmp_path: Path) -> None:
    for text, shown in (("", None), ('[serve]\nurl = "http://127.0.0.1:3010"\n', "http://127.0.0.1:3010")):
        nodes = build_definitions(project(tmp_path, text)).resolve_asset_graph().asset_nodes
        links = {node.key.path[-1]: node.metadata.get("state_of_all_shards") for node in nodes}
        for name in ("normalized", "final_tars"):
            assert (links[name].value if links[name] else None) == shown


def test_every_asset_has_a_description_and_an_owner(tmp_path: Path) -> None:
    layers = {
        "raw_shards": ("ingest", "raw", {"tar"}, None),
        "normalized": ("ingest", "ingest", {"parquet"}, "shard_io"),
        "image_scores": ("score", "score", {"opencv", "parquet"}, "shard_io"),
        "document_scores": ("score", "score", {"parquet"}, "shard_io"),
        "clip_scores": ("score", "score", {"parquet", "pytorch"}, "gpu"),
        "filtered": ("select", "select", {"parquet"}, "shard_io"),
        "final_tars": ("publish", "publish", {"webdataset"}, "shard_io"),
        "dataset_report": ("publish", "report", {"html"}, None),
    }
    settings = project(tmp_path, MODEL)
    nodes = list(build_definitions(settings).resolve_asset_graph().asset_nodes)
    found = {
        node.key.path[-1]: (node.group_name, node.tags["layer"], node.kinds, node.tags.get("pool")) for node in nodes
    }
    assert {*found} == {"raw_shards", *stage_dag(settings), "dataset_report"}
    assert {name: found[name] for name in layers} == layers
    # of a new stage that the list above lacks
    assert [name for name, (group, _, kinds, _) in found.items() if not kinds or group == "default"] == []
    assert all(len(node.description or "") > 40 for node in nodes)
    # Dagster has no owners for a source asset that is observed
    assert {node.key.path[-1] for node in nodes if list(node.owners) != OWNERS} == {"raw_shards"}


def test_no_description_has_a_placeholder_that_markdown_takes_for_html(tmp_path: Path) -> None:
    repository = build_definitions(project(tmp_path, MODEL)).get_repository_def()
    graph = repository.asset_graph
    shown = [node.description for node in graph.asset_nodes]
    shown += [graph.get_check_spec(key).description for key in graph.asset_check_keys]
    shown += [sensor.description for sensor in repository.sensor_defs]
    shown += [schedule.description for schedule in repository.schedule_defs]
    jobs = [job for job in repository.get_all_jobs() if not job.name.startswith("__")]
    shown += [job.description for job in jobs]
    assert all(job.description for job in jobs)
    outside_code = [re.sub("`[^`]*`", "", text) for text in shown if text]
    assert len(outside_code) > 25
    assert [text for text in outside_code if "<" in text] == []
