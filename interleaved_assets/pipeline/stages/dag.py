"""The stages in their order, and the code versions and successors that follow from it."""

import hashlib
from collections.abc import Iterable, Mapping
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
from interleaved_assets.settings import Settings

_DECLARATIONS: Final = (
    normalized,
    rewritten,
    image_scores,
    document_scores,
    clip_scores,
    filtered,
    final_tars,
    image_export,
)
"""The modules that declare the stages, each after those whose outputs its stage reads."""
EVERY_STAGE: Final = tuple(declaration.NAME for declaration in _DECLARATIONS)
"""The names of all stages, in order; under some settings a data set has fewer."""
WORK: Final = tuple(declaration.WORK.partition(":")[0] for declaration in _DECLARATIONS)
"""The modules with the work of the stages. They are imported when the work begins."""
StageDag = Mapping[str, Stage]
"""Stages by name, each after the stages whose outputs it reads."""


def stage_dag(settings: Settings) -> StageDag:
    """Return the stages under ``settings``: ``rewritten``, ``clip_scores`` and ``image_export`` only if they are on."""
    declared = (declaration.declare(settings) for declaration in _DECLARATIONS)
    return {stage.name: stage for stage in declared if stage is not None}


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


def is_last_of(name: str, selected: Iterable[str], stages: StageDag) -> bool:
    """Return whether none of the ``selected`` stages comes after ``name``."""
    return not downstream_of(name, stages) & set(selected)
