"""The record beside each output: the inputs, the outputs, the code and the settings of one stage for one shard.

A stage writes its outputs, each of them atomically, and then this file. A record is valid while every output has the
stamp that the record names. A run that replaces an output thereby makes the record invalid, whether the run then ends,
fails or is killed. There are no locks, and runs do not communicate with each other.

A record shows whether the outputs are current (same inputs, same code version), the raw shard they come from and the
drops, without reading an output.
"""

from collections.abc import Callable, Mapping
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from interleaved_assets.io.storage import (
    AtomicOutput,
    atomic_output,
    content_hash,
    file_info,
    read_small,
    read_stamp,
)
from interleaved_assets.model.columns import BINARY_SIZE, BINARY_SIZE_TYPE
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.raw.listing import RawSource
from interleaved_assets.settings.shard_paths import PART_MARK, ShardPaths, is_rows_role

RAW_SHARDS: Final = "raw_shards"


class OutputFile(BaseModel):
    """One file that a stage wrote; size in bytes, hash of its content, and the stamp of the file.

    Records written by older versions may have no stamp: the next run on the shard then compares the content.
    """

    model_config = ConfigDict(frozen=True)

    uri: str
    size: int
    checksum: str | None = None
    """128-bit XXH3 of the content as 32 hex digits; None in some records of older versions."""
    sha256: str | None = None
    """SHA-256 of the content as 64 hex digits, in records of older versions."""
    stamp: str | None = None

    @property
    def content(self) -> str:
        """The hash of its content with its kind: ``xxh3:…``, or ``sha256:…`` of a record of an older version."""
        return f"xxh3:{self.checksum}" if self.checksum else f"sha256:{self.sha256}"

    @classmethod
    def of(cls, written: AtomicOutput) -> "OutputFile":
        """Return the facts of a committed output.

        Raises:
            ValueError: it was not committed.
        """
        if written.checksum is None:
            raise ValueError(f"{written.uri} was not committed")
        return cls(uri=written.uri, size=written.size, checksum=written.checksum, stamp=written.stamp)


class Counts(BaseModel):
    """Rows before or after a stage, of one shard or of several, metadata rows included; ``image_bytes`` in bytes."""

    model_config = ConfigDict(frozen=True)

    rows: int = 0
    samples: int = 0
    images: int = 0
    texts: int = 0
    image_bytes: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in Counts.model_fields})


class Extent(BaseModel):
    """The range of the values of one column without nulls; for a column of vectors, of their Euclidean lengths."""

    model_config = ConfigDict(frozen=True)

    values: int
    """Number of values."""
    not_finite: int = 0
    """Number of values that are NaN or infinite."""
    low: float | None = None
    """Smallest finite value; None if there is none."""
    high: float | None = None
    """Largest finite value; None if there is none."""


class Facts(BaseModel):
    """Counts and columns that a stage reports for one shard."""

    model_config = ConfigDict(frozen=True)

    counts_in: Counts = Counts()
    counts_out: Counts = Counts()
    errors: dict[str, int] = {}
    """Rows with an error, by code."""
    dropped: dict[str, int] = {}
    """Rows in the ledger, by reason."""
    columns: dict[str, str] = {}
    """Arrow type of each column of the output, in their order; empty if the output is not a table."""
    required: tuple[str, ...] = ()
    """Names of the columns that cannot be null."""
    extents: dict[str, Extent] = {}
    """Range of the values of each column of scores, by column."""
    counted: dict[str, int] = {}
    """Further counts that the checks need, by name, counted while the output is written."""
    notes: dict[str, float | int | str] = {}
    """Further facts (repeated ids, filters, device, …)."""
    parts: dict[str, Counts] = {}
    """Counts of each part of a split final tar, by its role; else empty."""


