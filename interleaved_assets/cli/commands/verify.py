"""``interleaved verify``: check whether a release still agrees with its manifest."""

import os
from typing import TYPE_CHECKING, Final

import click

from interleaved_assets.cli.terminal.options import FILE, as_json

if TYPE_CHECKING:
    from interleaved_assets.pipeline.release.verify import Difference

SECTION: Final = "Releases"


@click.command("verify")
@click.argument("release", type=FILE)
@as_json
@click.pass_obj
def verify_command(file: str | None, release: str, *, as_json: bool) -> int:
    """Compare the tars of RELEASE with its manifest: existence, size and bytes.

    RELEASE is a name, or the path or URL of a manifest or of its folder. Exit codes: 0 sound, 1 findings (one a line),
    2 the manifest or the storage cannot be read.

    \b
    interleaved verify v1
    interleaved verify /data/v1/manifest.json
    """
    from interleaved_assets.cli.terminal.console import console, print_json, progress
    from interleaved_assets.io.storage import exists, join, options_of
    from interleaved_assets.model.errors import OptionError
    from interleaved_assets.pipeline.release.manifest import (
        MANIFEST_FILE,
        is_release_name,
        manifest_uri,
        read_manifest,
        release_folder,
    )
    from interleaved_assets.pipeline.release.verify import verify_release
    from interleaved_assets.reporting.wording.text import counted
    from interleaved_assets.settings import load_settings, load_settings_or_defaults

    if is_release_name(release):
        storage = load_settings(file).storage
        uri = join(release_folder(release, storage.output_root), MANIFEST_FILE)
    else:
        storage = load_settings_or_defaults(file).storage
        uri = manifest_uri(release)
    options = storage.options_by_scheme()
    is_folder = os.path.isdir(release)  # noqa: PTH112 - Path.is_dir raises if access is denied
    if is_release_name(release) and is_folder and not exists(uri, storage.options):
        raise OptionError(
            f"there is no release of the name {release} ({uri}); the folder here is: interleaved verify ./{release}"
        )
    manifest = read_manifest(uri, options_of(uri, options))
    findings: list[Difference] = []
    out = console()
    files = len(manifest.tars) + len(manifest.files)
    with progress("comparing files", files, out, as_json=as_json, lines=True) as advance:
        for finding in verify_release(manifest, uri, options):
            advance()
            if finding is not None:
                findings.append(finding)
                if not as_json:
                    out.print_line(f"{finding.code}  {finding.uri}: {finding.detail}")
    size = sum(tar.size for tar in manifest.tars)
    if as_json:
        print_json(
            {
                "release": manifest.name,
                "manifest": uri,
                "tars": len(manifest.tars),
                "bytes": size,
                "sound": not findings,
                "findings": [finding._asdict() for finding in findings],
            }
        )
        return 1 if findings else 0
    state = counted(len(findings), "finding") if findings else "sound"
    out.print_line(f"release {manifest.name}: {len(manifest.tars):,} tars, {size:,} bytes: {state}  {uri}")
    return 1 if findings else 0
