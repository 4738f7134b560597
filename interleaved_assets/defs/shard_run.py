"""The step of one stage over the shards of a run: each shard is recorded on its own, and a failed one stops no other.

A step over a range of partitions that ends the usual way records one data version for all of them, failed ones
included, and stores check results without a partition. Therefore events are logged per shard here, and the output of
the step is marked so that Dagster records nothing for it. ``docs/dagster.md`` has the alternatives that were tried.
"""

import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import dagster as dg

from interleaved_assets.defs.metadata import place_of
from interleaved_assets.defs.private import RECORDS_NOTHING, latest_event_ids
from interleaved_assets.defs.shard_events import (
    LoggedShard,
    record_comparisons,
    record_failure,
    record_success,
)
from interleaved_assets.model.errors import InterleavedError, ShardError, StorageError, describe
from interleaved_assets.pipeline.raw.keys import is_key
from interleaved_assets.pipeline.run.failures import Failure, failed_keys, read_failures, remove_record, store_failure
from interleaved_assets.pipeline.run.many import ShardOutcome, take_many
from interleaved_assets.pipeline.run.record import RAW_SHARDS, Record
from interleaved_assets.pipeline.run.stage import Stage
from interleaved_assets.pipeline.stages.dag import downstream_of, stage_dag
from interleaved_assets.reporting.shard.stored_pictures import StoredPictures, draw_pictures
from interleaved_assets.reporting.wording.text import counted
from interleaved_assets.settings import Settings

_BACKFILL: Final = "dagster/backfill"
"""Dagster's tag on the runs of a backfill."""
_REPEAT: Final = "once the cause is mended, press Materialize all on the Lineage page, and choose Failed"
_BEFORE_FAILURE_S: Final = 3.0
"""Seconds between the last events of a run and its failure. A tick of Dagster's backfill daemon first looks for new
materializations, and some tenths of a second later for failed runs. Shards materialized in between would count as
failed forever."""


def run_over_shards(
    context: dg.AssetExecutionContext,
    stage: Stage,
    settings: Settings,
    code_version: str,
) -> Iterator[dg.Output[None]]:
    """Take every shard of this run through ``stage``, in workers or on the Ray cluster, and log each when it is done.

    Raises:
        dg.Failure: the range of the run holds no shard. Or something is missing that this stage needs or, if it is the
            first of the run, another stage of the run; no shard is read then. Or shards failed, and no asset downstream
            of this one is part of the run, or the failure of one could not be stored. The run ends as failed, with the
            good shards recorded. Otherwise the run continues with the good shards, and its last asset fails.
    """
    keys = list(context.partition_keys)
    if not keys:
        # Dagster keeps partitions in the order in which they were added, and a range that runs backwards is empty
        first, last = context.partition_key_range
        raise dg.Failure(
            f"No shard was read: the range of this run, {first} to {last}, holds none any more, because a partition "
            "was deleted and added again since. Materialize what is missing on the Lineage page.",
            allow_retries=False,
        )
    _prepare(context, stage, settings)
    failed: dict[str, Exception] = {}
    recorded: dict[str, LoggedShard] = {}
    unchanged = 0
    input_events = _input_events(context, stage, keys)
    stopped = _stopped_upstream(stage, keys, settings)

    def fail(key: str, error: Exception, first: Failure | None = None) -> None:
        failed[key] = error
        record_failure(context, stage, key, error, first)

    selected = _selected(context, settings)
    for key, first in stopped.items():
        skipped = f"{stage.name} was skipped because {first.stage} failed: {first.error}"
        if first.stage not in selected:  # such as a run that repeats its last step, after the cause was mended
            skipped += f" ({first.when}; this run does not repeat {first.stage}: {_REPEAT})"
        fail(key, ShardError(skipped), first)
    for one in take_many(
        [stage],
        [key for key in keys if key not in stopped],
        settings,
        then=partial(draw_pictures, settings=settings),
        cluster=settings.run.executor == "ray",
        log=context.log.info,
    ):
        key, made = one.key, one.result
        if isinstance(made, Exception):
            fail(key, made)
            continue
        if isinstance(made.shown, str):
            context.log.error(f"{stage.name}, shard {key}: pictures could not be drawn: {made.shown}")
        unchanged += made.unchanged
        shown = {**shard_pictures(made.record, made.shown, settings), **_work_place(one)}
        try:
            recorded[key] = record_success(context, stage, made, shown, input_events[key], code_version, settings)
        # a check of a plugin may raise anything, and so may Dagster's database; it concerns this shard only
        except Exception as error:  # noqa: BLE001
            fail(key, error)
            # a failure beside a record that cannot be removed would stop the next stage in every run
            if remove_record(key, stage.name, settings.storage):
                store_failure(key, stage.name, error, settings.storage)
    if unchanged:
        context.log.info(f"{stage.name}: current and left unchanged: {unchanged} of {counted(len(keys), 'shard')}")
    if recorded and any(check.compares for check in stage.checks):
        record_comparisons(context, stage, recorded, settings)
    is_last = not downstream_of(stage.name, stage_dag(settings)) & selected
    if failed and (is_last or _is_unstored(failed.keys() - stopped.keys(), stage, settings)):
        if _BACKFILL in context.run.tags:
            time.sleep(_BEFORE_FAILURE_S)
        raise dg.Failure(
            description=_summary(stage, failed, len(keys), stopped),
            # a key has up to 200 characters, and as the name of an entry leaves little room for the error
            metadata={
                "failed_shards": dg.MetadataValue.table(
                    [dg.TableRecord({"shard": key, "error": describe(failed[key])}) for key in sorted(failed)]
                )
            },
            allow_retries=False,
        )
    for name in sorted(context.op_execution_context.selected_output_names):
        yield dg.Output(None, output_name=name, metadata={RECORDS_NOTHING: True})


