"""The filters: those that the registered scores name, and those that a plugin registers itself (docs/extending.md)."""

from typing import Final

from interleaved_assets.model.errors import OptionError
from interleaved_assets.scoring.protocol.filter import CLIP_ERRORS, Filter, ImageFilter, SampleCounts, SampleFilter
from interleaved_assets.scoring.protocol.registry import BUILT_IN as BUILT_IN_SCORERS
from interleaved_assets.scoring.protocol.scorer import all_scorers

__all__ = [
    "BUILT_IN",
    "Filter",
    "ImageFilter",
    "SampleCounts",
    "SampleFilter",
    "find_filter",
    "known_filters",
    "register_filter",
    "unregister_filter",
]

BUILT_IN: Final = {judge.name: judge for scorer in BUILT_IN_SCORERS for judge in scorer.filters}
"""The filters of this package by name, in their default order.

Cheap measures come before expensive ones, as NeMo Curator documents it (blur, QR, ratio, CLIP)."""
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
    """Return the filter with that name; for an unregistered name, one that judges images by the column of that name."""
    return _filters().get(name) or ImageFilter(name, (name,), error_columns=CLIP_ERRORS)


def _filters() -> dict[str, Filter]:
    return {judge.name: judge for scorer in all_scorers() for judge in scorer.filters} | _OTHERS
