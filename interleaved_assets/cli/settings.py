"""``interleaved settings``: every setting in force."""

from rich.console import Console
from rich.table import Table

from interleaved_assets.settings import load_settings, setting_lines


def show_settings(file: str | None, out: Console) -> int:
    """Print every setting in force; returns the exit code."""
    table = Table("setting", "value", "meaning")
    for line in setting_lines(load_settings(file)):
        table.add_row(line.name, repr(line.value), line.description)
    out.print(table)
    return 0
