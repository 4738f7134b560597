"""Parts of a document that has too much text to be measured at once."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_BYTES_OF_A_CHARACTER: Final = 4
"""Bytes of a character of UTF-8 at most."""


class Part(NamedTuple):
    """Rows of a document that are measured together, and which of their scores count."""

    rows: pa.Table
    has_document: bool
    """True for the first part, whose scores of the document are those of the whole."""
    texts: int
    """Number of its texts, from the first one, whose scores count."""


def text_bytes(rows: pa.Table) -> NDArray[np.int64]:
    """Return the bytes of text of each row."""
    return np.asarray(pc.fill_null(pc.binary_length(rows["text_content"]), 0).to_numpy(), dtype=np.int64)


def parts_of(rows: pa.Table, most: int) -> Iterator[Part]:
    """Yield the parts of a document with more than ``most`` bytes of text; none has more.

    The first part has the beginning of the document and all rows that are no texts. A text that it has the beginning
    of is in the next part again. Of a text with more than ``most`` bytes, its beginning is in a part.
    """
    is_text = pc.equal(rows["modality"], "text").to_numpy()
    texts, others = rows.filter(pa.array(is_text)), rows.filter(pa.array(~is_text))
    ends = np.cumsum(text_bytes(texts))
    whole = int(np.searchsorted(ends, most, side="right"))
    before = int(ends[whole - 1]) if whole else 0
    begun = _shortened(texts.slice(whole, 1), most - before)
    # a text that begins the document is measured no further in another part
    done = whole if before else whole + 1
    yield Part(pa.concat_tables([others, texts.slice(0, whole), begun]), has_document=True, texts=done)
    while done < texts.num_rows:
        end = int(np.searchsorted(ends, ends[done - 1] + most, side="right"))
        if end == done:
            part, end = _shortened(texts.slice(done, 1), most), done + 1
        else:
            part = texts.slice(done, end - done)
        yield Part(part, has_document=False, texts=end - done)
        done = end


def _shortened(row: pa.Table, most: int) -> pa.Table:
    """Return the row of a text with the first ``most`` bytes of it, less those of a character that would be cut."""
    text = row["text_content"].cast(pa.large_binary())[0].as_buffer()
    for _ in range(_BYTES_OF_A_CHARACTER - 1):
        most -= most > 0 and text[most] & 0xC0 == 0x80
    cut = pa.array([text[:most].to_pybytes()], pa.large_binary()).view(pa.large_string())
    return row.set_column(row.column_names.index("text_content"), "text_content", cut)
