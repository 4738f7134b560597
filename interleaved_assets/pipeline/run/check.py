"""Definition of a check: it judges one shard after a stage, from the stage's record alone."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from interleaved_assets.pipeline.run.record import Record
from interleaved_assets.settings import Settings

if TYPE_CHECKING:
    from interleaved_assets.pipeline.run.stage import Stage

Severity = Literal["WARN", "ERROR"]
_FAILED: Final[Mapping[Severity, str]] = MappingProxyType({"WARN": "warning", "ERROR": "error"})
MATERIALIZATION_ERRORS: Final = "materialization_errors"
"""Name of the one check of each stage that combines all checks of a single shard, since an evaluation takes 1.7 kB."""
UP_TO_DATE: Final = "up_to_date"
"""Name of the check of each stage that all shards are current there."""
PUBLISHED_ONCE: Final = "published_once"
"""Name of the check of the data set that no content is published twice, or from a shard that is gone."""
NO_OTHERS: Final[Mapping[str, float]] = MappingProxyType({})


class Verdict(NamedTuple):
    """Result of a check for one shard: whether it passed, the severity if not, a summary, and the figures used."""

    passed: bool
    severity: Severity
    summary: str
    figures: Mapping[str, float | int | str]


class Basis(NamedTuple):
    """The settings, the stage and the figures of other shards with which records are compared."""

    settings: Settings
    stage: "Stage"
    keep_rates: Mapping[str, float] = NO_OTHERS
    """By shard, the share of rows that selection kept, 0 to 1; for checks that compare shards."""


class ShardCheck(NamedTuple):
    """A check of one stage's output.

    ``judge`` judges the record of a shard that completed the stage. If the stage raised one of the exceptions
    ``failed_by``, there is no record, and the check fails with the message of the exception. A check that ``compares``
    needs figures of other shards and is judged once all shards of a step are done. The other checks are shown together
    (:func:`combine`). The figures of a check that ``counts`` are shown also if it passes.
    """

    name: str
    description: str
    judge: Callable[[Record, Basis], Verdict]
    failed_by: tuple[type[Exception], ...] = ()
    compares: bool = False
    counts: bool = False


def combine(verdicts: Mapping[ShardCheck, Verdict]) -> Verdict:
    """Return one verdict for several checks of a shard: it passes if all of them pass.

    The verdict has the severity of the worst check that fails, and the summaries of those that fail; it has no summary
    if all pass. Its figures are those of the check that counts, and the result and summary of each check, by name. For
    each other check that fails, its figures are added as ``<check>/<figure>``.
    """
    failed = {check: verdict for check, verdict in verdicts.items() if not verdict.passed}
    severity: Severity = "WARN" if all(verdict.severity == "WARN" for verdict in failed.values()) else "ERROR"
    figures: dict[str, float | int | str] = {}
    for check, verdict in verdicts.items():
        figures |= verdict.figures if check.counts else {}
    for check, verdict in verdicts.items():
        figures[check.name] = f"{'passed' if verdict.passed else _FAILED[verdict.severity]}: {verdict.summary}"
    for check, verdict in failed.items():
        if not check.counts:
            figures |= {f"{check.name}/{figure}": value for figure, value in verdict.figures.items()}
    summary = "; ".join(f"{check.name}: {verdict.summary}" for check, verdict in failed.items())
    return Verdict(not failed, severity, summary, figures)


def lacking(what: str) -> Verdict:
    """Return a verdict that fails, for a record without the figures that the check needs."""
    return Verdict(False, "ERROR", f"the record lacks {what}: materialize the shard again", {})
