"""Bring a stage's outputs up to date, for one shard or for many with one call of the stage's function."""

import time
from collections.abc import Iterable, Iterator

from interleaved_assets.model.errors import InterleavedError, ShardError, StorageUnavailable, describe
from interleaved_assets.pipeline.run.attempt import Attempt
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageOutcome, Work
from interleaved_assets.pipeline.run.threads import READERS, found_or_error
from interleaved_assets.settings import Settings


def take_through(stage: Stage, key: str, settings: Settings) -> StageOutcome:
    """Bring the output of ``stage`` for one shard up to date.

    Raises:
        ShardError: an input was never made, or changed while it was read, or another run on the same shard and stage
            came in between.
        InterleavedError: the stage's function failed on the shard; nothing is recorded then.
    """
    if stage.run is None:
        ((_, outcome),) = take_together(stage, [key], settings)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome
    attempt = Attempt.of(stage, key, settings, stage.code_version(settings), stage.files(settings))
    if (done := attempt.current()) is not None:
        return done
    attempt.begin()
    try:
        return attempt.finish(stage.run(attempt.shard))
    except Exception:
        # not after KeyboardInterrupt or SystemExit: a run that is being ended has no time to write to storage
        attempt.withdraw()
        raise


def take_together(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, StageOutcome | Exception]]:
    """Bring the outputs of many shards up to date with one call; yield each key with its outcome or its error.

    An error that ends the work as a whole, such as a failing device, is the outcome of every unfinished shard. Shards
    with the outcome StorageUnavailable can be tried again.
    """
    assert stage.together is not None
    attempts: dict[str, Attempt] = {}
    for key, found in _attempts(stage, keys, settings):
        if isinstance(found, Attempt):
            attempts[key] = found
        else:
            yield key, found

    left = dict.fromkeys(attempts)
    begun: set[str] = set()
    not_begun: dict[str, InterleavedError] = {}

    def begin() -> Iterator[ShardTask]:
        for key, attempt in attempts.items():
            try:
                attempt.begin()
            except InterleavedError as error:
                not_begun[key] = error
            else:
                begun.add(key)
                yield attempt.shard

    try:
        since = time.perf_counter()
        for key, work in stage.together(begin(), settings) if attempts else ():
            del left[key]
            attempts[key].started = since  # shards are read ahead: a shard's time begins when the one before ended
            yield key, _finish(attempts[key], work)
            since = time.perf_counter()
        if missing := [key for key in left if key not in not_begun]:
            raise ShardError(
                f"shard {', '.join(missing)}: {stage.name} ended without a result for it; this is an error of the "
                "stage's function, which has to give the work or an error for every shard"
            )
    except Exception as error:
        # not after KeyboardInterrupt or SystemExit: a run that is being ended has no time to write to storage
        for key in begun & left.keys():
            attempts[key].withdraw()
        if not left:
            raise
        ended_by: Exception = error
        for key in left:
            yield key, not_begun.get(key, ended_by)
            if not isinstance(error, StorageUnavailable):
                ended_by = ShardError(describe(error))  # only the first shard keeps the traceback of a defect
    else:
        yield from not_begun.items()


def _attempts(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, Attempt | StageOutcome | InterleavedError]]:
    """Compare many shards at a time; yield each key with its attempt, or with its outcome if its record is current."""
    code_version = stage.code_version(settings)
    try:
        files = stage.files(settings)  # once for all shards: this may hash a large model
    except InterleavedError as error:
        yield from ((key, error) for key in keys)
        return

    def prepare(key: str) -> Attempt | StageOutcome:
        attempt = Attempt.of(stage, key, settings, code_version, files)
        return attempt.current() or attempt

    yield from found_or_error(prepare, keys, threads=READERS)


def _finish(attempt: Attempt, work: Work | InterleavedError) -> StageOutcome | InterleavedError:
    try:
        if isinstance(work, InterleavedError):
            raise work
        return attempt.finish(work)
    except InterleavedError as error:
        attempt.withdraw()
        return error
