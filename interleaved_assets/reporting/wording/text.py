"""Formats of numbers and names in the reports."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Final, TypeVar

from interleaved_assets.model.shown import cut_list

Name = TypeVar("Name", bound=str)
_SHARDS_NAMED: Final = 3


def count(value: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{value:,}"


def counted(value: int, name: str) -> str:
    """Return a number with a noun: ``1 shard``, ``2 shards``."""
    return f"{value:,} {name}{'' if value == 1 else 's'}"


def most_frequent(counts: Mapping[Name, int]) -> list[tuple[Name, int]]:
    """Return names with their numbers, the largest first, equal ones by name: the same counts give the same order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def tars_from_before(keys: Sequence[str]) -> str:
    """Return the warning about failed shards that have final tars."""
    return (
        f"The final tars of {counted(len(keys), 'shard')} were made before the shard failed: "
        f"{cut_list(keys, _SHARDS_NAMED)}. They stay until it is made again, and no release takes them."
    )


def compact(value: int) -> str:
    """Return a whole number in short: ``12,345``, from a million on ``12.3 M``."""
    return f"{value:,}" if value < 1_000_000 else f"{value / 1e6:,.1f} M"


def share(part: float | None, whole: float | None = 1) -> str:
    """Return ``part`` of ``whole`` in percent, never rounded to a full 0 or 100; a dash without a whole.

    6.25 is ``6.3 %``, as in the script of the report.
    """
    if part is None or not whole:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{Decimal(percent).quantize(Decimal('0.1'), ROUND_HALF_UP)} %"
