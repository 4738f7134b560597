"""``dagster._daemon`` whose loops look every second: ``live_daemon RELOAD_SECONDS run …``.

Dagster has no settings for these intervals. They add up: a backfill takes two looks of 30 seconds, one that starts its
runs and one that sees their end, and each sensor waits for a loop of 5 seconds on top of its own interval. What the
loops do stays Dagster's own.
"""

import sys

from dagster._daemon import asset_daemon, controller, sensor
from dagster._daemon.cli import main

LOOK_SECONDS = 1


def look_often(reload_seconds: int) -> None:
    """Let the loops look every second, and the daemon load the definitions anew every ``reload_seconds``.

    Raises:
        AttributeError: this version of Dagster lacks one of the intervals, which would else be set without effect.
    """
    for module, name, seconds in (
        (controller, "DEFAULT_DAEMON_INTERVAL_SECONDS", LOOK_SECONDS),  # backfills
        (controller, "THREAD_CHECK_INTERVAL", LOOK_SECONDS),  # whether it is time to load the definitions anew
        (controller, "RELOAD_WORKSPACE_INTERVAL", reload_seconds),
        (sensor, "MIN_INTERVAL_LOOP_TIME", LOOK_SECONDS),
        (asset_daemon, "MIN_INTERVAL_LOOP_SECONDS", LOOK_SECONDS),
    ):
        getattr(module, name)
        setattr(module, name, seconds)


if __name__ == "__main__":
    look_often(int(sys.argv.pop(1)))
    main()
