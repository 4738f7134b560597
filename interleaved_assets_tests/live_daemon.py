"""``dagster._daemon`` with another interval between two looks at backfills: ``live_daemon SECONDS run …``.

Dagster has no setting for its 30 seconds, and a backfill takes two looks: one starts its runs, one sees their end.
"""

import sys

from dagster._daemon import controller
from dagster._daemon.cli import main

if __name__ == "__main__":
    controller.DEFAULT_DAEMON_INTERVAL_SECONDS = int(sys.argv.pop(1))
    main()
