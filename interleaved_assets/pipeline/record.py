"""The record beside each output: what went in, what came out, under which code and settings.

A stage writes its outputs, each of them atomically, and then this file: the record is what commits them. From records
alone one knows whether an output is current (same inputs, same code version), where it came from and what was dropped;
nothing has to be read twice. While a stage is at work a :class:`Claim` stands in the record's place, which vouches for
nothing.
"""

import contextlib
from collections.abc import Mapping
from datetime import datetime
from typing import Final, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from interleaved_assets.io.storage import atomic_output, filesystem, read_small, storage_errors
from interleaved_assets.model.errors import ShardError
from interleaved_assets.pipeline.raw.listing import Source

RAW_SHARDS: Final = "raw_shards"


class Written(Protocol):
    """What every writer knows of its file once it is committed."""

    uri: str
    size: int
    sha256: str | None


class OutputFile(BaseModel):
    """One file that a stage wrote; size in bytes, content hash as 64 hex digits."""

    model_config = ConfigDict(frozen=True)

    uri: str
    size: int
    sha256: str

    @classmethod
    def of(cls, written: "Written") -> "OutputFile":
        """The facts of a committed output.

        Raises:
            ValueError: it was not committed, or not hashed.
        """
        if written.sha256 is None:
            raise ValueError(f"{written.uri} was not committed, or not hashed")
        return cls(uri=written.uri, size=written.size, sha256=written.sha256)


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
    """What one stage did to one shard. Holds nothing that differs between two runs over the same input, but for a stage
    that works on a device: there content hashes and some of the notes do (the device, how fast it was).
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
    source: Source | None = None
    """The raw shard that this output goes back to, as it was when ``normalized`` read it."""


class Claim(BaseModel):
    """What a run writes in place of the record before it touches the outputs, and the record replaces.

    One that stays behind is of a run that was killed, or that is still at work: nothing tells the two apart.
    """

    model_config = ConfigDict(frozen=True)

    stage: str
    shard: str
    claimed_by: str
    """A name that no other run has."""
    began: datetime
    code_version: str
    inputs: dict[str, str]
    """Data version of each input, as in the record that is to follow."""
    follows: tuple[str, ...] = ()
    """``claimed_by`` of the claims that stood here one after the other right before it, first to last, all of them for
    the same inputs under the same code version: no other run has claimed the shard since the first of them."""


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

    def written_by(self, stage: str) -> tuple[str, ...]:
        """Every place that a run of the stage may write to."""
        scores = (self.sample_scores(),) if stage == "filtered" else ()
        return self.output(stage), self.ledger(stage), *scores, self.record(stage)


def write_record(record: Record | Claim, uri: str, storage_options: Mapping[str, object]) -> None:
    """Write ``record``, or a claim in its place, atomically."""
    with atomic_output(uri, storage_options) as out:
        out.write((record.model_dump_json(indent=1) + "\n").encode())


def read_record(uri: str, storage_options: Mapping[str, object]) -> Record | None:
    """The record at ``uri``, or None where there is none, or only a claim.

    Raises:
        ShardError: the file is no record of ours.
    """
    found = read_state(uri, storage_options)
    return found if isinstance(found, Record) else None


def read_state(uri: str, storage_options: Mapping[str, object]) -> Record | Claim | None:
    """What stands at ``uri``: a record, a claim, or nothing.

    Raises:
        ShardError: the file is neither.
    """
    content = read_small(uri, storage_options)
    if content is None or not content.strip(b"\0"):
        return None  # a power failure can leave a file without its content: nothing was recorded
    try:
        return Record.model_validate_json(content)
    except ValidationError as error:
        with contextlib.suppress(ValidationError):
            return Claim.model_validate_json(content)
        raise ShardError(
            f"{uri} is not a stage record: {error.errors()[0]['msg']}. Delete it to redo the stage."
        ) from error


def remove_record(uri: str, storage_options: Mapping[str, object]) -> None:
    """Take back what vouches for an output, or a claim to it."""
    with storage_errors(uri, "remove"):
        fs, path = filesystem(uri, storage_options)
        with contextlib.suppress(FileNotFoundError):  # another run on the same shard was faster
            fs.rm_file(path)


def is_there(output: OutputFile, storage_options: Mapping[str, object]) -> bool:
    """Whether the file still lies where the record says, with the size it says."""
    with storage_errors(output.uri, "look at"):
        fs, path = filesystem(output.uri, storage_options)
        fs.invalidate_cache(path)
        try:
            return bool(fs.info(path)["size"] == output.size)
        except FileNotFoundError:
            return False
