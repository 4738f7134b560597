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
    """Show every setting with its value, unit, range and default."""
    from interleaved_assets.cli.answers.settings import show_settings

    return show_settings(file, as_json=as_json)


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
