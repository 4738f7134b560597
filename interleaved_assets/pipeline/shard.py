"""One shard at one stage: what the stage's function is given, what it reports, and what came of it."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from interleaved_assets.io.storage import checked_commits
from interleaved_assets.pipeline.claims import Hold
from interleaved_assets.pipeline.raw import RawShard
from interleaved_assets.pipeline.record import Facts, OutputFile, Record, ShardPaths
from interleaved_assets.settings import Settings


@dataclass(frozen=True)
class Shard:
    """One shard at one stage: what a stage's function is given."""

    key: str
    settings: Settings
    paths: ShardPaths
    raw: RawShard | None = None
    """The raw shard, for the stage that reads it."""
    read: Mapping[str, Record] = field(default_factory=dict)
    """Records of the stages whose outputs it reads, by stage, as they stood when it began."""
    hold: Hold | None = None

    @property
    def options(self) -> Mapping[str, object]:
        """fsspec storage options."""
        return self.settings.storage.options

    def committing(self) -> AbstractContextManager[None]:
        """For the block that writes this shard's outputs: none of them appears once another run has taken over.

        A stage that works on many shards goes through it itself, for the others it is done.
        """
        return nullcontext() if self.hold is None else checked_commits(self.hold.check)


class Work(Facts):
    """What a stage's function reports of the shard it has written."""

    outputs: dict[str, OutputFile]
    data_version: str | None = None
    """Where the bytes may differ from one device to another, a hash of what they were computed from; else None."""


@dataclass(frozen=True)
class Outcome:
    """A shard that went through a stage; ``unchanged`` where the recorded output was current and nothing was done."""

    record: Record
    unchanged: bool
    seconds: float
