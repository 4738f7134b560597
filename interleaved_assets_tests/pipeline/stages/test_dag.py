from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from interleaved_assets.defs.assets import build_assets
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import Stage, StageOutput, last_with_rows
from interleaved_assets.pipeline.stages import dag
from interleaved_assets.pipeline.stages.dag import code_versions, downstream_of, stage_dag
from interleaved_assets.settings import Settings
from interleaved_assets_tests.defects import stand_in
from interleaved_assets_tests.documents import project

CLIP = '[clip]\nenabled = true\nmodel = "ViT-B-32"\npretrained = "openai"\n'


def test_each_stage_comes_after_its_inputs(tmp_path: Path) -> None:
    for text in ("", CLIP):
        seen = {RAW_SHARDS}
        for name, stage in stage_dag(project(tmp_path, text)).items():
            assert set(stage.inputs) <= seen
            seen.add(name)


def test_clip_scores_is_a_stage_if_clip_is_enabled(tmp_path: Path) -> None:
    without, stages = stage_dag(project(tmp_path)), stage_dag(project(tmp_path, CLIP))
    assert [name for name in stages if name not in without] == ["clip_scores"]
    assert [name for name in stages if name != "clip_scores"] == [*without]
    assert {*stages["filtered"].inputs} - {*without["filtered"].inputs} == {"clip_scores"}


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("[selection]\nmin_sharpness = 1\n", "filtered"),
        ("[scoring]\nmax_pixels = 1000\n", "image_scores"),
        ("[documents]\nscorers = []\n", "document_scores"),
        ('[reading]\ntexts_field = "words"\n', "normalized"),
        ("[run]\nparallel_shards = 1\n", None),
        ("[watch]\ninterval_seconds = 5\n", None),
    ],
)
def test_a_changed_setting_changes_the_code_versions_downstream(tmp_path: Path, text: str, changed: str | None) -> None:
    settings = project(tmp_path)
    before = code_versions(stage_dag(settings), settings)
    settings = project(tmp_path, text)
    after = code_versions(stage_dag(settings), settings)
    found = {name for name in before if before[name] != after[name]}
    assert found == ({changed} | downstream_of(changed, stage_dag(settings)) if changed else set())


def test_downstream_stages() -> None:
    inputs = {"rows": (RAW_SHARDS,), "scores": ("rows",), "chosen": ("rows", "scores"), "tars": ("chosen",)}
    stages = {name: Stage(name, read) for name, read in inputs.items()}
    assert downstream_of("rows", stages) == {"scores", "chosen", "tars"}
    assert downstream_of("chosen", stages) == {"tars"}
    assert downstream_of("tars", stages) == frozenset()


def test_lists_of_stages_follow_from_the_kinds_of_their_outputs() -> None:
    scores = {"image_scores", "clip_scores"}
    assert {"normalized", "rewritten", "filtered", "final_tars"} <= {*dag.LEDGER_STAGES}
    assert scores <= {*dag.IMAGE_SCORE_STAGES}
    assert not {*dag.LEDGER_STAGES} & {*dag.IMAGE_SCORE_STAGES, "document_scores", "image_export"}
    assert dag.rows_input(dag.EVERY_STAGE) == "filtered"
    assert dag.rows_input({"image_scores", "rewritten", "normalized"}) == "rewritten"
    assert dag.rows_input({RAW_SHARDS}) is None


def keys_of(asset: dg.AssetsDefinition | dg.SourceAsset) -> set[dg.AssetKey]:
    return {*asset.keys} if isinstance(asset, dg.AssetsDefinition) else {asset.key}


def test_a_new_stage_needs_its_declaration_and_its_place_in_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(stage: Stage, _: Settings, before: Sequence[Stage]) -> Stage:
        return replace(stage, inputs=(last_with_rows(before),))

    # hashes names no kind of output, so no stage reads its table
    toys = [Stage("hashes", connect=connect), Stage("tidied", connect=connect, output=StageOutput("rows"))]
    stand_in(monkeypatch, dag, "_STAGES", [*dag._STAGES[:1], *toys, *dag._STAGES[1:]])
    settings = project(tmp_path, CLIP)
    stages = stage_dag(settings)
    assert "tidied" in {key.to_user_string() for asset in build_assets(settings) for key in keys_of(asset)}
    assert stages["tidied"].inputs == ("normalized",)
    assert downstream_of("hashes", stages) == frozenset()
    assert [name for name, stage in stages.items() if "tidied" in stage.inputs] == [
        "image_scores",
        "document_scores",
        "clip_scores",
        "filtered",
    ]
