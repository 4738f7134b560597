"""The pools of the steps, and how many steps of each may run at a time.

A pool's limit belongs to the deployment: ``dagster instance concurrency set gpu 4`` for four devices. The Makefile sets
the limits below once, for a new instance. Dagster's own default limit applies only once a pool has been used.
"""

from typing import Final

from interleaved_assets.defs.executors import POOL

SHARD_IO: Final = "shard_io"
SLOTS: Final = {POOL: 1, SHARD_IO: 2}
"""Steps at a time: one for each device, and as many as dagster.yaml lets runs work at once."""
