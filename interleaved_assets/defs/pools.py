"""The pools of the steps, and how many steps of each may run at a time.

The limits are set at deployment: ``dagster instance concurrency set gpu 4`` for four devices. The Makefile sets the
limits below once, for a new instance. Dagster's default limit applies only after a pool has been used.
"""

from typing import Final

GPU: Final = "gpu"
SHARD_IO: Final = "shard_io"
SLOTS: Final = {GPU: 1, SHARD_IO: 2}
"""Steps that may run at a time: on one device one, else as many as dagster.yaml allows runs."""
