"""One shard on its way through one stage: from the comparison with its record to the new record."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from interleaved_assets.io.storage import clear_leftovers
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.claims import Overtaken, take_hold
from interleaved_assets.pipeline.raw import Source, content_version, find_raw_shard, raw_shard_at
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
from interleaved_assets.pipeline.shard import Outcome, Shard, Work
from interleaved_assets.settings import Settings

if TYPE_CHECKING:
    from interleaved_assets.pipeline.stage import Stage


@dataclass
class Job:
    """One shard at one stage, from the comparison with its record to the new record."""

    stage: "Stage"
    shard: Shard
    code_version: str
    inputs: dict[str, str]
    """Data version of each input, by stage."""
    source: Source | None
    found: Record | Claim | None
    current: Outcome | None = None
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, stage: "Stage", key: str, settings: Settings, code_version: str) -> "Job":
        """Look at what the shard's inputs are and at what is recorded of it.

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
        inputs: dict[str, str] = {}
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
        job = cls(stage, Shard(key, settings, paths, raw, read), code_version, inputs, source, found)
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


def _content_hash(outputs: Mapping[str, OutputFile]) -> str:
    """Hash of the content of everything the stage wrote."""
    text = json.dumps({role: output.sha256 for role, output in outputs.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
