"""What a check is: a judgement of one shard after a stage, from the stage's record alone."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from interleaved_assets.pipeline.record import Record
from interleaved_assets.settings import Settings

Severity = Literal["WARN", "ERROR"]
NO_OTHERS: Final[Mapping[str, float]] = MappingProxyType({})


class Verdict(NamedTuple):
    """Whether a check passed for one shard, how bad it is if not, and the figures it rests on."""

    passed: bool
    severity: Severity
    summary: str
    figures: Mapping[str, float | int | str]


class Basis(NamedTuple):
    """What records are judged by: the settings, and how other shards came out."""

    settings: Settings
    keep_rates: Mapping[str, float] = NO_OTHERS
    """Share of rows that selection kept, by shard; for checks that compare shards."""


class ShardCheck(NamedTuple):
    """A check of one stage's output.

    ``judge`` looks at the record of a shard that went through. ``failed_by`` is the exception that says the check
    failed where the shard did not go through: it was not recorded, and the check shows why. ``compares`` says that the
    judgement takes other shards: it comes when all shards of a step are done.
    """

    name: str
    description: str
    judge: Callable[[Record, Basis], Verdict]
    failed_by: tuple[type[Exception], ...] = ()
    compares: bool = False


def lacking(what: str) -> Verdict:
    """The verdict on a record that says nothing of what is judged: that is not the same as nothing being wrong."""
    return Verdict(False, "ERROR", f"the record says nothing of {what}: materialize the shard again", {})
