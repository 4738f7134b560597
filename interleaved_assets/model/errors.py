"""The exceptions of this package, and the error codes of rows.

An exception stops the shard. An error of one row is stored in its ``materialize_error`` as ``"<code>: <detail>"``, with
a code from :data:`ROW_ERROR_CODES`; the error policy decides what happens to the row.
"""

from typing import Final, Literal

from interleaved_assets.model.shown import cut_lines, shown

ErrorPolicy = Literal["error", "warn", "drop_row", "drop_sample"]
"""The ways to handle a row with an error: raise, keep it, drop the row, or drop its whole sample."""

ROW_ERROR_CODES: Final[dict[str, str]] = {
    "missing_member": "the JSON names a tar member, or a frame source, that is not in the shard",
    "missing_source": "the row has neither bytes nor a source_ref to fetch them from",
    "invalid_source_ref": "source_ref is not a JSON locator",
    "forbidden_path": "source_ref points outside the allowed roots",
    "unreadable_source": "the file that source_ref names is missing, damaged or may not be read; a disk, a server or "
    "credentials that fail make the shard fail, and drop no row",
    "source_changed": "the file that source_ref names is not the one that the row was made from",
    "short_read": "fewer bytes came back than source_ref promises",
    "member_too_large": "the member is larger than the limit",
    "document_too_large": "the sample's JSON is larger than the limit, or would be as rows; it is kept as it is",
    "sample_too_large": "the rows of the sample would take more bytes than the limit",
    "frame_out_of_range": "the TIFF has fewer frames than the document refers to",
    "frame_mismatch": "the TIFF frame has another size than image_metadata gives, or may not be the one that is meant",
    "invalid_tiff": "the TIFF's directory is damaged",
    "undecodable_image": "the bytes are no image that a decoder accepts",
    "too_many_pixels": "the image has more pixels than the limit",
    "unencodable_image": "the image cannot be written as JPEG, as export.reencode asks",
    "scorer_failed": "the image decodes, but a scorer could not measure it",
    "unscored": "no score is stored for the image",
    "no_text": "the image's sample has no text that CLIP could compare it with",
    "prescreened": "clip.prescreen left the image out, so CLIP has not seen it",
    "invalid_json": "the sample's JSON does not parse, or is not an object",
    "invalid_text": "an entry of the texts list is neither a string nor null",
    "invalid_token": "an entry of the images list is neither a string nor null",
    "truncated_shard": "the shard ends in the middle of this sample",
    "undecodable_page": "the body of a web page cannot be unpacked, neither as its server says nor as gzip or deflate",
    "unreadable_page": "a page of a PDF file cannot be parsed",
    "model_failed": "the model that reads pages gave no answer, or none of the form asked for",
    "image_too_large": "an image of a PDF file has too many pixels to be unpacked",
    "image_not_in_archive": "the page shows an image that its web archive does not have, or has as no bitmap",
    "image_not_in_store": "the document names an image that the store of images does not have",
    "boilerplate": "text of a web page outside of its main content; the row only says how much it was",
}
"""Every code of a row error, with its meaning; the README and the checks list the codes from here."""

NOT_IN_SOURCE: Final = ("image_not_in_archive", "image_not_in_store", "boilerplate")
"""Codes of rows whose content is not in the source, or left out on purpose. They do not count as errors: such a row
alone goes to the ledger, and the policy ``warn`` keeps the images among them with their addresses."""

NOT_COMPARED: Final = ("no_text", "prescreened")
"""Codes of images without a CLIP score because their sample has no text, or because of the prescreen; they do not count
as errors."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of this package, which is on no package registry."""
    return f"pip install '.[{extra}]' in a checkout of this package, or pip install '<its wheel>[{extra}]'"


class InterleavedError(Exception):
    """Base of all errors that this package raises. Its text has no credentials and no control characters."""

    def __str__(self) -> str:
        return shown(super().__str__())


def describe(error: BaseException) -> str:
    """Return the message of an error; for an exception of another package, with its type."""
    return str(error) if isinstance(error, InterleavedError) else f"{type(error).__name__}: {error}"


