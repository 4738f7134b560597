"""Results of work on shards as another process can send them."""

import pickle
import traceback
from typing import Any

import cloudpickle

from interleaved_assets.model.errors import ShardError


def sendable(result: Any, key: str, stage: str) -> Any:
    """Return ``result``, or an error of this shard if it cannot be pickled, which would end all work.

    The traceback of an error is added as a note, which pickling keeps.
    """
    if isinstance(result, Exception):
        result.add_note("".join(traceback.format_exception(result)).rstrip())
    try:
        pickle.loads(cloudpickle.dumps(result))
    except Exception as error:  # noqa: BLE001  pickling runs code of any class
        if isinstance(result, Exception):
            return ShardError(f"{type(result).__name__}: {result}")
        return ShardError(
            f"shard {key}: the result of {stage} cannot be sent from its worker: {type(error).__name__}: {error}"
        )
    return result
