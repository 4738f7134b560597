"""The manifest of a release: a JSON that names its tars with sizes and hashes, and their raw shards and settings.

It has no date and no name of a machine: the same tars under the same name give the same bytes.
"""

import hashlib
import json
import posixpath
import re
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from interleaved_assets.io.storage import StorageOptions, is_local, join, local_path, read_small
from interleaved_assets.model.errors import OptionError, ShardError, StorageError
from interleaved_assets.pipeline.raw.listing import RawSource
from interleaved_assets.pipeline.run.record import Counts

MANIFEST_FILE: Final = "manifest.json"
_FOLDER: Final = "releases"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_Sha256 = Field(pattern="^[0-9a-f]{64}$")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ReleasedTar(_Part):
    """One tar of a release, with its raw shard and the versions it was made from; size in bytes."""

    shard: str
    """Partition key of the raw shard."""
    path: str
    """Path relative to the folder of the manifest, or to :attr:`Manifest.folder` if that is given."""
    size: int = Field(ge=0)
    sha256: str = _Sha256
    counts: Counts
    source: RawSource | None
    """The raw shard; None for records of older versions, which do not name it."""
    versions: dict[str, str]
    """Data version of each stage's output, by stage."""


class ColumnValues(_Part):
    """The values of one passthrough column, or the hosts of its URLs, over the documents of a release."""

    column: str
    what: Literal["values", "hosts"]
    documents: int
    """Documents that have a value."""
    distinct: int
    """Number of different values."""
    most: dict[str, int]
    """Documents by value, the most frequent values first; at most 100 of them."""


class Manifest(_Part):
    """A release: its tars, and under which settings and versions of the code they were made."""

    release_version: Literal[1] = 1
    name: str
    folder: str | None = None
    """Folder or URL that the paths are relative to; None for the folder of the manifest."""
    counts: Counts
    """Counts of all tars together."""
    counts_in: Counts
    """Counts of the raw shards that the tars were made from."""
    dropped: dict[str, int]
    """Rows dropped between ``counts_in`` and ``counts``, by reason."""
    filters: dict[str, tuple[float | None, float | None]]
    """Lower and upper bound of each filter that was applied, in their order."""
    settings: dict[str, dict[str, object]]
    """By stage, the settings that its outputs depend on."""
    code_versions: dict[str, str]
    """Code version of each stage, by stage."""
    packages: dict[str, str]
    """Versions of the packages that wrote the release, by name."""
    licences: list[ColumnValues]
    sources: list[ColumnValues]
    left_out: dict[str, str]
    """Shards that are not in the release because they were not current, with the reason."""
    duplicates: list[list[str]] = []
    """Groups of shards with the same documents, which were allowed."""
    tars: list[ReleasedTar]
    """The tars in the order of their shards' keys."""
    files: dict[str, str]
    """SHA-256 of the release's other files that readers rely on, by name."""
    checksum: str = ""
    """SHA-256 of this manifest's JSON without this field."""

    def sealed(self) -> Self:
        """Return the manifest with its checksum."""
        return self.model_copy(update={"checksum": self._content_hash()})

    @property
    def is_sound(self) -> bool:
        """True if the checksum is that of the content."""
        return self.checksum == self._content_hash()

    @property
    def tars_checksum(self) -> str:
        """SHA-256, one for the whole data set, of the lines that ``sha256sum`` prints for the tars in their order."""
        lines = "".join(f"{tar.sha256}  {tar.path}\n" for tar in self.tars)
        return hashlib.sha256(lines.encode()).hexdigest()

    def _content_hash(self) -> str:
        # an empty list is left out, so that the checksums of manifests of older versions stay valid
        content = self.model_dump(mode="json", exclude={"checksum"} if self.duplicates else {"checksum", "duplicates"})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def release_folder(name: str, output_root: str) -> str:
    """Return the folder of the release ``name`` below the output root; raise OptionError if it is not a name."""
    if not is_release_name(name):
        raise OptionError(
            f"{name!r} cannot be the name of a release: take 1 to 100 letters, digits, '.', '_' and '-', of which the "
            "first is a letter or a digit, such as v1"
        )
    return join(output_root, f"{_FOLDER}/{name}")


def is_release_name(text: str) -> bool:
    """Return whether ``text`` can be the name of a release, and is no path."""
    return _NAME.fullmatch(text) is not None and not text.endswith(".json")


def manifest_uri(place: str) -> str:
    """Return the URI of the manifest at ``place``, a path or URL of it or of its folder; make local paths absolute."""
    if is_local(place):
        place = str(local_path(place))
    return place if place.endswith(".json") else join(place, MANIFEST_FILE)


def read_manifest(uri: str, storage_options: StorageOptions = None) -> Manifest:
    """Return the manifest at ``uri``; raise ShardError if it was changed since it was written."""
    content = read_small(uri, storage_options)
    if content is None:
        raise StorageError(f"no release at {uri}: there is no such file. Check the name or path for a typo.")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise ShardError(
            f"{uri} is not the manifest of a release: {f'{place}: ' if place else ''}{problem['msg']}"
        ) from error
    if not manifest.is_sound:
        raise ShardError(
            f"{uri} was changed since it was written: its checksum is not that of its content. Restore it from a copy, "
            "or make the release again under another name."
        )
    return manifest


def tar_uri(tar: ReleasedTar, manifest: Manifest, uri: str) -> str:
    folder = manifest.folder or uri.rpartition("/")[0]
    if is_local(folder):
        return posixpath.normpath(join(folder, tar.path))
    scheme, _, path = folder.partition("://")
    return f"{scheme}://{posixpath.normpath(join(path, tar.path))}"
