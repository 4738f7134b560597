"""The record beside each output: what went in, what came out, under which code and settings.

A stage writes its outputs, each of them atomically, and then this file. A record holds only while every output has the
stamp that it names: a run that replaces one of them, whether it then ends, fails or is killed, makes the record invalid
by that alone. Nothing is locked, and a run need not know of another one.

From records one knows whether an output is current (same inputs, same code version), where it came from and what was
dropped; no output has to be read for that.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from interleaved_assets.io.storage import (
    atomic_output,
    content_hash,
    filesystem,
    read_small,
    read_stamp,
    storage_errors,
)
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.raw.listing import RawSource

RAW_SHARDS: Final = "raw_shards"


class Written(Protocol):
    """What every writer knows of its file once it is committed."""

    uri: str
    size: int
    sha256: str | None
    stamp: str | None


class OutputFile(BaseModel):
    """One file that a stage wrote; size in bytes, content hash as 64 hex digits, and the stamp of the file.

    Records of before there were stamps have none: then the content is compared when a run comes to the shard.
    """

    model_config = ConfigDict(frozen=True)

    uri: str
    size: int
    sha256: str
    stamp: str | None = None

    @classmethod
    def of(cls, written: "Written") -> "OutputFile":
        """The facts of a committed output.

        Raises:
            ValueError: it was not committed, or not hashed.
        """
        if written.sha256 is None:
            raise ValueError(f"{written.uri} was not committed, or not hashed")
        return cls(uri=written.uri, size=written.size, sha256=written.sha256, stamp=written.stamp)


class Counts(BaseModel):
    """Rows of one shard on one side of a stage; metadata rows count as rows."""

    model_config = ConfigDict(frozen=True)

    rows: int = 0
    samples: int = 0
    images: int = 0
    texts: int = 0
    image_bytes: int = 0


class Extent(BaseModel):
    """How far the values of one column reach, nulls left out; of a column of vectors, how far their lengths do."""

    model_config = ConfigDict(frozen=True)

    values: int
    """How many there are."""
    not_finite: int = 0
    """How many of them are no finite number."""
    low: float | None = None
    """The smallest finite one; None where there is none."""
    high: float | None = None
    """The largest finite one."""


class Facts(BaseModel):
    """What a stage tells of the rows of one shard."""

    model_config = ConfigDict(frozen=True)

    counts_in: Counts = Counts()
    counts_out: Counts = Counts()
    errors: dict[str, int] = {}
    """Rows with an error, by code."""
    dropped: dict[str, int] = {}
    """Rows in the ledger, by reason."""
    columns: dict[str, str] = {}
    """Arrow type of each column of the output, in their order; none for an output that is no table."""
    required: tuple[str, ...] = ()
    """Those of the columns that may not be null."""
    extents: dict[str, Extent] = {}
    """Of each column of scores."""
    counted: dict[str, int] = {}
    """What was counted for the checks while the output was written, by name."""
    notes: dict[str, float | int | str] = {}
    """Further facts (repeated ids, filters, device, …)."""


class Record(Facts):
    """What one stage did to one shard. Of two runs over the same input only the stamps of the outputs differ; for a
    stage that works on a device, content hashes and some of the notes as well (the device, how fast it was).
    """

    stage: str
    shard: str
    code_version: str
    inputs: dict[str, str]
    """Data version of each input, by stage; of a file that the settings name, by the setting (``clip.pretrained``)."""
    data_version: str
    outputs: dict[str, OutputFile]
    """By role: ``rows`` is the stage's own output, ``ledger`` what it dropped, ``samples`` scores of samples."""
    settings: dict[str, object]
    """The settings that this output depends on."""
    source: RawSource | None = None
    """The raw shard that this output goes back to, as it was when ``normalized`` read it."""


class ShardPaths(BaseModel):
    """Where the outputs of one shard lie below the output root."""

    model_config = ConfigDict(frozen=True)

    output_root: str
    key: str

    def output(self, stage: str) -> str:
        """The stage's own output: Parquet, and a tar for the last one."""
        if stage == "final_tars":
            return f"{self.output_root}/tars/{self.key}.tar"
        return f"{self.output_root}/{stage}/{self.key}.parquet"

    def sample_scores(self) -> str:
        """What filters of samples judged by, one row per sample that was left for them."""
        return f"{self.output_root}/sample_scores/{self.key}.parquet"

    def ledger(self, stage: str) -> str:
        """What the stage dropped, as Parquet."""
        return f"{self.output_root}/dropped/{stage}/{self.key}.parquet"

    def pictures(self, stage: str) -> str:
        """What was drawn of the stage for people to look at, as JSON."""
        return f"{self.output_root}/pictures/{stage}/{self.key}.json"

    def record(self, stage: str) -> str:
        """The stage's record, as JSON."""
        return f"{self.output_root}/records/{stage}/{self.key}.json"

    def outputs(self, stage: str) -> dict[str, str]:
        """Every output that the stage may write, by role."""
        scores = {"samples": self.sample_scores()} if stage == "filtered" else {}
        return {"rows": self.output(stage), "ledger": self.ledger(stage), **scores}


