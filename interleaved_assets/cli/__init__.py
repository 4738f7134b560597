"""The ``interleaved`` command: questions about the data set, answered from stored outputs without the UI.

``commands/`` has a file for each command, whose functions import what they need when it runs.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run :func:`~interleaved_assets.cli.entry_point.main`.

    It is imported here, so that Ctrl-C ends the import in one line too.
    """
    try:
        from interleaved_assets.cli.entry_point import main as run
    except KeyboardInterrupt:
        print("interleaved: interrupted", file=sys.stderr)
        return 130
    return run(arguments)
