"""What a stage is, and how shards are taken through it: nothing current is redone, nothing is left half written."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from interleaved_assets.model.errors import InterleavedError, ShardError
from interleaved_assets.pipeline.raw import RawShard, Source, content_version, find_raw_shard
from interleaved_assets.pipeline.record import (
    RAW_SHARDS,
    Facts,
    OutputFile,
    Record,
    ShardPaths,
    is_there,
    read_record,
    remove_record,
    write_record,
)
from interleaved_assets.settings import Settings


@dataclass(frozen=True)
class Shard:
    """One shard at one stage: what a stage's function is given."""

    key: str
    settings: Settings
    paths: ShardPaths
    raw: RawShard | None = None
    """The raw shard, for the stage that reads it."""

    @property
    def options(self) -> Mapping[str, object]:
        """fsspec storage options."""
        return self.settings.storage.options


class Work(Facts):
    """What a stage's function reports of the shard it has written."""

    outputs: dict[str, OutputFile]
    data_version: str | None = None
    """Where the bytes may differ from one device to another, a hash of what they were computed from; else None."""


RunOne = Callable[[Shard], Work]
"""Reads the inputs of one shard and writes its outputs."""
RunTogether = Callable[[Iterator[Shard], Settings], Iterator[tuple[str, Work | InterleavedError]]]
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
    """

    name: str
    inputs: tuple[str, ...]
    version: int
    settings: Callable[[Settings], dict[str, object]]
    run: RunOne | None = None
    together: RunTogether | None = None

    def code_version(self, settings: Settings) -> str:
        """Changes when the stage's code or one of its settings does; ``<version>-<hash of settings>``."""
        text = json.dumps(self.settings(settings), sort_keys=True)
        return f"{self.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Outcome:
    """A shard that went through a stage; ``unchanged`` where the recorded output was current and nothing was done."""

    record: Record
    unchanged: bool
    seconds: float


def take_through(stage: Stage, key: str, settings: Settings) -> Outcome:
    """Bring the output of ``stage`` for one shard up to date.

    Raises:
        ShardError: an input was never made, or the raw shard changed while it was read.
        InterleavedError: whatever the stage says of the shard; nothing is recorded then.
    """
    if stage.run is None:
        ((_, outcome),) = take_together(stage, [key], settings)
        if isinstance(outcome, InterleavedError):
            raise outcome
        return outcome
    job = _Job.of(stage, key, settings)
    if job.current is not None:
        return job.current
    job.begin()
    return job.finish(stage.run(job.shard))


def take_together(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, Outcome | InterleavedError]]:
    """Bring the outputs of many shards up to date in one go; gives each key with its outcome, or what is wrong with it.

    Raises:
        Exception: whatever stops the work as a whole, such as a device that fails; shards given before stand.
    """
    assert stage.together is not None
    jobs: dict[str, _Job] = {}
    for key in keys:
        try:
            job = _Job.of(stage, key, settings)
        except InterleavedError as error:
            yield key, error
            continue
        if job.current is not None:
            yield key, job.current
        else:
            jobs[key] = job

    not_begun: dict[str, InterleavedError] = {}

    def begun() -> Iterator[Shard]:
        for key, job in jobs.items():
            try:
                job.begin()
            except InterleavedError as error:
                not_begun[key] = error
            else:
                yield job.shard

    for key, work in stage.together(begun(), settings) if jobs else ():
        try:
            yield key, work if isinstance(work, InterleavedError) else jobs[key].finish(work)
        except InterleavedError as error:
            yield key, error
    yield from not_begun.items()


@dataclass
class _Job:
    """One shard at one stage, from the comparison with its record to the new record."""

    stage: Stage
    shard: Shard
    inputs: dict[str, str]
    source: Source | None
    recorded: Record | None
    current: Outcome | None = None
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, stage: Stage, key: str, settings: Settings) -> "_Job":
        started = time.perf_counter()
        options = settings.storage.options
        paths = ShardPaths(output_root=settings.storage.output_root, key=key)
        recorded = read_record(paths.record(stage.name), options)
        raw, source = None, None
        inputs: dict[str, str] = {}
        for name in stage.inputs:
            if name == RAW_SHARDS:
                raw = find_raw_shard(key, settings.storage)
                version = content_version(raw, settings.storage, recorded.source if recorded else None)
                source = Source(uri=raw.uri, size=raw.size, stamp=raw.stamp, version=version)
                inputs[name] = version
            else:
                upstream = read_record(paths.record(name), options)
                if upstream is None:
                    raise ShardError(f"shard {key}: {stage.name} needs {name}, which has not been materialized for it")
                inputs[name] = upstream.data_version
        job = cls(stage, Shard(key, settings, paths, raw), inputs, source, recorded)
        if recorded is not None and job._is_current(recorded):
            if recorded.source != source:
                # the same content under a new stamp: remember the stamp, so that it is not hashed again
                recorded = recorded.model_copy(update={"source": source})
                write_record(recorded, paths.record(stage.name), options)
            job.current = Outcome(recorded, unchanged=True, seconds=time.perf_counter() - started)
        return job

    def _is_current(self, recorded: Record) -> bool:
        code_version = self.stage.code_version(self.shard.settings)
        return (recorded.inputs, recorded.code_version) == (self.inputs, code_version) and all(
            is_there(output, self.shard.options) for output in recorded.outputs.values()
        )

    def begin(self) -> None:
        """From here on outputs may be replaced one by one: until the end no record may vouch for a mixture."""
        if self.recorded is not None:
            remove_record(self.shard.paths.record(self.stage.name), self.shard.options)

    def finish(self, work: Work) -> Outcome:
        """Commit: write the record of what was done."""
        shard, settings, raw = self.shard, self.shard.settings, self.shard.raw
        if raw is not None and find_raw_shard(shard.key, settings.storage).stamp != raw.stamp:
            raise ShardError(
                f"shard {shard.key}: {raw.uri} changed while it was read; materialize it again once it is complete"
            )
        record = Record(
            stage=self.stage.name,
            shard=shard.key,
            code_version=self.stage.code_version(settings),
            inputs=self.inputs,
            data_version=work.data_version or _content_hash(work.outputs),
            outputs=work.outputs,
            settings=self.stage.settings(settings),
            source=self.source,
            **work.model_dump(include=set(Facts.model_fields)),
        )
        write_record(record, shard.paths.record(self.stage.name), shard.options)
        return Outcome(record, unchanged=False, seconds=time.perf_counter() - self.started)


def _content_hash(outputs: Mapping[str, OutputFile]) -> str:
    """Hash of the content of everything the stage wrote."""
    text = json.dumps({role: output.sha256 for role, output in outputs.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
