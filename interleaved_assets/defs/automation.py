"""When automation launches a shard: its inputs are not those it was made from, nobody works on it, and it was not
requested for these inputs before.

Dagster's own ``AutomationCondition.eager()`` counts a shard as handled in any tick that sees it materialized. Where the
same tick brings the news that its raw content has changed meanwhile, the news is lost. It also runs what follows again
where an input came out as before, and overlooks what was there before its first tick. Here versions decide: those of
the inputs against those that the shard's record names.
"""

from collections.abc import Sequence

import dagster as dg

from interleaved_assets.defs.latest import data_versions, event_type, latest_ids
from interleaved_assets.defs.shard_events import standing_failures
from interleaved_assets.model.errors import ShardError, StorageError
from interleaved_assets.pipeline.parallel import READERS, parallel_map
from interleaved_assets.pipeline.record import ShardPaths, read_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings


def when_inputs_change(settings: Settings) -> dg.AutomationCondition[dg.AssetKey]:
    """The condition of every asset of the chain."""
    return (InputsChanged(settings) & ~ShardBusy(settings)).with_label("inputs changed, nobody at work on the shard")


class _OfSettings(dg.AutomationCondition[dg.AssetKey]):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings


class InputsChanged(_OfSettings):
    """True for shards whose inputs are others than those of the asset's last output, until they are requested.

    Shards with an event on an input since the last tick are looked at; at the first tick, all that are not newer than
    their inputs. One that failed with the inputs it has now would fail again, and is left alone. One on which a run is
    working stays true without being looked at: the run may yet settle it, and whoever asks for this condition asks for
    an idle shard besides.
    """

    name = "inputs_changed"
    description = "An input has another version than the one this shard was made from, and it was not requested since"

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

        The same version told again is no news. An event whose version cannot be read yet is: the next tick would not
        look at it again.
        """
        instance, asset = context.asset_graph_view.instance, context.key.path[-1]
        after = context.previous_max_storage_id
        if context.previous_true_subset is None or after is None:
            own = latest_ids(instance, asset, event_type(asset))
            return {
                key
                for name in inputs
                for key, event in latest_ids(instance, name, event_type(name)).items()
                if event > own.get(key, -1)
            }
        found: set[str] = set()
        for name in inputs:
            if told := latest_ids(instance, name, event_type(name), after=after):
                before = data_versions(instance, name, told, until=after)
                now = data_versions(instance, name, told)
                found.update(key for key in told if key not in now or now[key] != before.get(key))
        return found

    def _behind(self, instance: dg.DagsterInstance, name: str, inputs: Sequence[str], keys: Sequence[str]) -> set[str]:
        """Those of ``keys`` whose inputs are all there, are not what the last output came from, and were not tried."""
        if not keys:
            return set()
        present = {source: latest_ids(instance, source, event_type(source), keys) for source in inputs}
        failed = standing_failures(instance, name, keys)
        untried = []
        for key in keys:
            events = {source: ids[key] for source, ids in present.items() if key in ids}
            if len(events) == len(inputs) and not (key in failed and failed[key].input_events == events):
                untried.append(key)
        own = data_versions(instance, name, untried)
        versions = {source: data_versions(instance, source, untried) for source in inputs}
        made = self._made(name, untried)
        # a version that cannot be read yet is unlike any that was recorded
        return {
            key
            for key in untried
            if made[key] != (own.get(key), {source: versions[source].get(key) for source in inputs})
        }

    def _made(self, name: str, keys: Sequence[str]) -> dict[str, tuple[str, dict[str, str]] | None]:
        """For each shard the version of the asset's last output and those of its inputs, as recorded.

        The rest of a record is let go as soon as it is read: a first tick may be about all shards there are.
        """
        storage = self._settings.storage

        def read(key: str) -> tuple[str, dict[str, str]] | None:
            paths = ShardPaths(output_root=storage.output_root, key=key)
            try:
                record = read_record(paths.record(name), storage.options)
            except (ShardError, StorageError):
                return None  # a record that cannot be read vouches for nothing; the run will say what is wrong
            return (record.data_version, record.inputs) if record else None

        return dict(zip(keys, parallel_map(read, keys, threads=READERS), strict=True))


class ShardBusy(_OfSettings):
    """True for shards that a run or a backfill has yet to take through any asset of the chain.

    Two runs on one shard would write the same files.
    """

    name = "shard_busy"
    description = "A run or a backfill is working on this shard, at any asset of the chain"

    async def evaluate(  # type: ignore[override]  # as above
        self, context: dg.AutomationContext[dg.AssetKey]
    ) -> dg.AutomationResult[dg.AssetKey]:
        busy = set() if context.candidate_subset.is_empty else await _busy(context, self._settings)
        return dg.AutomationResult(context, context.candidate_subset.compute_intersection_with_partition_keys(busy))


async def _busy(context: dg.AutomationContext[dg.AssetKey], settings: Settings) -> set[str]:
    view = context.asset_graph_view
    busy: set[str] = set()
    for name in stage_dag(settings):
        key = dg.AssetKey(name)
        for compute in (view.compute_run_in_progress_subset, view.compute_backfill_in_progress_subset):
            found = await compute(key=key, from_subset=view.get_full_subset(key=key))
            busy |= found.expensively_compute_partition_keys()
    return busy
