"""All names of Dagster's private or undocumented API that this project uses, each with the reason.

Everything else in ``defs/`` is Dagster's documented API.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import dagster as dg

# The shard's page shows only check evaluations that name a materialization.
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationTargetMaterializationData as TargetMaterialization,
)

# Without this mark on its output, Dagster records one data version for all shards of a run, failed ones included.
from dagster._core.definitions.source_asset import SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION

__all__ = ["RECORDS_NOTHING", "TargetMaterialization", "delete_run_and_files", "latest_event_ids"]

RECORDS_NOTHING: Final = SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION
"""Metadata key of an output for which Dagster records no materialization."""


def latest_event_ids(
    instance: dg.DagsterInstance,
    asset: dg.AssetKey,
    kind: dg.DagsterEventType,
    keys: Collection[str] | None = None,
) -> dict[str, int]:
    """Return the id of the last event of each partition, of ``keys`` or of all.

    The documented queries load all events of a partition. Dagster's staleness compares these ids.
    """
    return dict(instance.get_latest_storage_id_by_partition(asset, kind, None if keys is None else set(keys)))


def delete_run_and_files(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete a run with the files that Dagster leaves of it: stdout and stderr of its steps, and its events in SQLite.

    SQLite's storage has a file for each run. Without its rows it is as large as before, some hundred KB.
    """
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    path_of_events = getattr(instance.event_log_storage, "path_for_shard", None)  # other storages have no files
    if path_of_events is not None:
        events = Path(path_of_events(run_id))
        for file in events.parent.glob(f"{events.name}*"):  # its write-ahead log is beside it
            file.unlink(missing_ok=True)
