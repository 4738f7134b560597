"""``interleaved verify``: whether a release is still what its manifest says."""

from rich.console import Console

from interleaved_assets.io.storage import join, options_of
from interleaved_assets.pipeline.release.manifest import (
    MANIFEST_FILE,
    is_release_name,
    manifest_uri,
    read_manifest,
    release_folder,
)
from interleaved_assets.pipeline.release.verify import verify_release
from interleaved_assets.settings import load_settings, load_settings_or_defaults


def show_verified(release: str, file: str | None, out: Console) -> int:
    """Print one line for each finding, and a sum; returns 0 where there is none, else 1.

    Args:
        release: its name, or a path or URL of its manifest or folder, for which no settings file is needed.
        file: of the settings.
        out: prints.
    """
    if is_release_name(release):
        storage = load_settings(file).storage
        uri = join(release_folder(release, storage.output_root), MANIFEST_FILE)
    else:
        storage = load_settings_or_defaults(file).storage
        uri = manifest_uri(release)
    options = storage.options_by_scheme()
    manifest = read_manifest(uri, options_of(uri, options))
    findings = 0
    for finding in verify_release(manifest, uri, options):
        if finding is not None:
            findings += 1
            out.print(f"{finding.code}  {finding.uri}: {finding.detail}", soft_wrap=True, highlight=False)
    size = sum(tar.size for tar in manifest.tars)
    state = f"{findings:,} finding{'' if findings == 1 else 's'}" if findings else "sound"
    out.print(
        f"release {manifest.name}: {len(manifest.tars):,} tars, {size:,} bytes: {state}  {uri}",
        soft_wrap=True,
        highlight=False,
    )
    return 1 if findings else 0
