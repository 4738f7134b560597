"""The work of ``interleaved release``: freeze the current final tars as a release."""

from functools import partial

from interleaved_assets.cli.terminal.console import console, print_json, progress
from interleaved_assets.pipeline.release.make import make_release
from interleaved_assets.settings import load_settings


def show_release(
    file: str | None,
    *,
    name: str,
    to: str | None,
    documents: bool,
    incomplete: bool,
    allow_duplicates: bool,
    as_json: bool,
) -> int:
    """Make the release, print its contents and its place, and return the exit code."""
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
        f"release {name}: {len(manifest.tars):,} tars, {size:,} bytes, {counts.samples:,} samples, "
        f"{counts.images:,} images"
    )
    out.print_facts([("manifest", release.uri), ("index, card", release.folder), ("checksum", manifest.checksum)])
    for key, why in manifest.left_out.items():
        out.print_line(f"left out: {key}: {why}")
    for keys in manifest.duplicates:
        out.print_line(f"same documents: {', '.join(keys)}")
    if manifest.folder is None:
        out.print_line(
            "The tars stay in place, where a later run may replace them; --to copies them. "
            f"Compare them again: interleaved verify {name}"
        )
    return 0
