"""The filters: those that the registered scores name, and those that a plugin registers itself (docs/extending.md)."""

from typing import Final, Literal, get_args

from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.protocol.filter import CLIP_ERRORS, Display, Filter, TextFilter
from interleaved_assets.scoring.protocol.filter import ImageFilter as ImageFilter
from interleaved_assets.scoring.protocol.filter import SampleCounts as SampleCounts
from interleaved_assets.scoring.protocol.filter import SampleFilter as SampleFilter
from interleaved_assets.scoring.protocol.registry import BUILT_IN as BUILT_IN_SCORERS
from interleaved_assets.scoring.protocol.registry import document_columns
from interleaved_assets.scoring.protocol.scorer import all_scorers

BUILT_IN: Final = {judge.name: judge for scorer in BUILT_IN_SCORERS for judge in scorer.filters}
"""The filters of this package by name, in their default order.

Cheap measures come before expensive ones, as NeMo Curator documents it (blur, QR, ratio, CLIP)."""
Unit = Literal["document", "text"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
"""The unit that a filter on document scores drops: a document, or a text."""
_OTHERS: Final[dict[str, Filter]] = {}


def register_filter(added: Filter) -> None:
    """Register a filter under its name.

    Raises:
        OptionError: the name is taken.
    """
    if added.name in known_filters():
        raise OptionError(f"filter {added.name!r}: the name is taken; filters are {', '.join(known_filters())}")
    _OTHERS[added.name] = added


def unregister_filter(name: str) -> None:
    """Remove a filter from the registry."""
    del _OTHERS[name]


def known_filters() -> tuple[str, ...]:
    """Return the names of all filters: those of the scores, then the others in the order of registration."""
    return tuple(_filters())


def find_filter(name: str) -> Filter:
    """Return the filter with that name.

    ``document_<column>`` and ``text_<column>`` judge by a column of the document scores. Any other name that is not
    registered judges images by the column of that name.
    """
    return _filters().get(name) or _of_texts(name) or ImageFilter(name, (name,), error_columns=CLIP_ERRORS)


def text_filter_name(of: Unit, column: str) -> str:
    """Return the name of the filter on a column of the document scores."""
    return f"{of}_{column}"


def _of_texts(name: str) -> TextFilter | None:
    columns = document_columns()
    for of in UNITS:
        column = name.removeprefix(f"{of}_")
        if column != name and column in columns:
            return TextFilter(name, column, of, display=_display(of, column))
    return None


def _display(of: Unit, column: str) -> Display:
    words = column.replace("_", " ")
    is_share = document_columns()[column].ranges.get(column) == (0, 1)
    return Display(f"{words.capitalize()} of the {of}", words, scale="linear" if is_share else "any")


def _filters() -> dict[str, Filter]:
    return {judge.name: judge for scorer in all_scorers() for judge in scorer.filters} | _OTHERS
