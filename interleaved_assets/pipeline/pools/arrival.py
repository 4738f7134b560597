"""What a pool gives for each shard."""

from typing import Final, Generic, NamedTuple, TypeVar

from interleaved_assets.model.errors import ShardTimeout

Result = TypeVar("Result")

TICK_S: Final = 1.0
"""Seconds after which a pool that has nothing to give yields None, so that its caller can report progress."""


class Arrival(NamedTuple, Generic[Result]):
    """The result of one shard, or the error that it failed with."""

    key: str
    result: Result | BaseException
    host: str = ""
    """Address of the cluster's node that did the work; empty for this process."""
    queue_seconds: float = 0.0
    """Seconds from the moment that the shard was given to the cluster until a worker began with it."""


def too_slow(key: str, name: str, limit_s: float) -> ShardTimeout:
    """The error of a shard that took longer than ``run.max_shard_seconds``."""
    return ShardTimeout(
        f"shard {key}: {name} was stopped because it took longer than run.max_shard_seconds = {limit_s:g}: "
        "its worker or the storage hangs, or the shard is larger than that time allows. Look at the shard, then raise "
        "the limit or materialize it again"
    )
