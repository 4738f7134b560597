"""The command ``interleaved`` with all its commands, under the headings of its help."""

from difflib import get_close_matches
from types import ModuleType
from typing import Final

import click

from interleaved_assets.cli.commands import (
    convert,
    demo,
    drops,
    forget,
    init,
    inspect,
    recipe,
    release,
    report,
    run,
    score,
    select,
    serve,
    settings,
    status,
    trace,
    validate,
    verify,
    view,
    what_if,
)
from interleaved_assets.cli.terminal.options import FILE

_IN_ORDER: Final = (
    *(init, settings, recipe, demo),
    *(inspect, validate, convert, score, select),
    *(run, status, report, serve, what_if, forget),
    *(trace, drops, view),
    *(release, verify),
)
"""The modules of the commands in the order of the help. Each names the heading under which the help lists it."""


def _command_in(module: ModuleType) -> click.Command:
    [found] = (value for value in vars(module).values() if isinstance(value, click.Command))
    return found


SECTIONS: Final[dict[str, list[click.Command]]] = {}
"""All commands, by the heading under which the help lists them."""
for _module in _IN_ORDER:
    SECTIONS.setdefault(_module.SECTION, []).append(_command_in(_module))


class _Sections(click.Group):
    """A group whose help lists its commands under the headings of :data:`SECTIONS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  as click names it
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        unknown = args and args[0] not in self.commands and not ctx.resilient_parsing
        if unknown and (alike := get_close_matches(args[0], self.commands)):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(alike)}?")
        return super().resolve_command(ctx, args)

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

    Begin with interleaved demo, or with interleaved init and interleaved run. COMMAND --help has examples.

    Exit codes: 0 done, 1 nothing found or a shard is not sound, 2 an error, 130 interrupted.
    """
    context.obj = settings


for _commands in SECTIONS.values():
    for _command in _commands:
        interleaved.add_command(_command)
