"""The registered scores: those that the settings turn on, and their columns, ranges and versions."""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from interleaved_assets.model.columns import Column
from interleaved_assets.model.errors import InterleavedError, OptionError, describe
from interleaved_assets.scoring.protocol.scorer import (
    ERROR_COLUMN,
    KEY_COLUMNS,
    Range,
    Scorer,
    Section,
    all_scorers,
    arrow_type,
)
from interleaved_assets.scoring.protocol.scorer import register_scorer as register_scorer
from interleaved_assets.scoring.protocol.scorer import unregister_scorer as unregister_scorer

if TYPE_CHECKING:
    from interleaved_assets.scoring.protocol.settings import ScorerSettings

# imported by name, as the modules of plugins are, and before any of them
import_module("interleaved_assets.scoring.scores")
BUILT_IN: Final = all_scorers()
"""The scores of this package."""
SIZE: Final = "size"
"""The score that every table of image scores has: width, height and aspect ratio."""
WORDS: Final = "words"
"""The score that every table of document scores has: numbers of words, characters, texts and images."""


def find_scorer(name: str) -> Scorer:
    """Return the scorer with that name; KeyError if no scorer has it."""
    return {scorer.name: scorer for scorer in all_scorers()}[name]


def known_scorers(section: Section = "scoring") -> tuple[str, ...]:
    """Return the names of the scorers that ``<section>.scorers`` can turn on, in the order of registration."""
    return tuple(scorer.name for scorer in all_scorers() if scorer.prepare is not None and scorer.section == section)


def chosen_scorers(settings: "ScorerSettings") -> tuple[Scorer, ...]:
    """Return the scorers that ``settings`` turns on, in the order of registration."""
    names = [name for name in known_scorers(settings.section) if name in (*settings.scorers, WORDS)]
    return tuple(find_scorer(name) for name in names)


class PreparedScorer(NamedTuple):
    """A scorer with its settings applied, its lists read and its model loaded."""

    scorer: Scorer
    measure: Callable[[Any], Any]
    """Measures one image, or for the section ``documents`` a batch of texts."""
    types: tuple[pa.DataType, ...]
    """The types of the scorer's columns."""

    def of_columns(self, values: Sequence[Any]) -> list[tuple[Any, pa.DataType]]:
        """Return what the function measured for each column, with its type; ValueError if the numbers differ."""
        if len(values) != len(self.types):
            raise ValueError(f"it returned {len(values)} values for the columns {', '.join(self.scorer.columns)}")
        return list(zip(values, self.types, strict=True))


def prepare_scorers(settings: "ScorerSettings") -> tuple[PreparedScorer, ...]:
    """Return the scorers that ``settings`` turns on, prepared.

    Raises:
        MissingDependency, SettingsError: a package, a model or a list of words is missing.
        OptionError: a scorer of a plugin cannot be prepared.
    """
    return tuple(
        PreparedScorer(one, _prepared(one, settings), tuple(map(arrow_type, one.columns.values())))
        for one in chosen_scorers(settings)
    )


def _prepared(scorer: Scorer, settings: "ScorerSettings") -> Callable[[Any], Any]:
    assert scorer.prepare is not None
    try:
        measure = scorer.prepare(settings)
    except InterleavedError:
        raise
    except Exception as error:  # a plugin raises exceptions of any type
        raise OptionError(f"scorer {scorer.name!r} cannot be prepared: {describe(error)}") from error
    if not callable(measure):
        raise OptionError(f"scorer {scorer.name!r}: prepare returned {measure!r} and not the function that measures")
    return measure


def _in_table(settings: "ScorerSettings") -> tuple[Scorer, ...]:
    """Return the scorers with columns in the table of scores."""
    always = (find_scorer(SIZE),) if settings.section == "scoring" else ()
    return (*always, *chosen_scorers(settings))


def score_columns(settings: "ScorerSettings") -> tuple[Column, ...]:
    """Return the columns of the table of image scores or of document scores."""
    measured = (column for scorer in _in_table(settings) for column in scorer.described_columns())
    error = "'code: detail' of a row that could not be measured, else null (docs/errors.md)."
    return (*KEY_COLUMNS, *measured, Column(ERROR_COLUMN, "string", meaning=error))


