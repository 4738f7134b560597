"""One shard at one stage: compare it with its record, check that its inputs stay the same, write the new record.

A stage whose record is current is not run again. A record is written last and names the stamps of the outputs, so that
no record is valid for outputs that are half written or that another run has replaced. Runs on one shard and stage at
the same time do not wait for each other: a record is valid if the run that wrote it also wrote all outputs.
"""

import hashlib
import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata

from interleaved_assets.io.storage import read_stamp, remove_file
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.raw.keys import check_key
from interleaved_assets.pipeline.raw.listing import RawSource, find_raw_shard, raw_content_version, raw_shard_again
from interleaved_assets.pipeline.run.record import (
    RAW_SHARDS,
    Facts,
    OutputFile,
    Record,
    record_of,
    with_present_stamps,
    write_record,
)
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageOutcome, Work
from interleaved_assets.settings import Settings

logger = logging.getLogger(__name__)


@dataclass
class Attempt:
    """One shard at one stage, from the comparison with its record to the new record.

    Call :meth:`of`, :meth:`current`, :meth:`begin`, then the function of the stage, then :meth:`finish`; after an error
    :meth:`withdraw`.
    """

    stage: Stage
    shard: ShardTask
    code_version: str
    inputs: dict[str, str]
    """Data version of each input, by stage or by the setting that names it."""
    seen: dict[str, str | None] = field(default_factory=dict)
    """The stamp of each output of another stage that the stage reads, by URI, as of :meth:`begin`; empty before."""
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, stage: Stage, key: str, settings: Settings, code_version: str, files: Mapping[str, str]) -> "Attempt":
        """Read the records of the shard's inputs and its own; ``files`` are the versions of the stage's files.

        Raises:
            OptionError: ``key`` cannot be that of a shard.
            ShardError: an input has no record; a record is damaged.
        """
        started = time.perf_counter()
        check_key(key)  # with another one, outputs would be outside of their folders, or those of another shard
        paths = settings.storage.shard(key)
        recorded = record_of(paths, stage.name)
        raw, source = None, None
        inputs = dict(files)
        read: dict[str, Record] = {}
        for name in stage.inputs:
            if name == RAW_SHARDS:
                known = recorded.source if recorded else None
                raw = find_raw_shard(key, settings.storage, known)
                version = raw_content_version(raw, settings.storage, known)
                source = RawSource(uri=raw.uri, size=raw.size, stamp=raw.stamp, version=version)
                inputs |= {name: version, **stage.source_inputs(raw.uri, settings)}
            else:
                upstream = record_of(paths, name)
                if upstream is None:
                    raise ShardError(f"shard {key}: {stage.name} needs {name}, which has not been materialized for it")
                inputs[name] = upstream.data_version
                read[name] = upstream
                source = source or upstream.source  # all inputs of a stage come from the same raw shard
        packages = installed_versions(stage.packages(settings))
        task = ShardTask(
            key, settings, paths, raw, read, files, packages, recorded, source, score_inputs=stage.score_inputs
        )
        return cls(stage, task, code_version, inputs, started=started)

    @property
    def record_uri(self) -> str:
        return self.shard.paths.record(self.stage.name)

    def current(self) -> StageOutcome | None:
        """Return the outcome if the record is current, else None; renew the stamps of outputs that were only copied."""
        before = self.shard.recorded
        found = self._same_work(before)
        if found is None:
            return None
        renewed = found.model_copy(update={"source": self.shard.source})
        if renewed != before:
            self._renew(self.stage.name, before, renewed)
        return self._unchanged(renewed)

    def begin(self) -> None:
        """Check that the inputs are those recorded.

        Raises ShardError if the outputs of an input stage are not those that its record names.
        """
        shard, options = self.shard, self.shard.options
        for name, upstream in shard.read.items():
            present: Record | None = upstream
            self.seen |= (seen := {rows.uri: read_stamp(rows.uri, options) for rows in upstream.rows_files.values()})
            if any(rows.stamp is None or seen[rows.uri] != rows.stamp for rows in upstream.rows_files.values()):
                present = with_present_stamps(upstream, options)
            if present is None:
                raise ShardError(
                    f"shard {shard.key}: {self.stage.name} needs {name}, whose outputs are not those that its record "
                    f"names: they were deleted or replaced, or a run on {name} is under way or was killed. "
                    f"Materialize {name} again."
                )
            if present != upstream:
                self._renew(name, upstream, present)

    def finish(self, work: Work) -> StageOutcome:
        """Write the record of ``work``, or adopt the record of a run that did the same work and replaced the outputs.

        Raises:
            ShardError: an input changed since :meth:`begin`, or another run replaced outputs and has not recorded the
                same work.
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
            packages=dict(shard.packages),
            source=shard.source,
            seconds=round(time.perf_counter() - self.started, 3),
            **work.model_dump(include=set(Facts.model_fields)),
        )
        present: Record | None = record
        if not all((output.stamp or "").startswith("etag:") for output in work.outputs.values()):
            # an object has the ETag of its upload; if another run has replaced it since, no record of this one is valid
            present = with_present_stamps(record, options)
        if present is None:
            if (made := self._same_work(record_of(self.shard.paths, self.stage.name))) is not None:
                return self._unchanged(made)
            raise ShardError(
                f"shard {shard.key}: another run replaced outputs of {self.stage.name} while this one wrote them; "
                "materialize the shard again"
            )
        write_record(present, self.record_uri, options)
        return StageOutcome(present, unchanged=False, seconds=time.perf_counter() - self.started)

    def withdraw(self) -> None:
        """Remove, after a failure, the record that existed before; an error of the storage is only logged."""
        before = self.shard.recorded
        try:
            if before is not None and record_of(self.shard.paths, self.stage.name) == before:
                remove_file(self.record_uri, self.shard.options)
        except (StorageError, ShardError) as error:
            logger.warning("shard %s: the record of %s is not removed: %s", self.shard.key, self.stage.name, error)

    def _same_work(self, record: Record | None) -> Record | None:
        """Return ``record`` with present stamps if the work is the same, else None.

        The work is the same if inputs, code version, packages and the content of the outputs are.
        """
        if record is None or not is_same_work(record, self.inputs, self.code_version, self.shard.packages):
            return None
        return with_present_stamps(record, self.shard.options)

    def _unchanged(self, record: Record) -> StageOutcome:
        return StageOutcome(record, unchanged=True, seconds=time.perf_counter() - self.started)

    def _renew(self, stage: str, before: Record | None, renewed: Record) -> None:
        """Replace ``before`` by ``renewed``, which has new stamps, unless another record has replaced it since."""
        uri = self.shard.paths.record(stage)
        if record_of(self.shard.paths, stage) == before:
            write_record(renewed, uri, self.shard.options)

    def _check_inputs(self) -> None:
        """Check that the inputs are still the files that existed when the work began.

        If a file in S3 is replaced while it is open, the next read fails.
        """
        shard, raw = self.shard, self.shard.raw
        for uri, seen in self.seen.items():
            if read_stamp(uri, shard.options) != seen:
                raise self._changed(uri, "again")
        if raw is not None and raw_shard_again(raw, shard.settings.storage).stamp != raw.stamp:
            raise self._changed(raw.uri, "again once it is complete")
        if self.stage.files(shard.settings) != shard.files:
            raise ShardError(
                f"shard {shard.key}: a file of {', '.join(shard.files)} changed while it was in use; "
                "materialize it again"
            )

    def _changed(self, uri: str, when: str) -> ShardError:
        return ShardError(f"shard {self.shard.key}: {uri} changed while it was read; materialize it {when}")


def is_same_work(record: Record, inputs: Mapping[str, str], code_version: str, packages: Mapping[str, str]) -> bool:
    """Return whether ``record`` is of the same inputs, code and settings, by packages that compute the same."""
    if (record.inputs, record.code_version) != (inputs, code_version):
        return False
    return not changed_packages(record.packages, packages)


def _content_hash(outputs: Mapping[str, OutputFile]) -> str:
    """Return a hash of the content of all outputs, as 64 hex digits."""
    text = json.dumps({role: output.content for role, output in outputs.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of ``packages``, which are names of distributions; those not installed are left out."""
    found = {name: _version(name) for name in packages}
    return {name: version for name, version in sorted(found.items()) if version is not None}


def changed_packages(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the changes between two sets of versions, such as ``pillow 11.3.0 → 12.0.0``.

    A package that a record does not name, or that is not installed here, counts as unchanged.
    """
    return [
        f"{name} {before[name]} → {version}"
        for name, version in now.items()
        if name in before and feature_release(before[name]) != feature_release(version)
    ]


def feature_release(version: str) -> str:
    """Return the first two numbers of a version: ``4.12`` of ``4.12.0.88``.

    A patch release repairs errors and does not change measurements, so only these are compared.
    """
    return ".".join(version.split(".")[:2])


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
