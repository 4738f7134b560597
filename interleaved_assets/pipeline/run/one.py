"""Bring a stage's outputs up to date, for one shard or for many with one call of the stage's function."""

import time
from collections.abc import Iterable, Iterator

from interleaved_assets.model.errors import InterleavedError, ShardError, StorageUnavailable
from interleaved_assets.pipeline.run.attempt import Attempt
from interleaved_assets.pipeline.run.stage import ShardTask, Stage, StageOutcome, Work
from interleaved_assets.pipeline.run.threads import READERS, parallel_map
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
        if isinstance(outcome, InterleavedError):
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
) -> Iterator[tuple[str, StageOutcome | InterleavedError]]:
    """Bring the outputs of many shards up to date with one call; yield each key with its outcome or its error.

    StorageUnavailable is the outcome of a shard whose files the storage does not serve, and of every unfinished shard
    if the stage's function raises it. Such shards can be tried again.

    Raises:
        ShardError: the stage's function gave no result for a shard.
        Exception: any other error that stops the work as a whole, such as a failing device; the outcomes of the shards
            yielded before remain valid.
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
    not_begun: dict[str, StageOutcome | InterleavedError] = {}

    def begin() -> Iterator[ShardTask]:
        for key, attempt in attempts.items():
            try:
                outcome: StageOutcome | InterleavedError | None = attempt.made_since()
                if outcome is None:
                    attempt.begin()
            except InterleavedError as error:
                outcome = error
            if outcome is None:
                begun.add(key)
                yield attempt.shard
            else:
                not_begun[key] = outcome

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
        if not isinstance(error, StorageUnavailable):
            raise
        yield from ((key, not_begun.get(key, error)) for key in left)
    else:
        yield from not_begun.items()


def _attempts(
    stage: Stage, keys: Iterable[str], settings: Settings
) -> Iterator[tuple[str, Attempt | StageOutcome | InterleavedError]]:
    """Compare many shards at a time; yield each key with its attempt, or with its outcome if its record is current."""
    keys = list(keys)
    code_version = stage.code_version(settings)
    try:
        files = stage.files(settings)  # once for all shards: this may hash a large model
    except InterleavedError as error:
        yield from ((key, error) for key in keys)
        return

    def prepare(key: str) -> Attempt | StageOutcome | InterleavedError:
        try:
            attempt = Attempt.of(stage, key, settings, code_version, files)
            return attempt.current() or attempt
        except InterleavedError as error:
            return error

    yield from zip(keys, parallel_map(prepare, keys, threads=READERS), strict=True)


def _finish(attempt: Attempt, work: Work | InterleavedError) -> StageOutcome | InterleavedError:
    try:
        if isinstance(work, InterleavedError):
            raise work
        return attempt.finish(work)
    except InterleavedError as error:
        attempt.withdraw()
        return error
