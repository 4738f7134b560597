"""Take a shard through a stage: compare with its record, run the stage's function, write the new record.

Nothing current is redone. A record is written last and names the stamps of the outputs, so that none is valid for
outputs that are half written or that another run has replaced. Runs on one shard and stage at the same time do not wait
for each other: a record is valid if all outputs are of the run that wrote it, and none is if they are of several.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from interleaved_assets.io.storage import clear_leftovers, read_stamp
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError, StorageUnavailable
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.raw.listing import (
    RawShard,
    RawSource,
    find_raw_shard,
    raw_content_version,
    raw_shard_at,
)
from interleaved_assets.pipeline.record import (
    RAW_SHARDS,
    Facts,
    OutputFile,
    Record,
    ShardPaths,
    read_record,
    remove_record,
    with_present_stamps,
    write_record,
)
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)


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


__all__ = ["RunOne", "RunTogether", "ShardTask", "Stage", "StageOutcome", "Work", "take_through", "take_together"]

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


@dataclass
class Attempt:
    """One shard at one stage, from the comparison with its record to the new record."""

    stage: Stage
    shard: ShardTask
    code_version: str
    inputs: dict[str, str]
    """Data version of each input, by stage or by the setting that names it."""
    source: RawSource | None
    found: Record | None
    """The record that was there before."""
    stamps: dict[str, str | None] = field(default_factory=dict)
    """Stamp of each output of the stages that are read, by URI, when the work began; empty before."""
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, stage: Stage, key: str, settings: Settings, code_version: str, files: Mapping[str, str]) -> "Attempt":
        """Look at the shard's inputs and at its record; ``files`` are those of the stage.

        Raises:
            ShardError: an input was never made; a record is damaged.
            StorageError: the raw shard is not there, or something cannot be read.
        """
        started = time.perf_counter()
        options = settings.storage.options
        paths = ShardPaths(output_root=settings.storage.output_root, key=key)
        recorded = read_record(paths.record(stage.name), options)
        raw, source = None, None
        inputs = dict(files)
        read: dict[str, Record] = {}
        for name in stage.inputs:
            if name == RAW_SHARDS:
                known = recorded.source if recorded else None
                raw = find_raw_shard(key, settings.storage, known)
                version = raw_content_version(raw, settings.storage, known)
                source = RawSource(uri=raw.uri, size=raw.size, stamp=raw.stamp, version=version)
                inputs[name] = version
            else:
                upstream = read_record(paths.record(name), options)
                if upstream is None:
                    raise ShardError(f"shard {key}: {stage.name} needs {name}, which has not been materialized for it")
                inputs[name] = upstream.data_version
                read[name] = upstream
                source = source or upstream.source  # every output goes back to one raw shard, and its record says which
        task = ShardTask(key, settings, paths, raw, read, files)
        return cls(stage, task, code_version, inputs, source, recorded, {}, started)

    @property
    def record_uri(self) -> str:
        return self.shard.paths.record(self.stage.name)

    def current(self) -> StageOutcome | None:
        """The outcome if the record that was found is current; its stamps are renewed where files were only copied.

        Raises:
            StorageError: an output cannot be looked at.
        """
        found = self._same_work(self.found)
        if found is None:
            return None
        renewed = found.model_copy(update={"source": self.source})
        if renewed != self.found:
            self._renew(self.stage.name, self.found, renewed)
        return self._unchanged(renewed)

    def begin(self) -> StageOutcome | None:
        """Make sure that the inputs are those recorded; gives the outcome if another run has done the work meanwhile.

        Raises:
            ShardError: the outputs of a stage that is read are not those that its record names.
            StorageError: something cannot be looked at.
        """
        shard, options = self.shard, self.shard.options
        now = read_record(self.record_uri, options)
        if now != self.found:
            self.found = now
            if (made := self._same_work(now)) is not None:
                return self._unchanged(made)
        for name, upstream in shard.read.items():
            present = with_present_stamps(upstream, options)
            if present is None:
                raise ShardError(
                    f"shard {shard.key}: {self.stage.name} needs {name}, whose outputs are not those that its record "
                    f"names: they were deleted or replaced, or a run on {name} is under way or was killed. "
                    f"Materialize {name} again."
                )
            if present != upstream:
                self._renew(name, upstream, present)
            self.stamps |= {output.uri: output.stamp for output in present.outputs.values()}
        for uri in (*shard.paths.outputs(self.stage.name).values(), self.record_uri):
            clear_leftovers(uri, options)
        return None

    def finish(self, work: Work) -> StageOutcome:
        """Write the record of the work, or adopt that of another run which did the same work and replaced the outputs.

        Raises:
            ShardError: an input changed in the meantime, or another run replaced outputs and has not recorded the same
                work.
        """
        shard, options = self.shard, self.shard.options
        self._check_inputs()
        record = Record(
            stage=self.stage.name,
            shard=shard.key,
            code_version=self.code_version,
            inputs=self.inputs,
            data_version=work.data_version or _content_hash(work.outputs),
            outputs=work.outputs,
            settings=self.stage.settings(shard.settings),
            source=self.source,
            **work.model_dump(include=set(Facts.model_fields)),
        )
        present = with_present_stamps(record, options)
        if present is None:
            if (made := self._same_work(read_record(self.record_uri, options))) is not None:
                return self._unchanged(made)
            raise ShardError(
                f"shard {shard.key}: another run replaced outputs of {self.stage.name} while this one wrote them; "
                "materialize the shard again"
            )
        write_record(present, self.record_uri, options)
        return StageOutcome(present, unchanged=False, seconds=time.perf_counter() - self.started)

    def withdraw(self) -> None:
        """After a failure: remove the record that was there before, so that the shard does not count as made.

        Called beside the error that the stage failed with: what goes wrong here is only logged.
        """
        try:
            if self.found is not None and read_record(self.record_uri, self.shard.options) == self.found:
                remove_record(self.record_uri, self.shard.options)
        except (StorageError, ShardError) as error:
            logger.warning("shard %s: the record of %s stays: %s", self.shard.key, self.stage.name, error)

    def _same_work(self, record: Record | None) -> Record | None:
        """``record`` with present stamps if it is of the same inputs and code version and its outputs are there."""
        if record is None or (record.inputs, record.code_version) != (self.inputs, self.code_version):
            return None
        return with_present_stamps(record, self.shard.options)

    def _unchanged(self, record: Record) -> StageOutcome:
        return StageOutcome(record, unchanged=True, seconds=time.perf_counter() - self.started)

    def _renew(self, stage: str, before: Record | None, renewed: Record) -> None:
        """Write the same record with new stamps, so that no content is compared again, unless it is another by now."""
        uri = self.shard.paths.record(stage)
        if read_record(uri, self.shard.options) == before:
            write_record(renewed, uri, self.shard.options)

    def _check_inputs(self) -> None:
        """Make sure that the inputs are still the files that were there when the work began.

        An ETag that follows from the content does not show two runs upstream that replace a file and put the same
        content back.
        """
        shard, raw = self.shard, self.shard.raw
        if raw is not None and raw_shard_at(raw.uri, shard.key, shard.settings.storage).stamp != raw.stamp:
            raise ShardError(
                f"shard {shard.key}: {raw.uri} changed while it was read; materialize it again once it is complete"
            )
        for name, upstream in shard.read.items():
            if any(read_stamp(file.uri, shard.options) != self.stamps[file.uri] for file in upstream.outputs.values()):
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


def take_through(stage: Stage, key: str, settings: Settings) -> StageOutcome:
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
    job = Attempt.of(stage, key, settings, stage.code_version(settings), stage.files(settings))
    if (done := job.current() or job.begin()) is not None:
        return done
    try:
        return job.finish(stage.run(job.shard))
    except Exception:
        # not where the run itself is ended: it has no time left for storage
        job.withdraw()
        raise


def take_together(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, StageOutcome | InterleavedError]]:
    """Bring the outputs of many shards up to date in one go; gives each key with its outcome, or its error.

    Where the storage does not answer, that is the outcome of the shards that need it, and of all shards that are not
    done where it concerns them all: each of them may be tried again.

    Raises:
        ShardError: the stage's function gave no result for a shard.
        Exception: whatever else stops the work as a whole, such as a device that fails; shards given before stand.
    """
    assert stage.together is not None
    jobs: dict[str, Attempt] = {}
    for key, found in _looked_at(stage, keys, settings):
        if isinstance(found, Attempt):
            jobs[key] = found
        else:
            yield key, found

    left = dict.fromkeys(jobs)
    begun: set[str] = set()
    not_begun: dict[str, StageOutcome | InterleavedError] = {}

    def begin() -> Iterator[ShardTask]:
        for key, job in jobs.items():
            try:
                outcome: StageOutcome | InterleavedError | None = job.begin()
            except InterleavedError as error:
                outcome = error
            if outcome is None:
                begun.add(key)
                yield job.shard
            else:
                not_begun[key] = outcome

    try:
        for key, work in stage.together(begin(), settings) if jobs else ():
            del left[key]
            yield key, _finished(jobs[key], work)
        if missing := [key for key in left if key not in not_begun]:
            raise ShardError(
                f"shard {', '.join(missing)}: {stage.name} ended without a result for it; this is an error of the "
                "stage's function, which has to give the work or an error for every shard"
            )
    except StorageUnavailable as error:
        for key in begun & left.keys():
            jobs[key].withdraw()
        yield from ((key, not_begun.get(key, error)) for key in left)
    except Exception:
        # not where the run itself is ended: it has no time left for storage
        for key in begun & left.keys():
            jobs[key].withdraw()
        raise
    else:
        yield from not_begun.items()


def _looked_at(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, Attempt | StageOutcome | InterleavedError]]:
    """Each key with its job, or with the outcome where there is nothing to do; many at a time."""
    keys = list(keys)
    code_version = stage.code_version(settings)
    try:
        files = stage.files(settings)  # once for all: it may be the hash of a large model
    except InterleavedError as error:
        yield from ((key, error) for key in keys)
        return

    def look(key: str) -> Attempt | StageOutcome | InterleavedError:
        try:
            job = Attempt.of(stage, key, settings, code_version, files)
            return job.current() or job
        except InterleavedError as error:
            return error

    yield from zip(keys, parallel_map(look, keys, threads=READERS), strict=True)


def _finished(job: Attempt, work: Work | InterleavedError) -> StageOutcome | InterleavedError:
    try:
        if isinstance(work, InterleavedError):
            raise work
        return job.finish(work)
    except InterleavedError as error:
        job.withdraw()
        return error
