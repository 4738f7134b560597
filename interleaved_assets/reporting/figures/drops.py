"""Dropped rows as reports show them: the choice of rows, the reason of each, and short ids."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, islice, zip_longest
from typing import Any, Final, TypeVar

import pyarrow as pa

from interleaved_assets.model import digits
from interleaved_assets.model.ledger import SAMPLE_DROPPED
from interleaved_assets.reporting.figures.measures import Measure
from interleaved_assets.scoring.protocol.filter import sign_of_dropped

_WORTH_CUTTING: Final = 8
"""Number of characters that ids must share at their beginning before these are left out."""
LONGEST_ID: Final = 20
"""Most characters of an id that such a table shows; ``interleaved drops`` shows whole ids."""
_ID_START: Final = 9
_ID_END: Final = 10

_Item = TypeVar("_Item")


def by_turns(groups: Mapping[str, Sequence[_Item]], limit: int) -> list[_Item]:
    """Return up to ``limit`` items, one of each reason in turn, so that rare reasons are shown.

    Items dropped with their sample come last.
    """
    ordered = [items for reason, items in sorted(groups.items()) if reason != SAMPLE_DROPPED]
    in_turn = (item for turn in zip_longest(*ordered) for item in turn if item is not None)
    return list(islice(chain(in_turn, groups.get(SAMPLE_DROPPED, ())), limit))


def choose_drops(ledger: pa.Table, limit: int) -> pa.Table:
    """Return up to ``limit`` rows of ``ledger``, of every reason in turn."""
    rows: dict[str, list[int]] = defaultdict(list)
    for row, reason in enumerate(ledger["reason"].to_pylist()):
        rows[reason].append(row)
    return ledger.take(pa.array(by_turns(rows, limit), pa.int64()))


def reason_text(drop: Mapping[str, Any], measures: Iterable[Measure]) -> str:
    """Return why a row was dropped, in short: ``sharpness 41.2 < 100``; ``drop`` is a row of a ledger."""
    reason, measured, threshold = str(drop["reason"]), drop["measured"], drop["threshold"]
    name, _, side = reason.rpartition("_")
    if side not in ("below", "above") or not isinstance(measured, float) or not isinstance(threshold, float):
        return "with its sample" if reason == SAMPLE_DROPPED else reason
    measure = next((measure for measure in measures if measure.filter == name), None)
    open_maximum = measure is not None and measure.judge.open_maximum
    sign = sign_of_dropped("minimum" if side == "below" else "maximum", open_maximum=open_maximum)
    short = measure.shown.short if measure else name
    return f"{short} {digits.measured(measured, threshold)} {sign} {digits.bound(threshold)}"


def common_prefix(ids: Collection[str]) -> str:
    """Return the common beginning of ``ids``, if it is long; else an empty text."""
    first, last = min(ids, default=""), max(ids, default="")
    length = next((place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), 0)
    return first[:length] if length >= _WORTH_CUTTING else ""


def short_id(sample_id: str) -> str:
    """Return ``sample_id`` for a table that does not break words: the middle of a long one is left out."""
    return sample_id if len(sample_id) <= LONGEST_ID else f"{sample_id[:_ID_START]}…{sample_id[-_ID_END:]}"
