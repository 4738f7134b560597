"""Choice of the filters that apply to scores with given columns."""

from collections.abc import Collection

from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.protocol.filter import Filter, ImageFilter, TextFilter
from interleaved_assets.scoring.protocol.registry import document_columns
from interleaved_assets.scoring.protocol.scorer import all_scorers
from interleaved_assets.selection.settings import SelectionSettings


def applicable_filters(
    settings: SelectionSettings, columns: Collection[str], of_texts: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the filters to apply to scores with these columns, and of those to skip.

    ``columns`` are those of the scores of images, ``of_texts`` those of documents and texts.
    """
    judging, passed_over = [], []
    for name in settings.active_filters():
        judge = settings.find(name)
        if isinstance(judge, ImageFilter) and judge.if_scored and not set(judge.columns) <= set(columns):
            passed_over.append(name)
        else:
            require_columns(judge, columns, of_texts)
            judging.append(name)
    return tuple(judging), tuple(passed_over)


def require_columns(judge: Filter, columns: Collection[str], of_texts: Collection[str] = ()) -> None:
    """Check that scores with these columns have those that the filter reads."""
    if isinstance(judge, TextFilter):
        _require_text_column(judge, of_texts)
        return
    needed = judge.columns if isinstance(judge, ImageFilter) else ()
    if lacking := [column for column in needed if column not in columns]:
        raise OptionError(
            f"filter {judge.name!r} needs the score {', '.join(lacking)}, and the scores have "
            f"{', '.join(columns)}: turn on what measures it ({_what_measures(lacking[0])}) and make the shards again, "
            f"or take {judge.name!r} out of selection.order"
        )


def _require_text_column(judge: TextFilter, columns: Collection[str]) -> None:
    """Check that document scores have the column; those of fields are read with the rows."""
    scorer = document_columns().get(judge.column)
    if scorer is not None and judge.column not in columns:
        raise OptionError(
            f"filter {judge.name!r} needs the score {judge.column}, which the scorer {scorer.name!r} measures: add it "
            f"to documents.scorers and make the shards again, or take the bound {judge.of}.{judge.column} out"
        )


def _what_measures(column: str) -> str:
    """Return the settings that a column of scores depends on, and the scorer that they have to name."""
    scorer = next((scorer for scorer in all_scorers() if column in scorer.columns), None)
    if scorer is None:
        return "scoring.scorers"
    return scorer.turned_on_by.get(column, f"{scorer.section}.scorers, with {scorer.name}")
