"""The stages in their order, and the code versions and successors that follow from it."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Final

from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.stages import (
    clip_scores,
    document_scores,
    filtered,
    final_tars,
    image_export,
    image_scores,
    normalized,
    rewritten,
)
from interleaved_assets.pipeline.stages.names import FILTERED
from interleaved_assets.settings import Settings

_STAGES: Final = (
    normalized.STAGE,
    rewritten.STAGE,
    image_scores.STAGE,
    document_scores.STAGE,
    clip_scores.STAGE,
    filtered.STAGE,
    final_tars.STAGE,
    image_export.STAGE,
)
"""The stages, each after those whose outputs it reads."""
EVERY_STAGE: Final = tuple(stage.name for stage in _STAGES)
"""The names of all stages, in order; under some settings a data set has fewer."""
OUTPUTS: Final = {stage.name: stage.output for stage in _STAGES}
"""The kind of output of each stage, by name."""
ROW_STAGES: Final = tuple(name for name, output in OUTPUTS.items() if output.kind == "rows")
"""The stages that store rows as Parquet, each made from the rows of the one before."""
LEDGER_STAGES: Final = tuple(name for name, output in OUTPUTS.items() if output.kind in ("rows", "tars"))
"""The stages that store rows and a ledger, each from the rows of the one before. Images that image_export drops are in
the final tars all the same."""
IMAGE_SCORE_STAGES: Final = tuple(name for name, output in OUTPUTS.items() if output.kind == "image scores")
"""The stages that score images."""
SELECTED_FROM: Final = EVERY_STAGE[: EVERY_STAGE.index(FILTERED) + 1]
"""The stage that selects rows, and those before it."""
StageDag = Mapping[str, Stage]
"""Stages by name, each after the stages whose outputs it reads."""


def stage_dag(settings: Settings) -> StageDag:
    """Return the stages under ``settings``: ``rewritten``, ``clip_scores`` and ``image_export`` only if they are on."""
    stages: dict[str, Stage] = {}
    for declared in _STAGES:
        if (stage := declared.connect(declared, settings, tuple(stages.values()))) is not None:
            stages[stage.name] = stage
    return stages


def rows_input(inputs: Collection[str]) -> str | None:
    """Return the last stage with rows among ``inputs``; None if there is none."""
    return next((name for name in reversed(ROW_STAGES) if name in inputs), None)


def code_versions(stages: StageDag, settings: Settings) -> dict[str, str]:
    """Return, by stage, a version that changes with its own code version and with those of all stages upstream.

    After a change of a threshold, all stages downstream are therefore shown as outdated. A run compares data versions:
    a stage whose inputs have not changed does nothing.
    """
    versions: dict[str, str] = {}
    for name, stage in stages.items():
        own = stage.code_version(settings)
        upstream = [versions[source] for source in stage.inputs if source in versions]
        versions[name] = f"{own}-{hashlib.sha256(' '.join(upstream).encode()).hexdigest()[:8]}" if upstream else own
    return versions


def downstream_of(name: str, stages: StageDag) -> frozenset[str]:
    """Return the names of the stages that read the output of ``name``, directly or through others."""
    found = {name}
    for stage in stages.values():
        if found & set(stage.inputs):
            found.add(stage.name)
    return frozenset(found - {name})
