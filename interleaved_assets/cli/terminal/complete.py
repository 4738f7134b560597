"""Completions for the shell: keys of shards, and files. They are quick and never show an error at the prompt.

Keys are read from the roots of the settings. Storage may be slow, a mount may hang, settings may be wrong: a request
for completions that takes longer than :data:`LIMIT_SECONDS`, or fails, completes nothing.
"""

import contextlib
import io
import logging
import os
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

# this module is imported for --help as well
if TYPE_CHECKING:
    from interleaved_assets.settings import StorageSettings

LIMIT_SECONDS: Final = 3.0
"""Seconds after which a request ends, whatever it waits for."""
MOST: Final = 2000
"""Most completions that are offered. A shell is slow with more, and a cut list could give it a wrong common start."""


def complete_shards_and_files(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete shard keys with stored outputs; fall back to file names."""
    return complete_made_shards(context, _parameter, incomplete) or [CompletionItem(incomplete, type="file")]


def complete_writable_endings(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the endings, without their dot, of the formats that can be written."""
    from interleaved_assets.io.formats.registry import shard_endings

    endings = (ending.removeprefix(".") for ending in shard_endings(writable=True))
    return [ending for ending in endings if ending.startswith(incomplete)]


def _items(
    find: Callable[["StorageSettings", str], Iterable[str]],
    context: click.Context,
    _parameter: click.Parameter,
    incomplete: str,
) -> list[CompletionItem]:
    # a thread that waits for storage cannot be ended and would be waited for, so the process ends
    watchdog = threading.Timer(LIMIT_SECONDS, os._exit, [0])
    watchdog.daemon = True
    watchdog.start()
    logging.disable()
    # text printed by plugins or libraries would appear at the prompt, or be taken for completions
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            from interleaved_assets.settings import load_settings

            storage = load_settings(context.find_root().params.get("settings")).storage
            found = [one for one in find(storage, incomplete) if one.startswith(incomplete)]
        except Exception:  # noqa: BLE001  the command itself reports any error; here it would disturb the prompt
            found = []
        finally:
            logging.disable(logging.NOTSET)
            watchdog.cancel()
    return [CompletionItem(one) for one in sorted(found)] if len(found) <= MOST else []


def _made_shards(storage: "StorageSettings", beginning: str) -> Iterable[str]:
    from interleaved_assets.pipeline.raw.keys import is_key
    from interleaved_assets.pipeline.run.stored_records import recorded_keys
    from interleaved_assets.pipeline.stages.names import NORMALIZED

    folder, _, _ = beginning.rpartition("/")
    if folder and not is_key(folder):  # such as the path ../..
        return ()
    return recorded_keys(storage, NORMALIZED, folder)


def _raw_shards(storage: "StorageSettings", _beginning: str) -> Iterable[str]:
    from interleaved_assets.pipeline.raw.listing import list_raw_shards

    return (raw.key for raw in list_raw_shards(storage))


def _vanished_shards(storage: "StorageSettings", _beginning: str) -> Iterable[str]:
    from interleaved_assets.pipeline.status.vanished import vanished_shards

    return vanished_shards(storage)


complete_made_shards: Final = partial(_items, _made_shards)
"""Completes keys of shards with stored outputs."""
complete_raw_shards: Final = partial(_items, _raw_shards)
"""Completes keys of shards below the raw root."""
complete_vanished_shards: Final = partial(_items, _vanished_shards)
"""Completes keys of shards with stored outputs whose raw shard is gone."""
