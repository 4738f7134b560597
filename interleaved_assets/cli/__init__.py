"""The ``interleaved`` command: questions about the data set, answered from stored outputs without the UI.

Each command is declared here and does its work in a module of its own, which is imported when the command runs: help
and completion need none of them.
"""

import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click

from interleaved_assets.cli.interrupt import interrupts_arrive

# help and completion wait for what this module imports: pyarrow alone, which the errors bring, takes 0.3 s
if TYPE_CHECKING:
    from rich.console import Console

FAILED, INTERRUPTED = 2, 130
"""Exit codes."""

Policy = Literal["error", "warn", "drop_row", "drop_sample"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0 done, 1 nothing found or not sound, 2 an error, 130 Ctrl-C.

    An error is reported on stderr.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _check_arguments(given)
        with interrupts_arrive():
            code = interleaved.main(given, prog_name="interleaved", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        _print_error(f"interleaved: {error.format_message().rstrip('.')}{hint}")
        return FAILED
    except click.Abort:
        print("interleaved: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _own_error() as error:
        _print_error(f"interleaved: {error}")
        return FAILED


def _own_error() -> type[Exception]:
    from interleaved_assets.model.errors import InterleavedError

    return InterleavedError


def _print_error(text: str) -> None:
    from interleaved_assets.cli.console import print_error

    print_error(text)


def _out() -> "Console":
    from interleaved_assets.cli.console import console

    return console()


def _check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not text: ids, keys and paths are text, and Arrow and JSON fail on other bytes.

    Raises:
        OptionError: an argument is not UTF-8, or has a zero byte.
    """
    for argument in arguments:
        if "\0" in argument or re.search("[\ud800-\udfff]", argument):  # Python represents bytes that are not UTF-8 so
            from interleaved_assets.cli.console import short
            from interleaved_assets.model.errors import OptionError

            raise OptionError(f"argument {short(argument)} is not UTF-8 text")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="interleaved-assets", prog_name="interleaved")
@click.option("--settings", metavar="FILE", help="Settings file; default: interleaved.toml in this folder.")
@click.pass_context
def interleaved(context: click.Context, settings: str | None) -> None:
    """Shards of interleaved images and texts: convert, check, score and curate them, and ask what became of them.

    Exit codes: 0 done, 1 nothing found or a shard is not sound, 2 an error, 130 interrupted.
    """
    context.obj = settings


@interleaved.command("demo")
@click.pass_obj
def demo_command(file: str | None) -> int:
    """Draw demo shards and take them through every asset, with Dagster.

    They are written below the raw root, which must hold no others. In a folder without interleaved.toml one is written,
    with data/raw and data/out; without DAGSTER_HOME the Dagster instance is .dagster_home.

    \b
    interleaved demo
    """
    from interleaved_assets.defs.demo import main as run_demo

    return run_demo(file)


Command = Callable[..., Any]


def _as_json(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON object a line on stdout.")(command)


def _jobs(command: Command) -> Command:
    text = "Shards to work on at once; default: run.parallel_shards."
    return click.option("-j", "--jobs", type=click.IntRange(1, 256), metavar="N", help=text)(command)


def _overwrite(command: Command) -> Command:
    return click.option("--overwrite", is_flag=True, help="Replace files that exist.")(command)


def _filters(command: Command) -> Command:
    text = "A setting of [selection], such as min_short_side=200 or min_sharpness=none. May be repeated."
    return click.option("--filter", "filters", metavar="NAME=VALUE", multiple=True, help=text)(command)


def _policy(command: Command) -> Command:
    text = "What to do with rows that cannot be read; default: errors.on_materialize_error."
    choice = click.Choice(["error", "warn", "drop_row", "drop_sample"])
    return click.option("--on-error", "--on-materialize-error", "policy", type=choice, help=text)(command)


@interleaved.command("init")
@click.option("--raw-root", metavar="URL", default="data/raw", show_default=True, help="Folder or URL with raw tars.")
@click.option("--output-root", metavar="URL", default="data/out", show_default=True, help="Folder or URL for outputs.")
@click.option(
    "--file", "target", metavar="FILE", default="interleaved.toml", show_default=True, help="The file to write."
)
def init_command(raw_root: str, output_root: str, target: str) -> int:
    """Write a settings file, with every setting explained.

    A file that exists is not changed.

    \b
    interleaved init --raw-root s3://bucket/raw --output-root s3://bucket/curated
    """
    from interleaved_assets.cli.init import write_settings

    return write_settings(target, raw_root, output_root, _out())


@interleaved.command("inspect")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…")
@click.option(
    "-n",
    "--documents",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    metavar="N",
    help="Documents to show of each file.",
)
@_as_json
@click.pass_obj
def inspect_command(file: str | None, inputs: tuple[str, ...], documents: int, as_json: bool) -> int:
    """What is in shard files: counts, images, errors, documents.

    INPUT is a tar or a Parquet file, a folder or glob of them, or a URL (s3://…).

    \b
    interleaved inspect data/raw/a.tar
    interleaved inspect 's3://bucket/raw/*.tar' --documents 0 --json
    """
    from interleaved_assets.cli.inspect import show_shards

    return show_shards(inputs, documents, file, _out(), as_json=as_json)


@interleaved.command("validate")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…")
@click.option("--no-decode", is_flag=True, help="Read only the headers of images.")
@_as_json
@click.pass_obj
def validate_command(file: str | None, inputs: tuple[str, ...], no_decode: bool, as_json: bool) -> int:
    """Whether shard files are sound; if not, why, by code.

    INPUT is a tar or a Parquet file, a folder or glob of them, or a URL (s3://…). Every image is decoded.

    Exit codes: 0 all are sound, 1 findings, 2 a file cannot be read.

    \b
    interleaved validate data/raw/a.tar
    interleaved validate data/raw --json
    """
    from interleaved_assets.cli.validate import show_findings

    return show_findings(inputs, file, _out(), decode=not no_decode, as_json=as_json)


@interleaved.command("convert")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…")
@click.option("-o", "--output", metavar="FOLDER", required=True, help="Folder or URL for the outputs.")
@click.option(
    "--to", "form", type=click.Choice(["parquet", "tar", "tar.gz"]), required=True, help="Form of the outputs."
)
@_filters
@click.option("--selection", "whole_section", is_flag=True, help="Apply all filters of the section [selection].")
@_policy
@_jobs
@_overwrite
@_as_json
@click.pass_obj
def convert_command(
    file: str | None,
    inputs: tuple[str, ...],
    output: str,
    form: str,
    filters: tuple[str, ...],
    whole_section: bool,
    policy: Policy | None,
    jobs: int | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Convert shards to tar or Parquet, one output for each input.

    All rows are kept unless filters are given.

    INPUT is a tar or a Parquet file, a folder or glob of them, or a URL (s3://…). An output whose input and settings
    are those of an earlier conversion is not made again. An input that fails does not stop the others.

    \b
    interleaved convert data/raw -o data/parquet --to parquet
    interleaved convert 's3://bucket/raw/*.tar' -o out --to tar --filter min_short_side=200 --on-error drop_row
    """
    from interleaved_assets.cli.convert import show_conversions

    return show_conversions(
        inputs,
        output,
        form,
        filters,
        file,
        _out(),
        whole_section=whole_section,
        policy=policy,
        jobs=jobs,
        overwrite=overwrite,
        as_json=as_json,
    )


@interleaved.command("score")
@click.argument("shard")
@click.argument("scores")
@click.option(
    "--scorer",
    "scorers",
    metavar="NAME",
    multiple=True,
    help="A scorer to run, such as sharpness_256; may be repeated. Default: scoring.scorers.",
)
@click.option("--clip", "with_clip", is_flag=True, help="Also the scores of the model in [clip].")
@_overwrite
@_as_json
@click.pass_obj
def score_command(
    file: str | None,
    shard: str,
    scores: str,
    scorers: tuple[str, ...],
    with_clip: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Measure the images of a shard file.

    SHARD is a tar or a Parquet file; SCORES is the Parquet file to write.

    One row an image: size, the columns of the scorers, and the error of an image that cannot be measured.

    \b
    interleaved score data/raw/a.tar a.scores.parquet --scorer sharpness_256 --scorer qr
    """
    from interleaved_assets.cli.score import show_scored

    return show_scored(
        shard, scores, file, _out(), scorers=scorers, with_clip=with_clip, overwrite=overwrite, as_json=as_json
    )


@interleaved.command("select")
@click.argument("shard")
@click.argument("scores")
@click.argument("output")
@click.option("--ledger", metavar="FILE", help="Parquet file for dropped rows; default: OUTPUT.dropped.parquet.")
@_filters
@_policy
@_overwrite
@_as_json
@click.pass_obj
def select_command(
    file: str | None,
    shard: str,
    scores: str,
    output: str,
    ledger: str | None,
    filters: tuple[str, ...],
    policy: Policy | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write the rows of a shard file that pass thresholds.

    SHARD is a tar or a Parquet file, SCORES what `interleaved score` wrote for it, OUTPUT a tar or Parquet, by its
    ending.

    Without --filter, all filters of the section [selection] are applied; with it, only those that are given. Every
    dropped row is in the ledger, with its reason, measured value and threshold.

    \b
    interleaved select data/raw/a.tar a.scores.parquet a.selected.tar --filter min_sharpness_256=100
    """
    from interleaved_assets.cli.score import show_selected

    return show_selected(
        shard,
        scores,
        output,
        ledger or f"{output}.dropped.parquet",
        filters,
        file,
        _out(),
        policy=policy,
        overwrite=overwrite,
        as_json=as_json,
    )


@interleaved.command("run")
@click.argument("shards", nargs=-1, metavar="[KEY…]")
@_jobs
@_as_json
@click.pass_obj
def run_command(file: str | None, shards: tuple[str, ...], jobs: int | None, as_json: bool) -> int:
    """Take shards through all stages, without Dagster.

    Outputs and records are the same as those of a run in Dagster, which finds them current.

    KEY is the path of a raw shard below storage.raw_root without its ending; without one, all shards are taken that
    are not current. A shard that fails does not stop the others.

    \b
    interleaved run
    interleaved run 2024/part-0003 2024/part-0004 --jobs 4
    """
    from interleaved_assets.cli.run import show_run

    return show_run(shards, file, _out(), jobs=jobs, as_json=as_json)


@interleaved.command("settings")
@click.pass_obj
def settings_command(file: str | None) -> int:
    """Every setting with its value, unit, range and default."""
    from interleaved_assets.cli.settings import show_settings

    return show_settings(file, _out())


@interleaved.command("trace")
@click.argument("sample_id", required=False)
@click.option(
    "--tar", metavar="PATH", help="A final tar, path or URL: its raw shard, each stage's settings and hashes."
)
@click.option("--shard", metavar="KEY", help="Partition key of the sample's shard; default: search all shards.")
@click.option(
    "--all", "every_row", is_flag=True, help="A line for each kept row too, instead of one for each run of them."
)
@click.pass_obj
def trace_command(file: str | None, sample_id: str | None, tar: str | None, shard: str | None, every_row: bool) -> int:
    """The path of SAMPLE_ID through the stages, or the origin of a final tar.

    At each stage the sample's rows by position: dropped ones with reason, measured value and threshold, errors as they
    are stored, and kept ones summed up.

    \b
    interleaved trace paper-17
    interleaved trace paper-17 --shard 2024/part-0003 --all
    interleaved trace --tar data/curated/tars/a.tar
    """
    from interleaved_assets.cli.trace import show_sample, show_tar

    if (sample_id is None) == (tar is None):
        raise click.UsageError("trace takes either SAMPLE_ID or --tar PATH", click.get_current_context())
    if tar is not None:
        return show_tar(tar, file, _out())
    return show_sample(sample_id or "", shard, file, _out(), every_row=every_row)


@interleaved.command("what-if")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE…")
@click.option("--shard", "shards", metavar="KEY", multiple=True, help="Partition key; default: every scored shard.")
@_as_json
@click.pass_obj
def what_if_command(file: str | None, changes: tuple[str, ...], shards: tuple[str, ...], as_json: bool) -> int:
    """What other thresholds would keep, from stored scores. Reads no image, writes nothing.

    NAME is a setting of [selection].

    \b
    interleaved what-if min_sharpness_256=80
    interleaved what-if min_clip=0.2 max_qr_area_ratio=0.1
    """
    from interleaved_assets.cli.what_if import show_what_if

    return show_what_if(changes, shards, file, _out(), as_json=as_json)


@interleaved.command("forget")
@click.argument("shards", nargs=-1, metavar="[KEY…]")
@click.option("--vanished", is_flag=True, help="All shards that have records but no raw tar.")
@click.option("--yes", is_flag=True, help="Remove the files, and the partitions; default: only list the files.")
@click.pass_obj
def forget_command(file: str | None, shards: tuple[str, ...], vanished: bool, yes: bool) -> int:
    """Remove what is stored for shards whose raw tar is gone: records, outputs and partition.

    Lists the files first: nothing is removed without --yes.

    \b
    interleaved forget --vanished
    interleaved forget 2024/part-0003 --yes
    """
    from interleaved_assets.cli.forget import show_forgotten

    if bool(shards) == vanished:
        raise click.UsageError("forget takes either keys of shards or --vanished", click.get_current_context())
    return show_forgotten(shards, file, _out(), vanished=vanished, remove=yes)


@interleaved.command("drops")
@click.option("--shard", metavar="KEY", required=True, help="Partition key of the shard.")
@click.option("--reason", help="Only rows dropped for this reason, such as sharpness_below.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, with whole texts.")
@click.pass_obj
def drops_command(file: str | None, shard: str, reason: str | None, as_json: bool) -> int:
    """The dropped rows of a shard: reason, measured value, threshold, and the text or fields that each held.

    \b
    interleaved drops --shard 2024/part-0003
    interleaved drops --shard 2024/part-0003 --reason ratio_above --json
    """
    from interleaved_assets.cli.drops import show_drops

    return show_drops(shard, reason, file, _out(), as_json=as_json)


@interleaved.command("view")
@click.argument("shard", metavar="KEY|TAR|PARQUET")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Most documents; default: 200.")
@click.option("--sample-id", "sample_ids", metavar="ID", multiple=True, help="Only this document; can be repeated.")
@click.option(
    "--reason", "reasons", metavar="NAME", multiple=True, help="Only documents that lost rows for it; can be repeated."
)
@click.option("--random", metavar="N", type=click.IntRange(min=1), help="N documents at random.")
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Of --random; default: 0.")
@click.option("--out", metavar="FILE", help="Where the page goes; default: <name>.html in this folder.")
@click.option("--open", "in_browser", is_flag=True, help="Open the page in the browser.")
@click.pass_obj
def view_command(
    file: str | None,
    shard: str,
    limit: int | None,
    sample_ids: tuple[str, ...],
    reasons: tuple[str, ...],
    random: int | None,
    seed: int,
    out: str | None,
    in_browser: bool,
) -> int:
    """Documents as they read, on one HTML page: texts and images in order, with what was dropped in its place.

    KEY is the partition key of a shard of this project; its page has stage, reason, measured value and threshold of
    each drop. A tar or Parquet file, path or URL, needs no project.

    \b
    interleaved view web/part-0003 --open
    interleaved view web/part-0003 --reason qr_above --limit 20
    interleaved view some.tar --random 50 --seed 1
    """
    from interleaved_assets.cli.view import show_documents
    from interleaved_assets.reporting.document_choice import Choice

    default = Choice().limit if random is None else random
    choice = Choice(limit or default, sample_ids, reasons, random, seed)
    return show_documents(shard, choice, file, _out(), page_file=out, in_browser=in_browser)


@interleaved.command("status")
@_as_json
@click.pass_obj
def status_command(file: str | None, as_json: bool) -> int:
    """Shards that are not current, why, and the stages that a run would make.

    Compares the stored records with the raw shards and the present settings, without Dagster.
    """
    from interleaved_assets.cli.status import show_status

    return show_status(file, _out(), as_json=as_json)


@interleaved.command("release")
@click.argument("name")
@click.option("--to", metavar="FOLDER|URL", help="Also copy the tars into this empty folder, a release by itself.")
@click.option("--incomplete", is_flag=True, help="Leave out shards that are not current; default: refuse.")
@click.pass_obj
def release_command(file: str | None, name: str, to: str | None, incomplete: bool) -> int:
    """Freeze which final tars make up a data set, as releases/NAME below the output root.

    Writes manifest.json (tars, hashes, settings, raw shards), wids.json (index for random access) and README.md (card).
    A release is never overwritten. The tars stay in place, where a later run may replace them, unless --to copies them:
    on the same disk as hard links, which take no space.

    \b
    interleaved release v1
    interleaved release v1 --to s3://bucket/releases/v1
    """
    from interleaved_assets.cli.release import show_release

    return show_release(name, to, file, _out(), incomplete=incomplete)


@interleaved.command("verify")
@click.argument("release")
@click.pass_obj
def verify_command(file: str | None, release: str) -> int:
    """Compare the tars of RELEASE with its manifest: there, of that size, with those bytes.

    RELEASE is a name, or the path or URL of a manifest or of its folder. Exit codes: 0 sound, 1 findings (one a line),
    2 the manifest or the storage cannot be read.

    \b
    interleaved verify v1
    interleaved verify /data/v1/manifest.json
    """
    from interleaved_assets.cli.verify import show_verified

    return show_verified(release, file, _out())
