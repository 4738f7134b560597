"""The texts of a batch of whole samples in one array of code points, shared by all scorers of texts.

The texts of a document are joined by an empty line, and so are the documents. White space separates all of them, so
that no word and no line crosses from one text into the next.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.io.rows.batches import sample_starts
from interleaved_assets.model.columns import METADATA_POSITION
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.fields import field_values
from interleaved_assets.scoring.texts.characters import NEWLINE, WHITE, classes_of, is_of

Numbers = NDArray[np.int64]
Shares = NDArray[np.float64]
SEPARATOR: Final = b"\n\n"
_LONG: Final = 2**22
"""Characters of a batch from which on words are counted without the code points of all."""
Made = TypeVar("Made")


class TextBatch:
    """The documents and texts of a batch: the argument of a scorer of texts.

    A table of scores has a row for each document, followed by one for each of its texts. Arrays *of rows* have one
    element for each of these; arrays *of texts* and *of documents* have one for each text and each document.

    Attributes:
        keys: ``sample_id`` and ``position`` of the rows; -1 is the position of a document.
        documents, texts: number of documents, and of texts.
        document_of_text: the number of the document that a text belongs to.
        first_text: the number of the first text of each document.
        row_of_document, row_of_text: places in arrays of rows.
        images: images of each document.
    """

    def __init__(self, rows: pa.Table, fields: Sequence[str] = ()) -> None:
        """Read ``sample_id``, ``position``, ``modality``, ``text_content`` and ``fields`` of whole samples."""
        first = np.asarray(sample_starts(rows["sample_id"]), dtype=np.int64)
        self.documents = len(first)
        sample = np.repeat(np.arange(self.documents), np.diff(np.append(first, rows.num_rows)))
        place = np.flatnonzero(pc.equal(rows["modality"], "text").to_numpy())
        self.texts = len(place)
        self.images: Numbers = np.bincount(
            sample[pc.equal(rows["modality"], "image").to_numpy()], minlength=self.documents
        )
        self.document_of_text: Numbers = sample[place]
        self.row_of_text: Numbers = np.arange(self.texts) + self.document_of_text + 1
        in_front = np.cumsum(self.texts_of_document) - self.texts_of_document
        self.row_of_document: Numbers = np.arange(self.documents) + in_front
        self.first_text: Numbers = in_front
        self._after_texts = in_front + self.texts_of_document
        self._is_text = np.ones(self.documents + self.texts, dtype=bool)
        self._is_text[self.row_of_document] = False
        self.keys = _keys(rows, self.rows_from(first, place), self.rows_from(np.ones_like(first), place * 0) == 1)
        self._shared: dict[str, Any] = {}
        self._contents = rows["text_content"].take(pa.array(place))
        self._fields = {path: self._field(rows, sample, path) for path in fields}

    def field(self, path: str) -> pa.Array | None:
        """Return the values of a field of the documents as strings, null for one without; None if all lack it."""
        return self._fields.get(path)

    def _field(self, rows: pa.Table, sample: Numbers, path: str) -> pa.Array | None:
        values = field_values(rows, path)
        if values is None:
            return None
        described = np.flatnonzero(pc.equal(rows["modality"], "metadata").to_numpy())
        at = np.full(self.documents, -1)
        at[sample[described]] = described
        try:
            return pc.cast(values.take(pa.array(at, mask=at < 0)), pa.large_string()).combine_chunks()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its message may repeat a value
            raise OptionError(f"the field {path} of the documents is {values.type}, and no string") from None

    @cached_property
    def texts_of_document(self) -> Numbers:
        """Number of texts of each document."""
        return np.bincount(self.document_of_text, minlength=self.documents)

    def rows_from(self, of_documents: NDArray[Any], of_texts: NDArray[Any]) -> NDArray[Any]:
        """Return an array of rows with these values."""
        found = np.zeros(self.documents + self.texts, dtype=np.result_type(of_documents, of_texts))
        found[self.row_of_document] = of_documents
        found[self.row_of_text] = of_texts
        return found

    def with_totals(self, of_texts: NDArray[Any]) -> NDArray[Any]:
        """Return an array of rows with these values of texts, and their sums as the values of the documents."""
        return self.rows_from(self.total(of_texts), of_texts)

    def total(self, of_texts: NDArray[Any]) -> Numbers:
        """Return the sum of the values of the texts of each document."""
        before = running_sum(of_texts)
        return before[self._after_texts] - before[self.first_text]

    def documents_only(self, of_documents: NDArray[Any]) -> pa.Array:
        """Return an array of rows with these values of documents, null on rows of texts."""
        found = np.zeros(self.documents + self.texts, dtype=of_documents.dtype)
        found[self.row_of_document] = of_documents
        return pa.array(found, mask=self._is_text)

    @cached_property
    def _decoded(self) -> tuple[str, Numbers, pa.Array]:
        """The texts, joined, the number of code points of each, and the texts as an array of valid strings."""
        contents = pc.fill_null(self._contents.cast(pa.large_string()), "")
        texts: list[bytes] = contents.cast(pa.large_binary()).to_pylist()
        joined = SEPARATOR.join(texts)
        try:
            text = joined.decode()
        except UnicodeDecodeError:
            # Arrow does not check that strings are UTF-8; each invalid byte becomes U+FFFD
            texts = [one.decode("utf-8", "replace").encode() for one in texts]
            text = SEPARATOR.join(texts).decode()
            contents = pa.chunked_array([pa.array(texts, pa.large_binary()).cast(pa.large_string())])
        lengths = np.asarray(pc.utf8_length(contents).to_numpy(), dtype=np.int64)
        return text, lengths, contents.combine_chunks()

    @property
    def lengths(self) -> Numbers:
        """Code points of each text."""
        return self._decoded[1]

    @property
    def contents(self) -> pa.Array:
        """The texts as strings without null."""
        return self._decoded[2]

    @property
    def text(self) -> str:
        """All texts, joined."""
        return self._decoded[0]

    @cached_property
    def codes(self) -> NDArray[np.uint32]:
        """The code points of all texts."""
        if self.text.isascii():
            return np.frombuffer(self.text.encode("ascii"), dtype=np.uint8).astype(np.uint32)
        return np.frombuffer(self.text.encode("utf-32-le"), dtype=np.uint32)

    @cached_property
    def starts(self) -> Numbers:
        """The place in :attr:`codes` at which each text begins."""
        steps = self.lengths + len(SEPARATOR)
        return np.cumsum(steps) - steps

    @property
    def ends(self) -> Numbers:
        """The place in :attr:`codes` at which each text ends."""
        return self.starts + self.lengths

    @cached_property
    def characters(self) -> Numbers:
        """Code points of each row; those of a document include the empty lines between its texts."""
        joints = np.maximum(self.texts_of_document - 1, 0) * len(SEPARATOR)
        return self.rows_from(self.total(self.lengths) + joints, self.lengths)

    @cached_property
    def classes(self) -> NDArray[np.uint16]:
        """The classes of each code point: bits of :mod:`.characters`."""
        return classes_of(self.codes)

    def count(self, marked: NDArray[np.bool_]) -> Numbers:
        """Return how many code points of each text are ``marked``, an array like :attr:`codes`."""
        places = np.flatnonzero(marked)
        return np.searchsorted(places, self.ends) - np.searchsorted(places, self.starts)

    @cached_property
    def document_starts(self) -> Numbers:
        """The place in :attr:`codes` at which each document begins; one without texts has no code points."""
        return np.append(self.starts, 0)[np.minimum(self.first_text, self.texts)]

    @cached_property
    def document_ends(self) -> Numbers:
        """The place in :attr:`codes` at which each document ends."""
        last = np.append(self.ends, 0)[self.first_text + self.texts_of_document - 1]
        return np.where(self.texts_of_document > 0, last, self.document_starts)

    def count_rows(self, marked: NDArray[np.bool_]) -> Numbers:
        """Return how many code points of each row are ``marked``, with those between the texts of a document."""
        of_texts = self.count(marked)
        joint = self.ends[self._followed]
        with_joints = of_texts.copy()
        for offset in range(len(SEPARATOR)):
            with_joints[self._followed] += marked[joint + offset]
        return self.rows_from(self.total(with_joints), of_texts)

    @cached_property
    def _followed(self) -> Numbers:
        """The numbers of the texts that another one of the same document follows."""
        return np.flatnonzero(self.document_of_text[1:] == self.document_of_text[:-1])

    def shared(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what ``make`` makes of this batch; it is made once for all scorers."""
        if name not in self._shared:
            self._shared[name] = make()
        found: Made = self._shared[name]
        return found

    def count_class(self, *names: int) -> Numbers:
        """Return how many code points of each text are in any of the classes."""
        return self.count(is_of(self.classes, *names))

    @property
    def is_long(self) -> bool:
        """True if the batch is so long that arrays of all its characters take much memory."""
        return len(self.text) > _LONG

    @cached_property
    def white(self) -> NDArray[np.bool_]:
        """One bool for each code point: True for white space."""
        if not self.is_long or "classes" in vars(self):
            return is_of(self.classes, WHITE)
        # the code points and classes of all characters would take six bytes each
        found = np.zeros(len(self.text), dtype=bool)
        for start in range(0, len(found), _LONG):
            part = self.text[start : start + _LONG].encode("utf-32-le")
            found[start : start + _LONG] = is_of(classes_of(np.frombuffer(part, dtype=np.uint32)), WHITE)
        return found

    @cached_property
    def newlines(self) -> NDArray[np.bool_]:
        """One bool for each code point: True for a line feed."""
        return self.codes == NEWLINE


def running_sum(values: NDArray[Any]) -> Numbers:
    """Return the sum of the values before each place, and of all."""
    found = np.empty(len(values) + 1, dtype=np.int64)
    found[0] = 0
    np.cumsum(values, out=found[1:])
    return found


def share(part: NDArray[Any], whole: NDArray[Any]) -> Shares:
    """Return ``part`` ÷ ``whole``, 0 where ``whole`` is 0."""
    return np.asarray(part / np.maximum(whole, 1), dtype=np.float64)


def _keys(rows: pa.Table, place: Numbers, is_document: NDArray[np.bool_]) -> pa.Table:
    """Return the keys of the rows of scores from those of the rows at ``place``."""
    taken = rows.select(["sample_id", "position"]).take(pa.array(place))
    positions = np.where(is_document, METADATA_POSITION, taken["position"].to_numpy())
    return pa.table({"sample_id": taken["sample_id"], "position": pa.array(positions, pa.int32())})
