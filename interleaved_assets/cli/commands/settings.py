"""``interleaved settings``: print every setting in force."""

from typing import Final

import click

from interleaved_assets.cli.terminal.options import as_json

SECTION: Final = "A project"


@click.command("settings")
@as_json
@click.pass_obj
def settings_command(file: str | None, *, as_json: bool) -> int:
    """Show every setting with its value, unit, range and default, and which are those of a recipe."""
    from pydantic_core import to_jsonable_python

    from interleaved_assets.cli.terminal.console import console, print_json
    from interleaved_assets.settings import as_toml, load_settings, setting_lines, values_of_recipe

    lines = list(setting_lines(load_settings(file)))
    recipe, values = values_of_recipe(file)
    named = {line.name for line in lines if any(f"{name}.".startswith(f"{line.name}.") for name in values)}
    if as_json:
        print_json(
            {
                line.name: {
                    **{name: to_jsonable_python(getattr(line, name)) for name in line._fields[1:]},
                    "recipe": recipe if line.name in named else None,
                }
                for line in lines
            }
        )
        return 0
    source = {line.name: [f"recipe {recipe}" if line.name in named else ""] if recipe else [] for line in lines}
    columns = ("setting", "value", *(["from"] if recipe else []), "meaning")
    rows = ((line.name, as_toml(line.value), *source[line.name], line.description) for line in lines)
    console().print_table(columns, rows)
    return 0