def _prepare(context: dg.AssetExecutionContext, stage: Stage, settings: Settings) -> None:
    """Raise dg.Failure if something is missing for the stages of this run, or in a later step for its stage alone."""
    if settings.run.executor == "ray":
        return  # the work is done on other machines, which have their own packages
    wanted = _selected(context, settings)
    selected = [one for name, one in stage_dag(settings).items() if name in wanted]
    try:
        for one in selected if selected and selected[0].name == stage.name else [stage]:
            one.prepare(settings)
    except InterleavedError as error:
        raise dg.Failure(f"{describe(error)} No shard was read.", allow_retries=False) from error


def _stopped_upstream(stage: Stage, keys: Sequence[str], settings: Settings) -> dict[str, Failure]:
    """Return the failure of each shard that failed last at a stage before ``stage``.

    Its old outputs may still exist. A later stage made from them would show a failed shard as current.
    """
    stages = stage_dag(settings)
    failures = read_failures(settings.storage, [name for name in stages if stage.name in downstream_of(name, stages)])
    wanted = set(keys)
    return {key: failure for found in failures.values() for key, failure in found.items() if key in wanted}


def _is_unstored(failed: Iterable[str], stage: Stage, settings: Settings) -> bool:
    """Return whether the failure of a shard at ``stage`` is not stored; ``failed`` are the shards that failed there.

    Later steps do not know of it: they would lack an input, or take the shard's outputs of before and succeed.
    """
    expected = {key for key in failed if is_key(key)}
    try:
        return not expected.issubset(failed_keys(settings.storage, stage.name))
    except StorageError:
        return True  # later steps cannot list them either; the errors of the shards say more


def _selected(context: dg.AssetExecutionContext, settings: Settings) -> set[str]:
    """Return the names of the stages that this run executes; no selection means every asset of the job.

    A run that repeats another one in part has the same selection but executes only some steps; steps are named after
    the stages.
    """
    selection, steps = context.run.asset_selection, context.run.step_keys_to_execute
    selected = {key.path[-1] for key in selection} if selection else set(stage_dag(settings))
    return selected if steps is None else selected & set(steps)


def _input_events(context: dg.AssetExecutionContext, stage: Stage, keys: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return, for each shard, the id of the latest event of each input that has one; one query per input."""
    events: dict[str, dict[str, int]] = {key: {} for key in keys}
    for name in stage.inputs:
        # raw shards are observed, other assets are materialized
        kind = (
            dg.DagsterEventType.ASSET_OBSERVATION if name == RAW_SHARDS else dg.DagsterEventType.ASSET_MATERIALIZATION
        )
        for key, event in latest_event_ids(context.instance, dg.AssetKey(name), kind, keys).items():
            events[key][name] = event
    return events


def _work_place(one: ShardOutcome) -> dict[str, dg.MetadataValue]:
    """Return the node of the cluster that made a shard, and the seconds that the shard waited for it.

    The result is empty without a cluster.
    """
    if not one.host:
        return {}
    waited = round(one.queue_seconds, 3)
    return {"queue_seconds": dg.MetadataValue.float(waited), "host": dg.MetadataValue.text(one.host)}


def _summary(stage: Stage, failed: Mapping[str, Exception], total: int, stopped: Mapping[str, Failure]) -> str:
    # the steps of earlier stages have ended as succeeded, so the message says at which of them shards failed
    at = Counter(stopped[key].stage if key in stopped else stage.name for key in failed)
    where = f" ({', '.join(f'{number} at {name}' for name, number in at.items())})" if stopped else ""
    alike: dict[str, list[str]] = {}
    for key, error in sorted(failed.items()):
        alike.setdefault(describe(error), []).append(key)
    lines = [
        f"{keys[0]}{f' and {len(keys) - 1} more' if len(keys) > 1 else ''}: {error}" for error, keys in alike.items()
    ]
    shown = "\n".join(lines[:10]) + (f"\n… and {len(lines) - 10} more errors" if len(lines) > 10 else "")
    others = ", the others are materialized" if len(failed) < total else ""
    return f"{stage.name}: {len(failed)} of {total} shards failed{where}{others}.\n{shown}"


def shard_pictures(
    record: Record, stored: StoredPictures | str | None, settings: Settings
) -> dict[str, dg.MetadataValue]:
    """Return the entries of a shard's page: its first dropped rows, its pictures as one entry, its page's place.

    ``stored`` is the result of :func:`.draw_pictures`.
    """
    if isinstance(stored, str):
        return {"pictures": dg.MetadataValue.text(f"could not be drawn: {stored}")}
    if stored is None:
        return {}
    metadata: dict[str, dg.MetadataValue] = {}
    if stored.drops:
        dropped = sum(record.dropped.values())
        command = f"interleaved drops --shard {shlex.quote(record.shard)}"
        metadata["dropped_rows"] = dg.MetadataValue.table([dg.TableRecord(row) for row in stored.drops])
        metadata["all_dropped_rows"] = dg.MetadataValue.text(
            f"{len(stored.drops)} of {dropped:,} shown. All: {command}"
        )
    if stored.report:
        metadata["pictures"] = dg.MetadataValue.md(stored.report)
    if stored.page:
        metadata["page"] = place_of(settings.storage.shard(record.shard).page(), settings)
    return metadata
