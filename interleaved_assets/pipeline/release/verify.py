"""Comparison of a release with its manifest: every tar must exist, with the size and the bytes that it had."""

from collections.abc import Iterator
from typing import NamedTuple

from interleaved_assets.io.storage import StorageOptions, file_info, file_sha256, files_below, join, options_of
from interleaved_assets.io.storage.options import StorageOptionsByScheme
from interleaved_assets.model.errors import StorageError, StorageUnavailable
from interleaved_assets.pipeline.release.manifest import Manifest, tar_uri
from interleaved_assets.pipeline.run.threads import TABLE_READERS, parallel_map
from interleaved_assets.settings.shard_paths import TARS_FOLDER


class Difference(NamedTuple):
    """One difference between a release and its manifest."""

    code: str
    """``missing``, ``size``, ``sha256``, ``unreadable`` or ``unexpected``."""
    uri: str
    detail: str


def verify_release(
    manifest: Manifest, uri: str, options: StorageOptionsByScheme | None = None
) -> Iterator[Difference | None]:
    """Compare every file of the release; yield a finding, or None for an unchanged file, as each is done.

    The order is that of the manifest. Tars that it does not name come last, if the release has a ``tars`` folder of its
    own. Each tar is read once, in blocks; a tar whose size differs is not read.
    """
    folder = manifest.folder or uri.rpartition("/")[0]
    files: list[tuple[str, int | None, str]] = [
        (tar_uri(tar, manifest, uri), tar.size, tar.sha256) for tar in manifest.tars
    ]
    files += [(join(folder, name), None, sha256) for name, sha256 in manifest.files.items()]

    def look(file: tuple[str, int | None, str]) -> Difference | None:
        place, size, sha256 = file
        return compare_file(place, size, sha256, options_of(place, options))

    yield from parallel_map(look, files, threads=TABLE_READERS)
    if all(tar.path.startswith(f"{TARS_FOLDER}/") for tar in manifest.tars):
        expected = {tar.path for tar in manifest.tars}
        present = files_below(join(folder, TARS_FOLDER), options_of(folder, options))
        for name in sorted(f"{TARS_FOLDER}/{name}" for name in present if name.endswith(".tar")):
            if name not in expected:
                yield Difference("unexpected", join(folder, name), "a tar that the manifest does not name")


def compare_file(uri: str, size: int | None, sha256: str, options: StorageOptions) -> Difference | None:
    """Return the difference of the file at ``uri`` from this size in bytes and this SHA-256; None if there is none.

    A file of another size is not read. With ``size`` None, only the hash is compared.
    """
    try:
        info = file_info(uri, options)
        if info is None:
            return Difference("missing", uri, "no such file")
        if size is not None and info["size"] != size:
            return Difference("size", uri, f"{info['size']:,} bytes instead of {size:,}")
        present = file_sha256(uri, options)
    except StorageUnavailable:
        raise
    except StorageError as error:
        return Difference("unreadable", uri, str(error))
    return None if present == sha256 else Difference("sha256", uri, f"{present} instead of {sha256}")
