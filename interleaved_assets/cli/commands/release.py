"""``interleaved release``: freeze the current final tars as a release."""

from functools import partial
from typing import Final

import click

from interleaved_assets.cli.terminal.options import FOLDER, as_json

SECTION: Final = "Releases"


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
def release_command(
    file: str | None,
    *,
    name: str,
    to: str | None,
    documents: bool,
    incomplete: bool,
    allow_duplicates: bool,
    as_json: bool,
) -> int:
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
    from interleaved_assets.cli.terminal.console import console, print_json, progress
    from interleaved_assets.pipeline.release.make import make_release
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings

    out = console()
    watch = partial(progress, out=out, as_json=as_json, lines=True)
    settings = load_settings(file)
    release = make_release(
        name,
        settings,
        to=to,
        documents=documents,
        incomplete=incomplete,
        allow_duplicates=allow_duplicates,
        watch=watch,
    )
    manifest = release.manifest
    counts = manifest.counts
    size = sum(tar.size for tar in manifest.tars)
    if as_json:
        print_json(
            {
                "name": name,
                "manifest": release.uri,
                "folder": release.folder,
                "checksum": manifest.checksum,
                "copied": manifest.folder is not None,
                "tars": len(manifest.tars),
                "bytes": size,
                "counts": counts.model_dump(),
                "left_out": manifest.left_out,
                "duplicates": manifest.duplicates,
            }
        )
        return 0
    out.print_line(
        f"release {name}: {counted(len(manifest.tars), 'tar')}, {size:,} bytes, {counted(counts.samples, 'sample')}, "
        f"{counted(counts.images, 'image')}"
    )
    out.print_facts([("manifest", release.uri), ("index, card", release.folder), ("checksum", manifest.checksum)])
    for key, why in manifest.left_out.items():
        out.print_line(f"left out: {key}: {why}")
    for keys in manifest.duplicates:
        out.print_line(f"same documents: {', '.join(keys)}")
    if manifest.folder is None:
        out.print_line(
            "The tars stay in place, where a later run may replace them; a release made with --to has its own. "
            f"Compare them again: interleaved verify {name}"
        )
    return 0
