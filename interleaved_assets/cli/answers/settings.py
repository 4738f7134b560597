"""The work of ``interleaved settings``: print every setting in force."""

from pydantic_core import to_jsonable_python
from rich.table import Table

from interleaved_assets.cli.terminal.console import console, print_json
from interleaved_assets.settings import as_toml, load_settings, setting_lines


def show_settings(file: str | None, *, as_json: bool) -> int:
    """Print every setting in force, and return the exit code."""
    lines = list(setting_lines(load_settings(file)))
    if as_json:
        print_json(
            {line.name: {name: to_jsonable_python(getattr(line, name)) for name in line._fields[1:]} for line in lines}
        )
        return 0
    table = Table("setting", "value", "meaning")
    for line in lines:
        table.add_row(line.name, as_toml(line.value), line.description)
    console().print(table)
    return 0
