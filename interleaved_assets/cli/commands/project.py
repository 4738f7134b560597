"""Commands for a project as a whole: ``init``, ``settings``, ``demo``."""

from typing import Any

import click

from interleaved_assets.cli.terminal.options import FILE, FOLDER, as_json


@click.command("init")
@click.option(
    "--raw-root",
    metavar="URL",
    default="data/raw",
    show_default=True,
    help="Folder or URL with raw tars.",
    type=FOLDER,
)
@click.option(
    "--output-root",
    metavar="URL",
    default="data/out",
    show_default=True,
    help="Folder or URL for outputs.",
    type=FOLDER,
)
@click.option(
    "--file", metavar="FILE", default="interleaved.toml", show_default=True, help="The file to write.", type=FILE
)
@as_json
def init_command(**given: Any) -> int:
    """Write a settings file, with every setting explained.

    A file that exists is not changed.

    \b
    interleaved init --raw-root s3://bucket/raw --output-root s3://bucket/curated
    """
    from interleaved_assets.cli.answers.init import write_settings

    return write_settings(**given)


@click.command("settings")
@as_json
@click.pass_obj
def settings_command(file: str | None, as_json: bool) -> int:
    """Show every setting with its value, unit, range and default, and which are those of a recipe."""
    from interleaved_assets.cli.answers.settings import show_settings

    return show_settings(file, as_json=as_json)


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
    from interleaved_assets.cli.answers.recipe import show_difference, show_recipe, show_recipes

    if action == "list":
        if name is not None:
            raise click.UsageError(f"recipe list takes no NAME; interleaved recipe show {name} prints one recipe")
        return show_recipes(as_json=as_json)
    if name is None:
        raise click.UsageError(f"recipe {action} needs NAME; interleaved recipe list prints the names")
    return show_recipe(name, as_json=as_json) if action == "show" else show_difference(file, name, as_json=as_json)


@click.command("demo")
@as_json
@click.pass_obj
def demo_command(file: str | None, as_json: bool) -> int:
    """Draw demo shards and take them through every asset, with Dagster.

    The shards are written below the raw root, which must hold no others. In a folder without interleaved.toml, one is
    written, with data/raw and data/out. Without DAGSTER_HOME, the Dagster instance is .dagster_home.

    \b
    interleaved demo
    """
    from interleaved_assets.defs.demo import main as run_demo

    return run_demo(file, as_json=as_json)
