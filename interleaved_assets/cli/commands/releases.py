"""Commands for releases: ``release``, ``verify``."""

from typing import Any

import click

from interleaved_assets.cli.terminal.options import FILE, FOLDER, as_json


@click.command("release")
@click.argument("name")
@click.option(
    "--to",
    metavar="FOLDER|URL",
    help="Also copy the tars into this empty folder, a release by itself.",
    type=FOLDER,
)
@click.option(
    "--documents",
    is_flag=True,
    help="With --to: also write the documents as Parquet, a row for each, which datasets.load_dataset(FOLDER) reads. "
    "Takes the space of the tars once more.",
)
@click.option("--incomplete", is_flag=True, help="Leave out shards that are not current; default: refuse.")
@click.option(
    "--allow-duplicates", is_flag=True, help="Release shards with the same documents as another; default: refuse."
)
@as_json
@click.pass_obj
def release_command(file: str | None, **given: Any) -> int:
    """Freeze the final tars that make up a data set, as releases/NAME below the output root.

    The release has manifest.json (tars, hashes, settings, raw shards), wids.json (index for random access) and
    README.md (card). A release is never overwritten; repeat a command that was stopped to complete it. The tars stay in
    place, where a later run may replace them, unless --to copies them. On the same disk the copies are hard links,
    which take no space.

    \b
    interleaved release v1
    interleaved release v1 --to s3://bucket/releases/v1
    interleaved release v1 --to /data/v1 --documents
    """
    from interleaved_assets.cli.answers.release import show_release

    return show_release(file, **given)


@click.command("verify")
@click.argument("release", type=FILE)
@as_json
@click.pass_obj
def verify_command(file: str | None, release: str, as_json: bool) -> int:
    """Compare the tars of RELEASE with its manifest: existence, size and bytes.

    RELEASE is a name, or the path or URL of a manifest or of its folder. Exit codes: 0 sound, 1 findings (one a line),
    2 the manifest or the storage cannot be read.

    \b
    interleaved verify v1
    interleaved verify /data/v1/manifest.json
    """
    from interleaved_assets.cli.answers.verify import show_verified

    return show_verified(file, release, as_json=as_json)
