"""Take a shard through a stage: compare with its record, run the stage's function, write the new record.

Nothing current is redone, and no record vouches for outputs that are half written.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from interleaved_assets.io.storage import checked_commits, clear_leftovers
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageUnavailable
from interleaved_assets.pipeline.claims import Hold, Overtaken, take_hold
from interleaved_assets.pipeline.parallel import READERS, in_order
from interleaved_assets.pipeline.raw.listing import RawShard, Source, content_version, find_raw_shard, raw_shard_at
from interleaved_assets.pipeline.record import (
    RAW_SHARDS,
    Claim,
    Facts,
    OutputFile,
    Record,
    ShardPaths,
    is_there,
    read_state,
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
    read: Mapping[str, Record] = field(default_factory=dict)
    """Records of the stages whose outputs it reads, by stage, as they stood when it began."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Version of each file that the settings name for this stage, such as a checkpoint, by the setting."""
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


__all__ = ["Outcome", "RunOne", "RunTogether", "Shard", "Stage", "Work", "take_through", "take_together"]

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


@dataclass
class Job:
    """One shard at one stage, from the comparison with its record to the new record."""

    stage: Stage
    shard: Shard
    code_version: str
    inputs: dict[str, str]
    """Data version of each input, by stage or by the setting that names it."""
    source: Source | None
    found: Record | Claim | None
    current: Outcome | None = None
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, stage: Stage, key: str, settings: Settings, code_version: str, files: Mapping[str, str]) -> "Job":
        """Look at what the shard's inputs are and at what is recorded of it; ``files`` are those of the stage.

        Raises:
            ShardError: an input was never made, or is being made; a record is damaged.
            StorageError: the raw shard is not there, or something cannot be read.
        """
        started = time.perf_counter()
        options = settings.storage.options
        paths = ShardPaths(output_root=settings.storage.output_root, key=key)
        found = read_state(paths.record(stage.name), options)
        recorded = found if isinstance(found, Record) else None
        raw, source = None, None
        inputs = dict(files)
        read: dict[str, Record] = {}
        for name in stage.inputs:
            if name == RAW_SHARDS:
                known = recorded.source if recorded else None
                raw = find_raw_shard(key, settings.storage, known)
                version = content_version(raw, settings.storage, known)
                source = Source(uri=raw.uri, size=raw.size, stamp=raw.stamp, version=version)
                inputs[name] = version
            else:
                upstream = read_state(paths.record(name), options)
                if not isinstance(upstream, Record):
                    ended = "" if upstream is None else f": a run that began {upstream.began:%F %T} UTC has not ended"
                    raise ShardError(
                        f"shard {key}: {stage.name} needs {name}, which has not been materialized for it{ended}"
                    )
                inputs[name] = upstream.data_version
                read[name] = upstream
                source = source or upstream.source  # every output goes back to one raw shard, and its record says which
        job = cls(stage, Shard(key, settings, paths, raw, read, files), code_version, inputs, source, found)
        if recorded is not None and job._is_current(recorded):
            if recorded.source != source:
                recorded = job._with_new_source(recorded)
            job.current = Outcome(recorded, unchanged=True, seconds=time.perf_counter() - started)
        return job

    @property
    def record_uri(self) -> str:
        return self.shard.paths.record(self.stage.name)

    def _with_new_source(self, recorded: Record) -> Record:
        """The same content under a new stamp: remember the stamp, so that it is not hashed again."""
        renewed = recorded.model_copy(update={"source": self.source})
        # hashing takes a while, in which another run may have claimed the shard
        if read_state(self.record_uri, self.shard.options) == recorded:
            write_record(renewed, self.record_uri, self.shard.options)
        return renewed

    def _is_current(self, recorded: Record) -> bool:
        return (recorded.inputs, recorded.code_version) == (self.inputs, self.code_version) and all(
            is_there(output, self.shard.options) for output in recorded.outputs.values()
        )

    def begin(self) -> None:
        """From here on outputs may be replaced one by one: until the end no record may vouch for a mixture.

        Raises:
            Overtaken: another run has made the same in the meantime.
            StorageError: the shard cannot be claimed.
        """
        shard, stage = self.shard, self.stage
        if isinstance(self.found, Claim):
            for uri in shard.paths.written_by(stage.name):
                clear_leftovers(uri, shard.options)
        hold = take_hold(
            stage.name,
            shard.key,
            self.record_uri,
            shard.options,
            code_version=self.code_version,
            inputs=self.inputs,
            same_bytes=stage.same_bytes,
        )
        self.shard = replace(shard, hold=hold)

    def release(self) -> None:
        """After a failure: take the claim back, where there is one."""
        if self.shard.hold is not None:
            self.shard.hold.release()

    def finish(self, work: Work) -> Outcome:
        """Commit: write the record of what was done.

        Raises:
            Overtaken: another run has made the same in the meantime.
            ShardError: an input changed in the meantime, or another run made something else of the shard.
        """
        assert self.shard.hold is not None
        self._check_inputs()
        record = Record(
            stage=self.stage.name,
            shard=self.shard.key,
            code_version=self.code_version,
            inputs=self.inputs,
            data_version=work.data_version or _content_hash(work.outputs),
            outputs=work.outputs,
            settings=self.stage.settings(self.shard.settings),
            source=self.source,
            **work.model_dump(include=set(Facts.model_fields)),
        )
        self.shard.hold.commit(record)
        return Outcome(record, unchanged=False, seconds=time.perf_counter() - self.started)

    def overtaken(self, by: Overtaken) -> Outcome:
        """The outcome where another run has made the same."""
        return Outcome(by.record, unchanged=True, seconds=time.perf_counter() - self.started)

    def _check_inputs(self) -> None:
        """Make sure that the inputs are still those that were recorded when this run began.

        A claim counts as a change whatever it is for: what was recorded is made again only where it does not lie there
        any more, and what has lain there in the meantime nobody can tell. Two whole runs upstream, one that makes
        something else and one that makes what was there before, would not be seen.
        """
        shard, raw = self.shard, self.shard.raw
        if raw is not None and raw_shard_at(raw.uri, shard.key, shard.settings.storage).stamp != raw.stamp:
            raise ShardError(
                f"shard {shard.key}: {raw.uri} changed while it was read; materialize it again once it is complete"
            )
        for name, before in shard.read.items():
            now = read_state(shard.paths.record(name), shard.options)
            if not isinstance(now, Record) or now.data_version != before.data_version:
                raise ShardError(f"shard {shard.key}: {name} changed while it was read; materialize it again")
        if self.stage.files(shard.settings) != shard.files:
            raise ShardError(
                f"shard {shard.key}: a file of {', '.join(shard.files)} changed while it was in use; "
                "materialize it again"
            )


