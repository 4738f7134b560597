"""The command ``interleaved`` with all its commands, under the headings of its help."""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from interleaved_assets.cli.commands.data_set import (
    forget_command,
    report_command,
    run_command,
    serve_command,
    status_command,
    what_if_command,
)
from interleaved_assets.cli.commands.lineage import drops_command, trace_command, view_command
from interleaved_assets.cli.commands.project import demo_command, init_command, recipe_command, settings_command
from interleaved_assets.cli.commands.releases import release_command, verify_command
from interleaved_assets.cli.commands.shard_files import (
    convert_command,
    inspect_command,
    score_command,
    select_command,
    validate_command,
)
from interleaved_assets.cli.terminal.options import FILE

SECTIONS: Final[Mapping[str, Sequence[click.Command]]] = {
    "A project": (init_command, settings_command, recipe_command, demo_command),
    "Shard files": (inspect_command, validate_command, convert_command, score_command, select_command),
    "The shards of a project": (
        run_command,
        status_command,
        report_command,
        serve_command,
        what_if_command,
        forget_command,
    ),
    "Samples and dropped rows": (trace_command, drops_command, view_command),
    "Releases": (release_command, verify_command),
}
"""All commands, by the heading under which the help lists them."""


class _Sections(click.Group):
    """A group whose help lists its commands under the headings of :data:`SECTIONS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  as click names it
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, self.commands))
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                # the names of all sections have the same width, so that the texts stand below each other
                lines = [(f"{command.name:<{width}}", command.get_short_help_str(200)) for command in commands]
                formatter.write_dl(lines)


@click.group(cls=_Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="interleaved-assets", prog_name="interleaved")
@click.option("--settings", metavar="FILE", help="Settings file; default: interleaved.toml in this folder.", type=FILE)
@click.pass_context
def interleaved(context: click.Context, settings: str | None) -> None:
    """Convert, check, score and curate shards of interleaved images and texts, and trace their samples.

    Exit codes: 0 done, 1 nothing found or a shard is not sound, 2 an error, 130 interrupted.
    """
    context.obj = settings


for _commands in SECTIONS.values():
    for _command in _commands:
        interleaved.add_command(_command)
