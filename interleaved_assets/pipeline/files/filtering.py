"""Filters for the rows of single files: thresholds from the settings or by name, and the scorers that they need."""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from pydantic import ValidationError

from interleaved_assets.model.errors import OptionError, SettingsError
from interleaved_assets.pipeline.stages.filtered import kept_rows
from interleaved_assets.pipeline.stages.names import FILTERED
from interleaved_assets.scoring.protocol.filter import ImageFilter
from interleaved_assets.scoring.protocol.registry import known_scorers, score_groups
from interleaved_assets.scoring.protocol.settings import ScoringSettings
from interleaved_assets.selection.batch import document_scores, selection_rows
from interleaved_assets.selection.filters import BUILT_IN
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.settings import SelectionSettings, bound_settings, with_changes
from interleaved_assets.settings import Settings
from interleaved_assets.settings.messages import describe


def selection_settings(
    settings: Settings, given: Mapping[str, object], *, whole_section: bool
) -> SelectionSettings | None:
    """Return the thresholds and policies for a file; None if there is no filter.

    ``given`` are settings of ``[selection]``, such as ``{"min_sharpness": 80}``, before those of the file, whose bounds
    hold only with ``whole_section``.
    """
    if not given and not whole_section:
        return None
    off: dict[str, object] = {}
    if not whole_section:
        off = {setting: None for name in BUILT_IN for setting in bound_settings(name) if setting}
        off |= {"own": {}, "document": {}, "text": {}}
    try:
        return SelectionSettings.model_validate(with_changes({**settings.selection.model_dump(), **off}, given))
    except ValidationError as error:
        raise _settings_error("selection", error) from None


def with_scorers(settings: Settings, scorers: Sequence[str], *, clip: bool) -> Settings:
    """Return ``settings`` with other scorers, where any are named, and with CLIP on or off."""
    settings = settings.model_copy(update={"clip": settings.clip.model_copy(update={"enabled": clip})})
    if not scorers:
        return settings
    try:
        scoring = ScoringSettings.model_validate({**settings.scoring.model_dump(), "scorers": tuple(scorers)})
    except ValidationError as error:
        raise _settings_error("scoring", error) from None
    return settings.model_copy(update={"scoring": scoring})


def _settings_error(section: str, error: ValidationError) -> SettingsError:
    return SettingsError("; ".join(describe({**one, "loc": (section, *one["loc"])}) for one in error.errors()))


def check_filters(selection: SelectionSettings, columns: Collection[str], *, whole_section: bool) -> tuple[str, ...]:
    """Raise OptionError if a filter needs a score that is not there; returns the filters that will not be applied.

    These are filters of optional scores, such as CLIP's, whose bound is one of the whole section of the settings.
    """
    passed_over = []
    for name in selection.active_filters():
        judge = selection.find(name)
        if not isinstance(judge, ImageFilter) or set(judge.columns) <= set(columns):
            continue
        if not (whole_section and judge.if_scored):
            raise OptionError(
                f"filter {name!r} needs the score {', '.join(judge.columns)}, and there are {', '.join(columns)}: "
                "measure it first (interleaved score --help), or leave out the filter's bounds"
            )
        passed_over.append(name)
    return tuple(passed_over)


def measurable(scoring: ScoringSettings) -> dict[str, tuple[str, ...]]:
    """Return the columns of every scorer that works on one image, by its name, even if ``scoring`` turns it off."""
    return score_groups(scoring.model_copy(update={"scorers": known_scorers()}))


def image_columns(selection: SelectionSettings) -> set[str]:
    """Return the columns of scores that the filters of ``selection`` compare with bounds."""
    judges = (selection.find(name) for name in selection.active_filters())
    return {column for judge in judges if isinstance(judge, ImageFilter) for column in judge.columns}


def scoring_for(selection: SelectionSettings, scoring: ScoringSettings) -> ScoringSettings:
    """Return ``scoring`` with those scorers that the filters of ``selection`` need, and no others."""
    wanted = image_columns(selection)
    found = measurable(scoring)
    chosen = tuple(name for name in known_scorers() if wanted & set(found[name]))
    return scoring.model_copy(update={"scorers": chosen})


def keep_selected(
    table: pa.Table, scores: pa.Table, selection: SelectionSettings, settings: Settings, shard: str
) -> tuple[pa.Table, pa.Table]:
    """Return the rows of whole samples that pass the filters, and the ledger of the others; texts are measured here."""
    documents = document_scores(table, selection, settings.documents)
    found = select(selection_rows(table), scores, selection, documents=documents, stage=FILTERED, shard=shard)
    kept, _ = kept_rows(table, found.keep, selection, settings.publish)
    return kept, found.ledger
