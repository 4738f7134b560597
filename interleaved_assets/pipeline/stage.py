"""What a stage is: its inputs, the settings it depends on, the function that does its work, and what that returns."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.raw.listing import RawShard
from interleaved_assets.pipeline.record import Facts, OutputFile, Record
from interleaved_assets.settings import Settings
from interleaved_assets.shard_paths import ShardPaths


@dataclass(frozen=True)
class ShardTask:
    """One shard at one stage: what a stage's function is given."""

    key: str
    settings: Settings
    paths: ShardPaths
    raw: RawShard | None = None
    """The raw shard, for the stage that reads it."""
    read: Mapping[str, Record] = field(default_factory=dict)
    """Records of the stages whose outputs it reads, by stage, as they stood when it began."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Version of each file that the settings name for this stage, such as a checkpoint, by the setting."""

    @property
    def options(self) -> Mapping[str, object]:
        """fsspec storage options."""
        return self.settings.storage.options


class Work(Facts):
    """What a stage's function reports of the shard it has written."""

    outputs: dict[str, OutputFile]
    data_version: str | None = None
    """Where the bytes may differ from one device to another, a hash of what they were computed from; else None."""


@dataclass(frozen=True)
class StageOutcome:
    """A shard that went through a stage; ``unchanged`` where the recorded output was current and nothing was done."""

    record: Record
    unchanged: bool
    seconds: float


RunOne = Callable[[ShardTask], Work]
"""Reads the inputs of one shard and writes its outputs."""
RunTogether = Callable[[Iterator[ShardTask], Settings], Iterator[tuple[str, Work | InterleavedError]]]
"""The same for many shards in one go, for work that fills a device: gives each shard's key and work as it is done, or
what is wrong with that shard. Whatever it raises ends them all."""


@dataclass(frozen=True)
class Stage:
    """One step of the chain.

    Attributes:
        name: also the asset's name, and the folder of its outputs.
        inputs: the stages whose outputs it reads.
        version: raised by hand when a change of code changes what is written.
        settings: the part of the settings that its output depends on, and nothing else.
        run: does the work, for one shard; or, with ``together``, for many.
        files: the version of each file that those settings name, by the setting (``clip.pretrained``). They count as
            inputs: they are looked at when the stage executes, and not to know its code version.
    """

    name: str
    inputs: tuple[str, ...]
    version: int
    settings: Callable[[Settings], dict[str, object]]
    run: RunOne | None = None
    together: RunTogether | None = None
    files: Callable[[Settings], Mapping[str, str]] = lambda _: {}

    @property
    def same_bytes(self) -> bool:
        """Whether the same inputs always give the same bytes; a device may round differently from run to run."""
        return self.together is None

    def code_version(self, settings: Settings) -> str:
        """Changes when the stage's code or one of its settings does; ``<version>-<hash of settings>``."""
        text = json.dumps(self.settings(settings), sort_keys=True)
        return f"{self.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
