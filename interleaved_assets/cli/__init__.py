"""The ``interleaved`` command: questions about the data set, answered from stored outputs without the UI.

``commands/`` declares the commands; the modules beside it do their work, and are imported when a command runs.
"""

from interleaved_assets.cli.commands.group import interleaved
from interleaved_assets.cli.entry_point import main

__all__ = ["interleaved", "main"]
