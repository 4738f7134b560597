"""Which filters apply to scores with given columns."""

from collections.abc import Collection

from interleaved_assets.model.errors import OptionError
from interleaved_assets.selection.filters import Filter, ImageFilter, find_filter
from interleaved_assets.selection.settings import SelectionSettings


def applicable_filters(
    settings: SelectionSettings, columns: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the filters to apply to scores with these columns, and of those to skip."""
    judging, passed_over = [], []
    for name in settings.active_filters():
        judge = find_filter(name)
        if isinstance(judge, ImageFilter) and judge.if_scored and not set(judge.columns) <= set(columns):
            passed_over.append(name)
        else:
            require_columns(judge, columns)
            judging.append(name)
    return tuple(judging), tuple(passed_over)


def require_columns(judge: Filter, columns: Collection[str]) -> None:
    """Check that scores with these columns have those that the filter reads."""
    needed = judge.columns if isinstance(judge, ImageFilter) else ()
    if lacking := [column for column in needed if column not in columns]:
        raise OptionError(
            f"filter {judge.name!r} needs the score {', '.join(lacking)}, and the scores have "
            f"{', '.join(columns)}: turn on what measures it (scoring.scorers, clip.heads), "
            f"or take {judge.name!r} out of selection.order"
        )
