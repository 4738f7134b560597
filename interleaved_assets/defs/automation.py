"""When automation launches a shard: its inputs are not those it was made from, nobody works on it, and it was not
requested for these inputs before.

Dagster's own ``AutomationCondition.eager()`` counts a shard as handled in any tick that sees it materialized. Where the
same tick brings the news that its raw content has changed meanwhile, the news is lost. It also runs what follows again
where an input came out as before, and overlooks what was there before its first tick. Here versions decide: those of
the inputs against those that the shard's record names.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import dagster as dg

from interleaved_assets.defs.metadata import DATA_VERSION
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.chain import chain
from interleaved_assets.pipeline.record import RAW_SHARDS, Record, ShardPaths, read_record
from interleaved_assets.settings import Settings

# Records are small files: what their reading costs is waiting for the storage.
_READERS: Final = 32


def when_inputs_change(settings: Settings) -> dg.AutomationCondition[dg.AssetKey]:
    """The condition of every asset of the chain."""
    return (InputsChanged(settings) & ~ShardBusy(settings)).with_label("inputs changed, nobody at work on the shard")


class InputsChanged(dg.AutomationCondition[dg.AssetKey]):
    """True for shards whose inputs are others than those of the asset's last output, until they are requested.

    Shards with an event on an input since the last tick are looked at; at the first tick, all that are not newer than
    their inputs. A shard on which a run is working stays true without being looked at: the run may yet settle it, and
    whoever asks for this condition asks for an idle shard besides.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        return "inputs_changed"

    @property
    def description(self) -> str:
        return "An input has another version than the one this shard was made from, and it was not requested since"

    async def evaluate(  # type: ignore[override]  # Dagster awaits whatever is a coroutine; its annotation does not say
        self, context: dg.AutomationContext[dg.AssetKey]
    ) -> dg.AutomationResult[dg.AssetKey]:
        view = context.asset_graph_view
        everything = view.get_full_subset(key=context.key)
        registered = everything.expensively_compute_partition_keys()
        inputs = [key.path[-1] for key in sorted(context.asset_graph.get(context.key).parent_keys)]
        requested = context.get_previous_requested_subset(context.key)
        pending = self._candidates(context, inputs) & registered
        if context.previous_true_subset is not None:
            before = context.previous_true_subset.expensively_compute_partition_keys()
            pending |= before - (requested.expensively_compute_partition_keys() if requested else set())

        with_inputs: set[str] = set()
        for name in inputs:
            if subset := context.request_subsets_by_key.get(dg.AssetKey(name)):
                with_inputs |= subset.expensively_compute_partition_keys()

        busy = await _busy(context, self._settings) if pending else set()
        idle = pending - busy - with_inputs
        behind = self._behind(view.instance, context.key.path[-1], inputs, sorted(idle))
        true = (pending & busy) | behind | with_inputs
        return dg.AutomationResult(context, everything.compute_intersection_with_partition_keys(true & registered))

    def _candidates(self, context: dg.AutomationContext[dg.AssetKey], inputs: Sequence[str]) -> set[str]:
        """Shards with another version of an input since the last tick; at the first, with news since their own output.

        The same version told again is no news: a shard that failed with it would fail again.
        """
        instance = context.asset_graph_view.instance
        after = context.previous_max_storage_id
        if context.previous_true_subset is None or after is None:
            own = _latest(instance, context.key.path[-1])
            return {
                key for name in inputs for key, event in _latest(instance, name).items() if event > own.get(key, -1)
            }
        found: set[str] = set()
        for name in inputs:
            if told := sorted(_latest(instance, name, after)):
                before = _data_versions(instance, name, told, until=after)
                now = _data_versions(instance, name, told)
                found.update(key for key in told if now.get(key) != before.get(key))
        return found

    def _behind(self, instance: dg.DagsterInstance, name: str, inputs: Sequence[str], keys: Sequence[str]) -> set[str]:
        """Those of ``keys`` whose inputs are all there and are not the ones that the asset's last output came from."""
        if not keys:
            return set()
        own = _data_versions(instance, name, keys)
        present = {source: _data_versions(instance, source, keys) for source in inputs}
        records = self._records(name, keys)

        def is_behind(key: str) -> bool:
            versions = {source: present[source].get(key) for source in inputs}
            if None in versions.values():
                return False
            record = records[key]
            return record is None or record.data_version != own.get(key) or record.inputs != versions

        return {key for key in keys if is_behind(key)}

    def _records(self, name: str, keys: Sequence[str]) -> Mapping[str, Record | None]:
        storage = self._settings.storage

        def read(key: str) -> Record | None:
            try:
                return read_record(ShardPaths(output_root=storage.output_root, key=key).record(name), storage.options)
            except (ShardError, StorageError):
                return None  # a record that cannot be read vouches for nothing; the run will say what is wrong

        with ThreadPoolExecutor(_READERS, thread_name_prefix="records") as pool:
            return dict(zip(keys, pool.map(read, keys), strict=True))


class ShardBusy(dg.AutomationCondition[dg.AssetKey]):
    """True for shards that a run or a backfill has yet to take through any asset of the chain.

    Two runs on one shard would write the same files.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        return "shard_busy"

    @property
    def description(self) -> str:
        return "A run or a backfill is working on this shard, at any asset of the chain"

    async def evaluate(  # type: ignore[override]  # as above
        self, context: dg.AutomationContext[dg.AssetKey]
    ) -> dg.AutomationResult[dg.AssetKey]:
        busy = set() if context.candidate_subset.is_empty else await _busy(context, self._settings)
        return dg.AutomationResult(context, context.candidate_subset.compute_intersection_with_partition_keys(busy))


async def _busy(context: dg.AutomationContext[dg.AssetKey], settings: Settings) -> set[str]:
    view = context.asset_graph_view
    busy: set[str] = set()
    for name in chain(settings):
        key = dg.AssetKey(name)
        for compute in (view.compute_run_in_progress_subset, view.compute_backfill_in_progress_subset):
            found = await compute(key=key, from_subset=view.get_full_subset(key=key))
            busy |= found.expensively_compute_partition_keys()
    return busy


def _event_type(name: str) -> dg.DagsterEventType:
    """Of the events that tell a version: raw shards are observed, everything else is materialized."""
    if name == RAW_SHARDS:
        return dg.DagsterEventType.ASSET_OBSERVATION
    return dg.DagsterEventType.ASSET_MATERIALIZATION


def _latest(instance: dg.DagsterInstance, name: str, after: int | None = None) -> Mapping[str, int]:
    """The id of the last event of each shard that has one later than ``after``."""
    return instance.get_latest_storage_id_by_partition(
        dg.AssetKey(name), _event_type(name), partitions=None, after_cursor=after
    )


def _data_versions(
    instance: dg.DagsterInstance, name: str, keys: Sequence[str], until: int | None = None
) -> Mapping[str, str]:
    """The last version of each shard, among events up to ``until``."""
    before = None if until is None else until + 1
    found = instance.event_log_storage.get_latest_tags_by_partition(
        dg.AssetKey(name), _event_type(name), [DATA_VERSION], list(keys), before_cursor=before
    )
    return {key: tags[DATA_VERSION] for key, tags in found.items()}