class Record(Facts):
    """The result of one stage for one shard.

    Two runs over the same input write records that differ only in seconds and the stamps of the outputs; for a stage
    that works on a device, also in content hashes and in notes such as the device and its speed.
    """

    stage: str
    shard: str
    code_version: str
    inputs: dict[str, str]
    """Data version of each input, by stage; for a file that the settings name, by the setting (``clip.pretrained``)."""
    data_version: str
    outputs: dict[str, OutputFile]
    """By role: ``rows`` is the output of the stage, ``ledger`` its dropped rows, ``samples`` scores of samples. A final
    tar that is split has ``rows-00000``, ``rows-00001``, … in place of ``rows``. The role of an exported tar, and of
    its table, is its name."""
    settings: dict[str, object]
    """The settings that this output depends on."""
    packages: dict[str, str] = {}
    """Versions of the packages that computed values of the output, by name. Empty if there are none, and in records of
    older versions, which no upgrade makes stale."""
    source: RawSource | None = None
    """The raw shard that the outputs were made from, as it was when ``normalized`` read it."""
    seconds: float | None = None
    """Seconds that the stage took; None in records of older versions."""

    @property
    def names_images(self) -> bool:
        """True if the rows name their images in the raw shard instead of holding them."""
        return self.columns.get(BINARY_SIZE) == BINARY_SIZE_TYPE

    @property
    def rows_files(self) -> dict[str, OutputFile]:
        """The files with the rows of the stage, by role, in order: one, or the parts of a split final tar."""
        return {role: output for role, output in sorted(self.outputs.items()) if is_rows_role(role)}

    @property
    def rows_uri(self) -> str:
        """URI of the rows; for several tars with their numbers in braces, as ``webdataset`` takes it."""
        uris = [output.uri for output in self.rows_files.values()]
        if len(uris) == 1:
            return uris[0]
        first, last = (uri.removesuffix(".tar") for uri in (uris[0], uris[-1]))
        start = first.rindex(PART_MARK) + 1
        return f"{first[:start]}{{{first[start:]}..{last[start:]}}}.tar"


def write_record(record: Record, uri: str, storage_options: Mapping[str, object]) -> None:
    """Write ``record`` atomically."""
    without = {name for name in ("parts", "packages") if not getattr(record, name)}
    content = (record.model_dump_json(indent=1, exclude=without, exclude_none=True) + "\n").encode()
    with atomic_output(uri, storage_options) as out:
        out.write(content)


def record_of(paths: ShardPaths, stage: str) -> Record | None:
    """Return the record of a shard at ``stage``, or None if there is none. Whether its outputs exist is not checked.

    The file may be one of another shard, copied there by hand: it is no record of this one. The URIs of the outputs
    are moved to the present output root, which may be a copied one.
    """
    record = read_record(paths.record(stage), paths.options)
    if record is None or (record.shard, record.stage) != (paths.key, stage):
        return None
    outputs = {
        role: output.model_copy(update={"uri": paths.place(stage, role) or output.uri})
        for role, output in record.outputs.items()
    }
    return record.model_copy(update={"outputs": outputs})


def read_record(uri: str, storage_options: Mapping[str, object]) -> Record | None:
    """Return the record in the file at ``uri``, as it is stored; None if there is none."""
    content = read_small(uri, storage_options)
    # a power failure can leave a file without content, or with zeros only: it is no record
    if content is None or not content.strip(b"\0"):
        return None
    try:
        return Record.model_validate_json(content)
    except ValidationError as error:
        raise ShardError(
            f"{uri} is not a stage record: {error.errors()[0]['msg']}. Delete it to redo the stage."
        ) from error


def has_its_outputs(record: Record, *stamps_at: Callable[[str], str | None]) -> bool:
    """Return whether every output has the stamp that the record names. No output is read.

    Args:
        stamps_at: each returns the stamp of the file at a URI, or None: either at the time of a listing, or now. A
            later one is asked only for outputs whose stamp in the earlier ones differs or is missing.
    """
    return all(any(_matches(output, at(output.uri)) for at in stamps_at) for output in record.outputs.values())


def _matches(output: OutputFile, stamp: str | None) -> bool:
    return stamp is not None and output.stamp in (stamp, None)


def with_present_stamps(record: Record, storage_options: Mapping[str, object]) -> Record | None:
    """Return ``record`` with the present stamps of its outputs; None if an output is missing or has other content.

    An output with a new stamp (it was copied, or written again with the same bytes) is read and compared by its hash.
    The record is not written.
    """
    outputs: dict[str, OutputFile] = {}
    for role, output in record.outputs.items():
        # a file that is replaced after its stamp was read does not match the renewed record, and is compared once more
        stamp = read_stamp(output.uri, storage_options)
        if stamp is None or (stamp != output.stamp and not _has_content(output, storage_options)):
            return None
        outputs[role] = output.model_copy(update={"stamp": stamp})
    return record.model_copy(update={"outputs": outputs})


def _has_content(output: OutputFile, storage_options: Mapping[str, object]) -> bool:
    info = file_info(output.uri, storage_options)
    if info is None or info["size"] != output.size:
        return False
    return content_hash(output.uri, storage_options, like=output.content) == output.content
