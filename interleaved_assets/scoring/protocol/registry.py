"""The registered scores: those that the settings turn on, and their columns, ranges and versions."""

import json
from importlib import import_module
from typing import TYPE_CHECKING, Final

from interleaved_assets.model.columns import Column
from interleaved_assets.scoring.protocol.scorer import (
    ABOVE_ZERO,
    ERROR_COLUMN,
    KEY_COLUMNS,
    MeasureFunction,
    Range,
    Scorer,
    all_scorers,
    register_scorer,
    taken_columns,
    unregister_scorer,
)

if TYPE_CHECKING:
    from interleaved_assets.scoring.protocol.settings import ScoringSettings

__all__ = [
    "ABOVE_ZERO",
    "BUILT_IN",
    "ERROR_COLUMN",
    "MeasureFunction",
    "Range",
    "Scorer",
    "chosen_scorers",
    "find_scorer",
    "known_scorers",
    "register_scorer",
    "score_columns",
    "score_groups",
    "score_ranges",
    "scoring_packages",
    "scoring_version",
    "taken_columns",
    "unregister_scorer",
]

# imported by name, as the modules of plugins are
import_module("interleaved_assets.scoring.scores")
BUILT_IN: Final = tuple(all_scorers())
"""The scores of this package."""
SIZE: Final = "size"
"""The score that every table has: width, height and aspect ratio."""


def find_scorer(name: str) -> Scorer:
    """Return the scorer with that name; KeyError if no scorer has it."""
    return {scorer.name: scorer for scorer in all_scorers()}[name]


def known_scorers() -> tuple[str, ...]:
    """Return the names of the scorers that ``scoring.scorers`` can turn on, in the order of registration."""
    return tuple(scorer.name for scorer in all_scorers() if scorer.prepare is not None)


def chosen_scorers(settings: "ScoringSettings") -> tuple[Scorer, ...]:
    """Return the scorers that ``settings`` turns on, in the order of registration."""
    return tuple(scorer for scorer in all_scorers() if scorer.prepare is not None and scorer.name in settings.scorers)


def _in_table(settings: "ScoringSettings") -> tuple[Scorer, ...]:
    """Return the scorers with columns in the table of image scores."""
    return (find_scorer(SIZE), *chosen_scorers(settings))


def score_columns(settings: "ScoringSettings") -> tuple[Column, ...]:
    """Return the columns of the table of :func:`.score_images`. It does not import pyarrow."""
    measured = (column for scorer in _in_table(settings) for column in scorer.described_columns())
    error = "'code: detail' of an image that could not be measured, else null (docs/errors.md)."
    return (*KEY_COLUMNS, *measured, Column(ERROR_COLUMN, "string", meaning=error))


def score_groups(settings: "ScoringSettings") -> dict[str, tuple[str, ...]]:
    """Return the columns of each scorer by its name, and under ``size`` those that describe the image's size."""
    return {scorer.name: tuple(scorer.columns) for scorer in _in_table(settings)}


def score_ranges(settings: "ScoringSettings") -> dict[str, Range]:
    """Return the ranges of the score table's columns, for columns that have one."""
    return {column: values for scorer in _in_table(settings) for column, values in scorer.ranges.items()}


def scoring_version(settings: "ScoringSettings") -> str:
    """Return settings and scorer versions as text; equal text and equal images give equal scores."""
    versions = {scorer.name: scorer.version for scorer in chosen_scorers(settings)}
    return json.dumps({"settings": settings.model_dump(mode="json"), "scorers": versions}, sort_keys=True)


def scoring_packages(settings: "ScoringSettings") -> set[str]:
    """Return the names of the distributions that the scores are measured with."""
    return {package for scorer in _in_table(settings) for package in scorer.packages}
