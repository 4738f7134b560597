"""``interleaved recipe``: print recipes, and compare the settings in force with one."""

from typing import Any, Final

import click

from interleaved_assets.cli.terminal.options import as_json

SECTION: Final = "A project"


@click.command("recipe")
@click.argument("action", type=click.Choice(["list", "show", "diff"]))
@click.argument("name", required=False)
@as_json
@click.pass_obj
def recipe_command(file: str | None, action: str, name: str | None, as_json: bool) -> int:
    """List, show and compare the filters of published data sets, which settings can name.

    list prints the recipes, show the settings of the recipe NAME with the source of each number and the rules that are
    not done, diff the settings in force that differ from it.

    \b
    interleaved recipe list
    interleaved recipe show obelics
    interleaved recipe diff obelics
    """
    if action == "list":
        if name is not None:
            raise click.UsageError(f"recipe list takes no NAME; interleaved recipe show {name} prints one recipe")
        return show_recipes(as_json=as_json)
    if name is None:
        raise click.UsageError(f"recipe {action} needs NAME; interleaved recipe list prints the names")
    return show_recipe(name, as_json=as_json) if action == "show" else show_difference(file, name, as_json=as_json)


def show_recipes(*, as_json: bool) -> int:
    """Print a line for each recipe, and return the exit code."""
    from interleaved_assets.cli.terminal.console import console, print_json
    from interleaved_assets.settings import read_recipe, recipe_names

    recipes = [read_recipe(name) for name in recipe_names()]
    if as_json:
        print_json({one.name: {"title": one.title, "source": one.source, "about": one.about} for one in recipes})
        return 0
    lines = ((one.name, one.title, one.source, one.about) for one in recipes)
    console().print_table(("recipe", "data set", "source", "about"), lines)
    return 0


def show_recipe(name: str, *, as_json: bool) -> int:
    """Print the settings of a recipe, what it defines in another way and does not do; return the exit code."""
    from interleaved_assets.cli.terminal.console import console, print_json
    from interleaved_assets.settings import read_recipe, recipe_lines

    recipe = read_recipe(name)
    if as_json:
        facts = {"name": recipe.name, "title": recipe.title, "source": recipe.source, "about": recipe.about}
        rules = {
            "different": [rule._asdict() for rule in recipe.different],
            "not_done": [rule._asdict() for rule in recipe.lacking],
        }
        print_json({**facts, "settings": recipe_lines(recipe), **rules})
        return 0
    out = console()
    for line in recipe.text.splitlines():
        out.print_line(line)
    out.print()
    title = f"Measures of {recipe.title} that differ"
    out.print_table(("defined in another way", "there", "here"), recipe.different, title=title)
    title = f"Rules of {recipe.title} that are not done"
    out.print_table(("not done by this recipe", "its rule", "instead"), recipe.lacking, title=title)
    return 0


def show_difference(file: str | None, name: str, *, as_json: bool) -> int:
    """Print the values of a recipe that are not in force, and return the exit code."""
    from interleaved_assets.cli.terminal.console import console, print_json
    from interleaved_assets.settings import as_toml, load_settings, read_recipe, recipe_lines

    recipe = read_recipe(name)
    present = load_settings(file).model_dump(mode="json", exclude_none=True)
    different = {
        setting: {"recipe": value, "in_force": found}
        for setting, value in recipe_lines(recipe).items()
        if (found := _at(present, setting)) != value
    }
    if as_json:
        print_json({"name": recipe.name, "different": different})
        return 0
    if not different:
        console().print_line(f"every value of the recipe {recipe.name} is in force")
        return 0
    lines = (
        (setting, as_toml(values["recipe"]), as_toml(values["in_force"]) or "none")
        for setting, values in different.items()
    )
    console().print_table(("setting", f"recipe {recipe.name}", "in force"), lines)
    return 0


def _at(values: Any, setting: str) -> Any:
    """Return the value with this dotted name; None if there is none."""
    for name in setting.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values
