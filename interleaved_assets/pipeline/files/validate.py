"""Findings about one shard file, by code; a sound file has none."""

from collections import Counter
from typing import Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from interleaved_assets.io.formats.format import format_named
from interleaved_assets.io.formats.shard import format_of
from interleaved_assets.model.errors import NOT_IN_SOURCE, ROW_ERROR_CODES, error_code
from interleaved_assets.model.row_checks import key_problems
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.model.shown import without_credentials
from interleaved_assets.pipeline.files.inputs import ShardFile
from interleaved_assets.pipeline.run.counts import REPEATED_SAMPLES, RowCounter, UniqueKeys
from interleaved_assets.pipeline.run.publishable import ContentCounter, other_layout
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.stages.normalized import read_options
from interleaved_assets.scoring.protocol.score import score_images
from interleaved_assets.settings import Settings

INCOMPLETE: Final = "incomplete"
NO_SAMPLES: Final = "no_samples"
WRONG_LAYOUT: Final = "wrong_layout"
INVALID_KEYS: Final = "invalid_keys"

FINDING_CODES: Final[dict[str, str]] = {
    INCOMPLETE: "the file, or a tar of its store, is cut or damaged, has no end mark, or has data after it",
    NO_SAMPLES: "there is no document in the shard",
    WRONG_LAYOUT: "nearly no document has a text or an image, or most bytes are named by no document",
    INVALID_KEYS: "rows have the key of another row, or a position that their modality does not allow",
    REPEATED_SAMPLES: "samples have the id of an earlier one",
    **{code: meaning for code, meaning in ROW_ERROR_CODES.items() if code not in NOT_IN_SOURCE},
}
"""Codes of findings, which make a shard unsound, with their meaning: those of rows, and those of whole shards."""

NOTE_CODES: Final[dict[str, str]] = {
    "repeated_sample_ids": "documents have the id of an earlier one; reading gives them another one",
    "repeated_members": "members have the name of an earlier one; the last one counts",
    "unreferenced_members": "members or frames are named by no document; reading keeps them beside their sample",
    "uneven_lists": "lists do not have one entry per image or text; reading keeps them whole",
    "damaged_frames": "frames that no document names are damaged; reading leaves them out",
    "odd_tars": "oddities of the tar itself that lose nothing",
    "absent_fields": "no document has a field that the settings name",
    "pages_without_success": "responses whose status is not 200; reading leaves them out",
    "records_left_out": "resource, revisit, conversion records; responses without address or type; they are not read",
    "other_format": "the name of the file says another format than its content, and shards are read by their names",
    "pages_cut_by_crawler": "the crawler stored only the beginning of pages",
    "no_text_layer": "pages of PDF files have no text, such as scans; pages_without_text of the document names them",
    "pages_of_guessed_charset": "nothing names the charset of pages; the frequency of their characters decided",
    "pages_with_replaced_characters": "bytes of pages are not in their charset, and became U+FFFD",
    "damaged_places": "places of the archive that cannot be read; reading goes on behind them",
    **{code: ROW_ERROR_CODES[code] for code in NOT_IN_SOURCE},
}
"""Codes of notes, which do not make a shard unsound, with their meaning."""

_PLACES: Final = 3
_ERROR: Final = "materialize_error"
_NAMED: Final = ["sample_id", "position", _ERROR]
_DECODED: Final = ("thumbnail",)
"""A scorer that decodes every image; no thumbnail is made."""


class Finding(BaseModel):
    """One kind of thing that was found."""

    model_config = ConfigDict(frozen=True)

    level: Literal["finding", "note"]
    """Only a ``finding`` makes a shard unsound."""
    code: str
    """A key of :data:`FINDING_CODES` or :data:`NOTE_CODES`."""
    count: int
    """Number of rows, members or other things, by the code."""
    detail: str
    """The first ones in words, or the meaning of the code."""


class Validation(BaseModel):
    model_config = ConfigDict(frozen=True)

    uri: str
    counts: Counts
    findings: list[Finding]

    @property
    def is_sound(self) -> bool:
        """True if there are notes at most."""
        return all(finding.level == "note" for finding in self.findings)


def validate_file(file: ShardFile, settings: Settings, *, decode: bool = True) -> Validation:
    """Read a shard file and decode its images, or only their headers; what is wrong with it is returned, not raised."""
    counter, keys, content, notes = RowCounter(), UniqueKeys(), ContentCounter(), Counter[str]()
    rows: Counter[str] = Counter()
    places: dict[str, list[str]] = {}
    problems: list[str] = []
    scoring = settings.scoring.model_copy(update={"scorers": _DECODED if decode else ()})
    options = read_options(file.uri, settings, notes)._replace(accept_incomplete=True)
    form = format_of(file.uri, options.storage_options)
    for table in content.counting(form.tables(file.uri, options)):
        counter.add(table)
        if table.num_rows:
            keys.add(table)
            problems += key_problems(table)
        is_whole = pc.is_null(table[_ERROR])
        _add_errors(table.select(_NAMED).filter(pc.invert(is_whole)), rows, places)
        scores = score_images(filter_rows(table, is_whole), scoring, shown=_nothing).rename_columns(
            {"score_error": _ERROR}
        )
        _add_errors(scores.select(_NAMED).filter(pc.is_valid(scores[_ERROR])), rows, places)
    shortfall = form.shortfall(file.uri, options)
    layout = [_finding(NO_SAMPLES, 1, FINDING_CODES[NO_SAMPLES])]
    if samples := counter.counts.samples:
        layout = [_finding(WRONG_LAYOUT, 1, what) for what in other_layout(samples, content.counted, form, settings)]
    findings = [
        *([_finding(INCOMPLETE, 1, shortfall)] if shortfall else []),
        *layout,
        *(_finding(INVALID_KEYS, 1, problem) for problem in problems),
        *(_finding(code, count, "; ".join(places[code])) for code, count in rows.most_common()),
    ]
    if (named := format_named(file.uri)) is not None and named is not form:
        findings.append(_finding("other_format", 1, f"it is {form.name}, and its name says {named.name}"))
    if repeated := keys.counted[REPEATED_SAMPLES]:
        findings.append(_finding(REPEATED_SAMPLES, repeated, FINDING_CODES[REPEATED_SAMPLES]))
    findings += [
        Finding(level="note", code=code, count=count, detail=NOTE_CODES.get(code, ""))
        for code, count in notes.items()
        if count
    ]
    return Validation(uri=without_credentials(file.uri), counts=counter.counts, findings=findings)


def _nothing(*_: object) -> bool:
    return False


def _add_errors(rows: pa.Table, counted: Counter[str], places: dict[str, list[str]]) -> None:
    """Count the errors of ``rows`` by code, and name the first rows of each."""
    for row in rows.to_pylist():
        code = error_code(row[_ERROR])
        counted[code] += 1
        if len(places.setdefault(code, [])) < _PLACES:
            detail = row[_ERROR].removeprefix(f"{code}: ")
            places[code].append(f"sample {row['sample_id']!r}, position {row['position']}: {detail}")


def _finding(code: str, count: int, detail: str) -> Finding:
    return Finding(level="note" if code in NOTE_CODES else "finding", code=code, count=count, detail=detail)
