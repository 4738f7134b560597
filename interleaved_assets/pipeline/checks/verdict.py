"""Definition of a check: it judges one shard after a stage, from the stage's record alone."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from interleaved_assets.pipeline.record import Record
from interleaved_assets.settings import Settings

Severity = Literal["WARN", "ERROR"]
_FAILED: Final[Mapping[Severity, str]] = MappingProxyType({"WARN": "warning", "ERROR": "error"})
NO_OTHERS: Final[Mapping[str, float]] = MappingProxyType({})


class Verdict(NamedTuple):
    """Result of a check for one shard: whether it passed, the severity if not, a summary, and the figures used."""

    passed: bool
    severity: Severity
    summary: str
    figures: Mapping[str, float | int | str]


class Basis(NamedTuple):
    """The settings and the figures of other shards with which records are compared."""

    settings: Settings
    keep_rates: Mapping[str, float] = NO_OTHERS
    """By shard, the share of rows that selection kept, 0 to 1; for checks that compare shards."""


class ShardCheck(NamedTuple):
    """A check of one stage's output.

    ``judge`` judges the record of a shard that completed the stage. If the stage raised one of the exceptions
    ``failed_by``, there is no record, and the check fails with the message of the exception. A check that ``compares``
    needs figures of other shards and is judged once all shards of a step are done. Checks that are not ``separate`` and
    compare nothing are shown together (:func:`combine`).
    """

    name: str
    description: str
    judge: Callable[[Record, Basis], Verdict]
    failed_by: tuple[type[Exception], ...] = ()
    compares: bool = False
    separate: bool = False

    @property
    def is_combined(self) -> bool:
        """Whether it is shown as one of several in one check of the orchestrator."""
        return not (self.compares or self.separate)


def combine(verdicts: Mapping[str, Verdict]) -> Verdict:
    """One verdict for several checks of a shard: it passes where all of them do.

    It has the severity of the worst check that fails, and the summaries of those that fail; none where all pass. Its
    figures are the result and the summary of each check, by name, and of each that fails its figures too, as
    ``<check>/<figure>``.
    """
    failed = {name: verdict for name, verdict in verdicts.items() if not verdict.passed}
    severity: Severity = "WARN" if all(verdict.severity == "WARN" for verdict in failed.values()) else "ERROR"
    figures: dict[str, float | int | str] = {}
    for name, verdict in verdicts.items():
        figures[name] = f"{'passed' if verdict.passed else _FAILED[verdict.severity]}: {verdict.summary}"
    for name, verdict in failed.items():
        figures |= {f"{name}/{figure}": value for figure, value in verdict.figures.items()}
    summary = "; ".join(f"{name}: {verdict.summary}" for name, verdict in failed.items())
    return Verdict(not failed, severity, summary, figures)


def lacking(what: str) -> Verdict:
    """The verdict on a record without the figures that a check needs: the check fails, since it cannot be judged."""
    return Verdict(False, "ERROR", f"the record lacks {what}: materialize the shard again", {})
