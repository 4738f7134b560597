"""``interleaved demo``: draw demo shards and take them through every asset."""

from typing import Final

import click

from interleaved_assets.cli.terminal.options import as_json

SECTION: Final = "A project"


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
