"""What a stage is, and how shards are taken through it: nothing current is redone, nothing is left half written."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from interleaved_assets.model.errors import InterleavedError, StorageUnavailable
from interleaved_assets.pipeline.claims import Overtaken
from interleaved_assets.pipeline.in_order import READERS, in_order
from interleaved_assets.pipeline.job import Job
from interleaved_assets.pipeline.shard import Outcome, Shard, Work
from interleaved_assets.settings import Settings

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
    """

    name: str
    inputs: tuple[str, ...]
    version: int
    settings: Callable[[Settings], dict[str, object]]
    run: RunOne | None = None
    together: RunTogether | None = None

    @property
    def same_bytes(self) -> bool:
        """Whether the same inputs always give the same bytes; a device may round differently from run to run."""
        return self.together is None

    def code_version(self, settings: Settings) -> str:
        """Changes when the stage's code or one of its settings does; ``<version>-<hash of settings>``."""
        text = json.dumps(self.settings(settings), sort_keys=True)
        return f"{self.version}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


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
    job = Job.of(stage, key, settings, stage.code_version(settings))
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
    try:
        code_version = stage.code_version(settings)  # once for all: it may be the hash of a large model
    except InterleavedError as error:
        yield from ((key, error) for key in keys)
        return

    def look(key: str) -> Job | Outcome | InterleavedError:
        try:
            job = Job.of(stage, key, settings, code_version)
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