def _content_hash(outputs: Mapping[str, OutputFile]) -> str:
    """Hash of the content of everything the stage wrote."""
    text = json.dumps({role: output.sha256 for role, output in outputs.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def take_through(stage: Stage, key: str, settings: Settings) -> Outcome:
    """Bring the output of ``stage`` for one shard up to date.

    Raises:
        ShardError: an input was never made, or changed while it was read, or another run on the same shard and stage
            came in between.
        InterleavedError: whatever the stage says of the shard; nothing is recorded then.
    """
    if stage.run is None:
        ((_, outcome),) = take_together(stage, [key], settings)
        if isinstance(outcome, InterleavedError):
            raise outcome
        return outcome
    job = Job.of(stage, key, settings, stage.code_version(settings), stage.files(settings))
    if job.current is not None:
        return job.current
    try:
        job.begin()
        with job.shard.committing():
            work = stage.run(job.shard)
        return job.finish(work)
    except Overtaken as error:
        return job.overtaken(error)
    except Exception:
        # not where the run itself is ended: that leaves the claim, as a sign that the shard was under way
        job.release()
        raise


def take_together(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, Outcome | InterleavedError]]:
    """Bring the outputs of many shards up to date in one go; gives each key with its outcome, or what is wrong with it.

    A storage that does not answer is the outcome of the shards that wait for it, of all that are not done where it
    concerns them all: each of them may be tried again.

    Raises:
        Exception: whatever else stops the work as a whole, such as a device that fails; shards given before stand.
    """
    assert stage.together is not None
    jobs: dict[str, Job] = {}
    for key, found in _looked_at(stage, keys, settings):
        if isinstance(found, Job):
            jobs[key] = found
        else:
            yield key, found

    not_begun: dict[str, Outcome | InterleavedError] = {}

    def begun() -> Iterator[Shard]:
        for key, job in jobs.items():
            try:
                job.begin()
            except Overtaken as error:
                not_begun[key] = job.overtaken(error)
            except InterleavedError as error:
                not_begun[key] = error
            else:
                yield job.shard

    left = dict.fromkeys(jobs)
    try:
        for key, work in stage.together(begun(), settings) if jobs else ():
            del left[key]
            yield key, _finished(jobs[key], work)
    except StorageUnavailable as error:
        for key in left:
            jobs[key].release()
        yield from ((key, not_begun.get(key, error)) for key in left)
    except Exception:
        # not where the run itself is ended: that leaves claims, as a sign that shards were under way
        for key in left:
            jobs[key].release()
        raise
    else:
        yield from not_begun.items()


def _looked_at(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, Job | Outcome | InterleavedError]]:
    """Each key with what there is to do, or the outcome where there is nothing to do; many at a time."""
    keys = list(keys)
    code_version = stage.code_version(settings)
    try:
        files = stage.files(settings)  # once for all: it may be the hash of a large model
    except InterleavedError as error:
        yield from ((key, error) for key in keys)
        return

    def look(key: str) -> Job | Outcome | InterleavedError:
        try:
            job = Job.of(stage, key, settings, code_version, files)
        except InterleavedError as error:
            return error
        return job if job.current is None else job.current

    yield from zip(keys, in_order(look, keys, threads=READERS), strict=True)


def _finished(job: Job, work: Work | InterleavedError) -> Outcome | InterleavedError:
    try:
        if isinstance(work, InterleavedError):
            raise work
        return job.finish(work)
    except Overtaken as error:
        return job.overtaken(error)
    except InterleavedError as error:
        job.release()
        return error