class SettingsError(InterleavedError):
    """A setting is unknown, has the wrong type or is out of range. A long message is cut."""

    def __init__(self, message: str) -> None:
        super().__init__(cut_lines(shown(message)))


class OptionError(InterleavedError, ValueError):
    """An argument is invalid; the message names it and the values it accepts."""


class UnsupportedModality(OptionError):
    """The output format cannot hold a row's modality."""


class StorageError(InterleavedError, OSError):
    """A path is missing, empty, unreadable or not writable."""


class StorageUnavailable(StorageError):
    """A time-out, a lost connection or a failing server; a retry may succeed."""


class NoSuchShard(StorageError):
    """No file below the raw root has the key of the shard."""


class ShardError(InterleavedError):
    """A shard cannot be read at all."""


class UnexpectedLayout(ShardError):
    """Nearly no document has a text or an image, or most bytes of the shard are named by no document."""


class IncompleteShard(ShardError):
    """A shard is cut, or too many of its samples lost rows to errors."""


class ReadBackError(ShardError):
    """A tar that was just written does not give back the samples that went into it."""


class ShardTimeout(ShardError):
    """A stage took longer with the shard than the time limit."""


class WorkerLost(ShardError):
    """The worker process that had the shard ended, or several workers of a cluster did, one after another."""


class ClusterUnavailable(InterleavedError):
    """No Ray cluster answers, or a node of the cluster is not set up for this package."""


class LedgerError(InterleavedError):
    """Rows were neither kept nor entered in the ledger."""


class ImageError(InterleavedError):
    """One image cannot be decoded or measured; ``error`` is the row error text ``"<code>: <detail>"``."""

    def __init__(self, error: str) -> None:
        self.error, self.code = error, error_code(error)
        super().__init__(error)


class ScoreError(InterleavedError):
    """Policy ``error`` met an image, text or document without the score that a filter needs."""

    def __init__(
        self, shard: str, sample_id: str, position: int, filter_name: str, error: str, unit: str = "image"
    ) -> None:
        self.shard, self.sample_id, self.position, self.unit = shard, sample_id, position, unit
        self.filter_name, self.error, self.code = filter_name, error, error_code(error)
        super().__init__(shard, sample_id, position, filter_name, error, unit)  # pickling needs them as args

    def __str__(self) -> str:
        return shown(
            f"{self.shard}: sample {self.sample_id!r}, {self.unit} at position {self.position}: no score for filter "
            f"{self.filter_name!r}: {self.error}. Fix the {self.unit}, or choose on_score_error='warn', 'drop_row' "
            "or 'drop_sample'."
        )


class MissingDependency(InterleavedError, ImportError):
    """An optional package or a system library is absent."""


class MaterializeError(InterleavedError):
    """Policy ``error`` met a row with an error."""

    def __init__(self, shard: str, sample_id: str, position: int, member: str | None, error: str) -> None:
        self.shard, self.sample_id, self.position, self.member, self.error = shard, sample_id, position, member, error
        self.code = error_code(error)
        super().__init__(shard, sample_id, position, member, error)  # pickling needs them as args

    def __str__(self) -> str:
        return shown(
            f"{self.shard}: sample {self.sample_id!r}, position {self.position}, member {self.member!r}: {self.error}. "
            "Fix the shard, or choose on_materialize_error='warn', 'drop_row' or 'drop_sample'."
        )


def row_error(code: str, detail: str) -> str:
    """Return the text of ``materialize_error`` for one row: ``"<code>: <detail>"``.

    Raises:
        KeyError: ``code`` is not in :data:`ROW_ERROR_CODES`.
    """
    ROW_ERROR_CODES[code]
    return f"{code}: {detail}"


def error_code(error: str) -> str:
    """Return the code at the start of an error text; ``"unknown"`` if it is not in :data:`ROW_ERROR_CODES`."""
    code = error.partition(":")[0]
    return code if code in ROW_ERROR_CODES else "unknown"
