"""Commands for single files, which need no project: ``inspect``, ``validate``, ``convert``, ``score``, ``select``."""

from typing import Any

import click

from interleaved_assets.cli.terminal.options import (
    FILE,
    FOLDER,
    as_json,
    as_json_lines,
    filters,
    jobs,
    overwrite,
    policy,
)


@click.command("inspect")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=FILE)
@click.option(
    "-n",
    "--documents",
    type=click.IntRange(0, 1_000_000),
    default=2,
    show_default=True,
    metavar="N",
    help="Documents to show of each file.",
)
@as_json_lines
@click.pass_obj
def inspect_command(file: str | None, **given: Any) -> int:
    """Show the contents of shard files: counts, images, errors, documents.

    INPUT is a tar or a Parquet file, a folder or glob of them, or a URL (s3://…).

    \b
    interleaved inspect data/raw/a.tar
    interleaved inspect 's3://bucket/raw/*.tar' --documents 0 --json
    """
    from interleaved_assets.cli.answers.inspect import show_shards

    return show_shards(file, **given)


@click.command("validate")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=FILE)
@click.option("--no-decode", is_flag=True, help="Read only the headers of images.")
@as_json_lines
@click.pass_obj
def validate_command(file: str | None, **given: Any) -> int:
    """Check whether shard files are sound, and list findings by code.

    INPUT is a tar or a Parquet file, a folder or glob of them, or a URL (s3://…). Every image is decoded.

    Exit codes: 0 all are sound, 1 findings, 2 a file cannot be read.

    \b
    interleaved validate data/raw/a.tar
    interleaved validate data/raw --json
    """
    from interleaved_assets.cli.answers.validate import show_findings

    return show_findings(file, **given)


@click.command("convert")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT…", type=FILE)
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    required=True,
    help="Folder or URL for the outputs.",
    type=FOLDER,
)
@click.option(
    "--to", "form", type=click.Choice(["parquet", "tar", "tar.gz"]), required=True, help="Form of the outputs."
)
@filters
@click.option("--selection", "whole_section", is_flag=True, help="Apply all filters of the section [selection].")
@policy
@jobs
@overwrite
@as_json_lines
@click.pass_obj
def convert_command(file: str | None, **given: Any) -> int:
    """Convert shards to tar or Parquet, one output for each input.

    All rows are kept unless filters are given.

    INPUT is a tar or a Parquet file, a folder or glob of them, or a URL (s3://…). An output whose input and settings
    are those of an earlier conversion is not made again. An input that fails does not stop the others.

    \b
    interleaved convert data/raw -o data/parquet --to parquet
    interleaved convert 's3://bucket/raw/*.tar' -o out --to tar --filter min_short_side=200 --on-error drop_row
    """
    from interleaved_assets.cli.answers.convert import show_conversions

    return show_conversions(file, **given)


@click.command("score")
@click.argument("shard", type=FILE)
@click.argument("scores", type=FILE)
@click.option(
    "--scorer",
    "scorers",
    metavar="NAME",
    multiple=True,
    help="A scorer to run, such as sharpness_256; may be repeated. Default: scoring.scorers.",
)
@click.option("--clip", is_flag=True, help="Also the scores of the model in [clip].")
@overwrite
@as_json
@click.pass_obj
def score_command(file: str | None, **given: Any) -> int:
    """Measure the images of a shard file.

    SHARD is a tar or a Parquet file; SCORES is the Parquet file to write.

    SCORES has one row per image: its size, the columns of the scorers, and the error if it cannot be measured.

    \b
    interleaved score data/raw/a.tar a.scores.parquet --scorer sharpness_256 --scorer qr
    """
    from interleaved_assets.cli.answers.score import show_scored

    return show_scored(file, **given)


@click.command("select")
@click.argument("shard", type=FILE)
@click.argument("scores", type=FILE)
@click.argument("output", type=FILE)
@click.option(
    "--ledger", metavar="FILE", help="Parquet file for dropped rows; default: OUTPUT.dropped.parquet.", type=FILE
)
@filters
@policy
@overwrite
@as_json
@click.pass_obj
def select_command(file: str | None, **given: Any) -> int:
    """Write the rows of a shard file that pass thresholds.

    SHARD is a tar or a Parquet file, SCORES the output of `interleaved score` for it. OUTPUT is a tar or a Parquet
    file, by its ending.

    Texts are measured here if a filter compares their scores; functions of [rewriting] are not applied.

    Without --filter, all filters of the section [selection] are applied; with it, only those that are given. Every
    dropped row is in the ledger, with its reason, measured value and threshold.

    \b
    interleaved select data/raw/a.tar a.scores.parquet a.selected.tar --filter min_sharpness_256=100
    """
    from interleaved_assets.cli.answers.score import show_selected

    return show_selected(file, **given)
