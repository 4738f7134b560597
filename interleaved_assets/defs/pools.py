"""The limits of the pools, set explicitly: Dagster's default limit applies only once a pool has been used.

``python -m interleaved_assets.defs.pools`` sets those that nobody has set, in the instance of ``DAGSTER_HOME``. More
devices or a larger machine: ``dagster instance concurrency set gpu 4``.
"""

from typing import Final

import dagster as dg

from interleaved_assets.defs.executors import POOL

SHARD_IO: Final = "shard_io"
SLOTS: Final = {POOL: 1, SHARD_IO: 2}
"""Steps at a time: one for each device, and as many as dagster.yaml lets runs work at once."""


def set_limits(instance: dg.DagsterInstance) -> None:
    """Give every pool its limit, unless it has one that somebody chose."""
    storage = instance.event_log_storage
    for pool, slots in SLOTS.items():
        if storage.get_concurrency_info(pool).using_default_limit:
            storage.set_concurrency_slots(pool, slots)


if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        set_limits(instance)
