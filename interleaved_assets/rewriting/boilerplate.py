"""The function that drops text rows which are navigation, cookie notices, mere punctuation or repetitions."""

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.rows import filter_rows
from interleaved_assets.rewriting.texts import is_text

LONGEST: Final = 600
"""Most characters of a text that is compared with the phrases."""
_CLEAR: Final = (
    r"skip to (?:main )?content|back to top|(?:main )?menu|navigation|site ?map|log ?in|log ?out|sign ?in|sign ?up|"
    r"sign ?out|privacy policy|cookie (?:policy|settings|preferences)|terms of (?:use|service)|"
    r"terms (?:and|&) conditions|contact us|about us|read more|continue reading|(?:load|show|see) more|view all|"
    r"click here|share this(?: article)?|advertisement|sponsored(?: content)?|related (?:articles|posts|stories)|"
    r"leave a (?:comment|reply)|subscribe(?: now)?|all rights reserved|accept(?: all)?(?: cookies)?|"
    r"reject all(?: cookies)?|manage (?:cookies|preferences)"
)
"""Phrases that are navigation or a notice also where they stand alone."""
_WORDS: Final = (
    r"home|about|contact|search|help|faq|blog|news|shop|cart|account|register|login|share|tweet|print|e-?mail|rss|next|"
    r"previous|prev|top|privacy|terms|legal|imprint|newsletter|facebook|twitter|instagram|linkedin|pinterest|youtube|"
    r"whatsapp|close|ok"
)
"""Words that are navigation only where several phrases or words stand side by side."""
_BETWEEN: Final = r" ?[|/»›>·•,–—-] ?| "
_COOKIES: Final = (
    r"(?:we|(?:this|our) (?:web ?)?site)(?: and our partners)? (?:uses?|stores?)\b.{0,100}\bcookies\b.*|"
    r"by (?:using|continuing|clicking|browsing|accepting)\b.{0,200}\bcookies\b.*"
)
_COPYRIGHT: Final = r"(?:©|\(c\)|copyright)[^a-z].{0,100}all rights reserved"
_PHRASES: Final = (
    rf"^(?:{_CLEAR}|(?:{_CLEAR}|{_WORDS})(?:(?:{_BETWEEN})(?:{_CLEAR}|{_WORDS}))+|{_COOKIES}|{_COPYRIGHT})[ .!…»>]*$"
)
_NO_WORDS: Final = r"^[\p{Pc}\p{Pd}\p{Po}\p{Pi}\p{Pf}\p{Sm}\pZ\s]*$"
"""Punctuation without brackets, which stand alone on a line of code; mathematical signs such as ``|``; white space."""


def drop_boilerplate(rows: pa.Table) -> tuple[pa.Table, list[str | None]]:
    """Drop text rows that are navigation or a notice, have only punctuation, or repeat a text of their document."""
    reasons = np.full(rows.num_rows, None, object)
    texts = rows["text_content"]
    # with the words of a text in one line, and in lower case
    plain = pc.utf8_trim_whitespace(pc.replace_substring_regex(texts, r"[\s\pZ]+", " "))
    short = pc.if_else(pc.less_equal(pc.utf8_length(plain), LONGEST), pc.utf8_lower(plain), None)
    reasons[_repeats(rows["sample_id"], plain)] = "repeats an earlier text of the document"
    reasons[_matching(short, _PHRASES)] = "navigation or a notice"
    reasons[_matching(texts, _NO_WORDS)] = "only punctuation"
    reasons[~np.asarray(is_text(rows), bool)] = None
    keep = reasons == np.array(None)
    return filter_rows(rows, pa.array(keep)), reasons.tolist()


def _matching(texts: pa.ChunkedArray, pattern: str) -> NDArray[np.bool_]:
    return np.asarray(pc.fill_null(pc.match_substring_regex(texts, pattern), False), bool)


def _repeats(sample_ids: pa.ChunkedArray, texts: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return which rows have the text of an earlier row of their sample; the text is compared without its layout."""
    values = pc.unique(texts.drop_null())
    text = pc.fill_null(pc.index_in(texts, value_set=values), -1).to_numpy().astype(np.int64)
    sample = pc.index_in(sample_ids, value_set=pc.unique(sample_ids)).to_numpy().astype(np.int64)
    repeated = np.ones(len(text), bool)
    repeated[np.unique(sample * (len(values) + 1) + text, return_index=True)[1]] = False
    return repeated & (text >= 0)