def scores_schema(settings: "ScorerSettings") -> pa.Schema:
    """Return the schema of the table of image scores or of document scores under these settings.

    The tables are those of :func:`~interleaved_assets.scoring.protocol.score.score_images` and
    :func:`~interleaved_assets.scoring.protocol.texts.score_documents`.
    """
    given = {name: dtype for scorer in chosen_scorers(settings) for name, dtype in scorer.columns.items()}
    columns = score_columns(settings)
    return pa.schema([pa.field(name, given.get(name, dtype), nullable) for name, dtype, nullable, _ in columns])


def score_groups(settings: "ScorerSettings") -> dict[str, tuple[str, ...]]:
    """Return the columns of each scorer by its name, and under ``size`` those that describe the image's size."""
    return {scorer.name: tuple(scorer.columns) for scorer in _in_table(settings)}


def document_columns() -> dict[str, Scorer]:
    """Return the scorer of each column that document scores can have, by the column."""
    scorers = (scorer for scorer in all_scorers() if scorer.section == "documents")
    return {column: scorer for scorer in scorers for column in scorer.columns}


def document_numbers(settings: "ScorerSettings") -> tuple[str, ...]:
    """Return the columns with numbers of documents that these scorers measure."""
    columns = (column for one in chosen_scorers(settings) for column in one.described_columns())
    return tuple(column.name for column in columns if "string" not in column.dtype)


def document_fields(settings: "ScorerSettings") -> tuple[str, ...]:
    """Return the fields of the documents, by their paths, that the scorers read which ``settings`` turns on."""
    return tuple(dict.fromkeys(_given(settings, name) for one in chosen_scorers(settings) for name in one.fields))


def document_fields_of(column: str, settings: "ScorerSettings") -> tuple[str, ...]:
    """Return the fields of the documents, by their paths, that the scorer of this column reads."""
    scorer = document_columns().get(column)
    return tuple(_given(settings, name) for name in scorer.fields) if scorer else ()


def needed_fields(settings: "ScorerSettings") -> dict[str, str]:
    """Return the fields that documents have to have for these scorers, by the setting that names each or its path."""
    return {
        f"{settings.section}.{name}" if hasattr(settings, name) else name: _given(settings, name)
        for one in chosen_scorers(settings)
        for name in one.needs(settings)
    }


def score_files(settings: "ScorerSettings") -> dict[str, str]:
    """Return the files that these scorers read, by the setting that names each, or by the scorer and its number."""
    return {
        f"{settings.section}.{name}" if hasattr(settings, name) else f"{one.name}/{number}": path
        for one in chosen_scorers(settings)
        for number, name in enumerate(one.files)
        if (path := _given(settings, name)) is not None
    }


def file_settings(section: Section) -> tuple[str, ...]:
    """Return the settings of a section that name a file which a built-in scorer reads."""
    return tuple(name for one in BUILT_IN if one.section == section for name in one.files)


def _given(settings: "ScorerSettings", name: str) -> Any:
    """Return the value of a setting; a name that is none is the value itself, which a plugin gives."""
    return getattr(settings, name, name)


def score_ranges(settings: "ScorerSettings") -> dict[str, Range]:
    """Return the ranges of the score table's columns, for columns that have one."""
    return {column: values for scorer in _in_table(settings) for column, values in scorer.ranges.items()}


def scoring_version(settings: "ScorerSettings") -> str:
    """Return settings and scorer versions as text; equal text and equal images or texts give equal scores."""
    versions = {scorer.name: scorer.version for scorer in chosen_scorers(settings)}
    return json.dumps({"settings": settings.model_dump(mode="json"), "scorers": versions}, sort_keys=True)


def scoring_packages(settings: "ScorerSettings") -> set[str]:
    """Return the names of the distributions that the scores are measured with."""
    return {package for scorer in _in_table(settings) for package in scorer.packages}
