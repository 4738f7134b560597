"""One shard on its way through one stage: from the comparison with its record to the new record."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from interleaved_assets.io.storage import clear_leftovers
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.claims import Hold, Overtaken, same_work, take_hold
from interleaved_assets.pipeline.raw import Source, content_version, find_raw_shard
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

_LONG_SECONDS: Final = 0.5


@dataclass
class Job:
    """One shard at one stage, from the comparison with its record to the new record."""

    stage: "Stage"
    shard: Shard
    inputs: dict[str, str]
    read: dict[str, Record]
    """Records of the stages whose outputs are read."""
    source: Source | None
    found: Record | Claim | None
    current: Outcome | None = None
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, stage: "Stage", key: str, settings: Settings) -> "Job":
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
                raw = find_raw_shard(key, settings.storage)
                version = content_version(raw, settings.storage, recorded.source if recorded else None)
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
        if time.perf_counter() - started > _LONG_SECONDS:
            # hashing a large shard takes a while, in which another run may have ended
            found = read_state(paths.record(stage.name), options)
            recorded = found if isinstance(found, Record) else None
        job = cls(stage, Shard(key, settings, paths, raw), inputs, read, source, found)
        if recorded is not None and job._is_current(recorded):
            if recorded.source != source:
                recorded = job._with_new_source(recorded)
            job.current = Outcome(recorded, unchanged=True, seconds=time.perf_counter() - started)
        return job

    @property
    def record_uri(self) -> str:
        return self.shard.paths.record(self.stage.name)

    @cached_property
    def code_version(self) -> str:
        return self.stage.code_version(self.shard.settings)

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

    def begin(self) -> Hold:
        """From here on outputs may be replaced one by one: until the end no record may vouch for a mixture."""
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
        return hold

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
        shard, raw = self.shard, self.shard.raw
        if raw is not None and find_raw_shard(shard.key, shard.settings.storage).stamp != raw.stamp:
            raise ShardError(
                f"shard {shard.key}: {raw.uri} changed while it was read; materialize it again once it is complete"
            )
        for name, before in self.read.items():
            now = read_state(shard.paths.record(name), shard.options)
            # a run that makes the same again replaces it by the same
            is_same = (
                same_work(now, before)
                if isinstance(now, Claim)
                else now is not None and (now.data_version == before.data_version)
            )
            if not is_same:
                raise ShardError(f"shard {shard.key}: {name} changed while it was read; materialize it again")


def _content_hash(outputs: Mapping[str, OutputFile]) -> str:
    """Hash of the content of everything the stage wrote."""
    text = json.dumps({role: output.sha256 for role, output in outputs.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
