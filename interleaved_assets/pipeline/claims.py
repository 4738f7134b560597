"""Two runs on one shard and stage at once: which of them may write, so that no record vouches for a mixture.

A run claims the shard before it touches an output, by a :class:`~interleaved_assets.pipeline.record.Claim` in the
record's place; a later run takes the claim over. No lock is held: object stores have none, and a run that was killed
could not give one back. Instead a run looks before it commits an output, and again before it commits the record:

* the claim is its own: it goes on;
* another run has taken it over: it goes on where both make the same bytes from the same inputs, so that it does not
  matter which of them does, and where no run on other work was in between, which may have left other outputs; else it
  gives up, and the other has the last word;
* another run has recorded: where that has made the same, its record is the outcome; else this run gives up;
* nothing stands there: a run that took it over has failed, and this run gives up as well, since it cannot know what
  was made in the meantime.

Between a look and what follows it lies a moment, for plain storage has no way to compare and write in one go: the
commit of an output, mostly milliseconds, and in a bucket the time its last part takes to arrive. To do harm in it,
another run would have to begin and come as far as to look before it commits an output of its own, with all its work
on that output in between. No order in which no run does that ends in a record that is not true.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.record import Claim, Record, is_there, read_state, remove_record, write_record

logger = logging.getLogger(__name__)


class Overtaken(ShardError):
    """Another run has made the same in the meantime; ``record`` is what it recorded."""

    def __init__(self, record: Record) -> None:
        self.record = record
        super().__init__(record)  # as the only argument, so that it pickles

    def __str__(self) -> str:
        return f"shard {self.record.shard}: another run has just made {self.record.stage} from the same inputs"


@dataclass(frozen=True)
class Hold:
    """A run's hold on one shard at one stage, from its claim to its record. Made by :func:`take_hold`.

    Attributes:
        claim: the claim of this run.
        uri: where claim and record lie.
        storage_options: what fsspec needs.
        same_bytes: whether the same inputs under the same code version always give the same bytes.
    """

    claim: Claim
    uri: str
    storage_options: Mapping[str, object]
    same_bytes: bool

    def check(self) -> None:
        """Make sure that this run may still write.

        Raises:
            Overtaken: another run has made the same in the meantime.
            ShardError: another run took the shard over, or made something else of it.
        """
        found, claim = read_state(self.uri, self.storage_options), self.claim
        if isinstance(found, Claim):
            if found.claimed_by == claim.claimed_by or (self.same_bytes and claim.claimed_by in found.follows):
                return
            outcome = "took it over and has the last word; materialize the shard again if that run does not end well"
        elif isinstance(found, Record):
            if _has_made_it(found, claim, self.storage_options):
                raise Overtaken(found)
            outcome = "has recorded what it made; materialize the shard again to have it current"
        else:
            outcome = "has failed at it, or its record was deleted; materialize the shard again"
        raise ShardError(f"shard {claim.shard}: {claim.stage} was given up: another run {outcome}")

    def commit(self, record: Record) -> None:
        """Write ``record`` in place of the claim.

        Raises:
            Overtaken, ShardError: as for :meth:`check`.
        """
        self.check()
        write_record(record, self.uri, self.storage_options)

    def release(self) -> None:
        """Take the claim back after a failure, unless another run has taken it over.

        Called beside the error that a run failed with: what goes wrong here is only logged.
        """
        try:
            found = read_state(self.uri, self.storage_options)
            if isinstance(found, Claim) and found.claimed_by == self.claim.claimed_by:
                remove_record(self.uri, self.storage_options)
        except (StorageError, ShardError) as error:
            logger.warning("shard %s: the claim on %s stays: %s", self.claim.shard, self.claim.stage, error)


def take_hold(
    stage: str,
    shard: str,
    uri: str,
    storage_options: Mapping[str, object],
    *,
    code_version: str,
    inputs: Mapping[str, str],
    same_bytes: bool,
) -> Hold:
    """Put a claim in place of the record at ``uri``: from here on no record vouches for the outputs.

    Raises:
        Overtaken: another run has made the same in the meantime; its record stays.
        ShardError: what stands there is no record of ours.
        StorageError: the claim cannot be written.
    """
    claim = Claim(
        stage=stage,
        shard=shard,
        claimed_by=uuid.uuid4().hex,
        began=datetime.now(UTC),
        code_version=code_version,
        inputs=dict(inputs),
    )
    found = read_state(uri, storage_options)
    if isinstance(found, Record) and _has_made_it(found, claim, storage_options):
        raise Overtaken(found)
    if isinstance(found, Claim) and _same_work(found, claim):
        claim = claim.model_copy(update={"follows": (*found.follows, found.claimed_by)})
    write_record(claim, uri, storage_options)
    return Hold(claim, uri, storage_options, same_bytes)


def _same_work(one: Claim | Record, other: Claim) -> bool:
    """Whether both stand for the same inputs under the same code version, and so for the same data version."""
    return (one.inputs, one.code_version) == (other.inputs, other.code_version)


def _has_made_it(record: Record, claim: Claim, storage_options: Mapping[str, object]) -> bool:
    """Whether ``record`` is of what ``claim`` is for, and its outputs lie there."""
    return _same_work(record, claim) and all(is_there(output, storage_options) for output in record.outputs.values())