def write_record(record: Record, uri: str, storage_options: Mapping[str, object]) -> None:
    """Write ``record`` atomically."""
    with atomic_output(uri, storage_options) as out:
        out.write((record.model_dump_json(indent=1) + "\n").encode())


def read_record(uri: str, storage_options: Mapping[str, object]) -> Record | None:
    """The record at ``uri``, or None where there is none. Whether its outputs still lie there is not looked at.

    Its outputs have the URIs that they have below the same output root as the record.

    Raises:
        ShardError: the file is not a record.
    """
    content = read_small(uri, storage_options)
    if content is None or not content.strip(b"\0"):
        return None  # a power failure can leave a file without its content: nothing was recorded
    try:
        record = Record.model_validate_json(content)
    except ValidationError as error:
        raise ShardError(
            f"{uri} is not a stage record: {error.errors()[0]['msg']}. Delete it to redo the stage."
        ) from error
    paths = _paths_beside(record, uri)
    if paths is None:
        return record
    places = paths.outputs(record.stage)
    outputs = {
        role: output.model_copy(update={"uri": places.get(role, output.uri)}) for role, output in record.outputs.items()
    }
    return record.model_copy(update={"outputs": outputs})


def _paths_beside(record: Record, uri: str) -> "ShardPaths | None":
    """The paths below the output root that the record at ``uri`` lies in now: the whole tree may have been copied."""
    paths = ShardPaths(output_root="", key=record.shard)
    inside = paths.record(record.stage)
    return ShardPaths(output_root=uri.removesuffix(inside), key=record.shard) if uri.endswith(inside) else None


def read_valid_record(
    uri: str, storage_options: Mapping[str, object], stamp_at: Callable[[str], str | None] | None = None
) -> Record | None:
    """The record at ``uri`` if every output that it names has the stamp that it names, else None. No output is read.

    Args:
        uri: where the record lies.
        storage_options: what fsspec needs.
        stamp_at: gives the stamp that the file at a URI had when files were listed. An output that has another stamp
            there, or none, is looked at; without ``stamp_at`` each output is.

    Raises:
        ShardError: the file is not a record.
    """
    record = read_record(uri, storage_options)
    if record is None:
        return None
    for output in record.outputs.values():
        listed = stamp_at(output.uri) if stamp_at else None
        if not _matches(output, listed) and not _matches(output, read_stamp(output.uri, storage_options)):
            return None
    return record


def _matches(output: OutputFile, stamp: str | None) -> bool:
    return stamp is not None and output.stamp in (stamp, None)


def with_present_stamps(record: Record, storage_options: Mapping[str, object]) -> Record | None:
    """``record`` with the stamps that its outputs have now; None where one is missing or has other content.

    An output whose stamp is another one (it was copied, or made again with the same bytes) is read and compared by its
    hash. The record is not written.

    Raises:
        StorageError: an output cannot be read.
    """
    outputs: dict[str, OutputFile] = {}
    for role, output in record.outputs.items():
        stamp = _present_stamp(output, storage_options)
        if stamp is None:
            return None
        outputs[role] = output.model_copy(update={"stamp": stamp})
    return record.model_copy(update={"outputs": outputs})


def _present_stamp(output: OutputFile, storage_options: Mapping[str, object]) -> str | None:
    """The stamp of the file now; None where there is none, or it has other content than ``output``."""
    stamp = read_stamp(output.uri, storage_options)
    while stamp is not None and stamp != output.stamp:
        same = _has_content(output, storage_options)
        # once more, since the file may have been replaced between the look at it and its reading
        before, stamp = stamp, read_stamp(output.uri, storage_options)
        if stamp == before:
            return stamp if same else None
    return stamp


def _has_content(output: OutputFile, storage_options: Mapping[str, object]) -> bool:
    with storage_errors(output.uri, "look at"):
        fs, path = filesystem(output.uri, storage_options)
        try:
            if fs.info(path)["size"] != output.size:
                return False
        except FileNotFoundError:
            return False
    return content_hash(output.uri, storage_options) == output.sha256


def remove_record(uri: str, storage_options: Mapping[str, object]) -> None:
    """Remove the record at ``uri``, if there is one."""
    with storage_errors(uri, "remove"):
        fs, path = filesystem(uri, storage_options)
        with contextlib.suppress(FileNotFoundError):  # another run on the same shard was faster
            fs.rm_file(path)
