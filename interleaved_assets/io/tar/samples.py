"""The samples of a tar: which document, which images and which other members belong together."""

import logging
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from interleaved_assets.io.tar.documents import Document, read_document
from interleaved_assets.io.tar.index import TarMember
from interleaved_assets.io.tar.layout import ID_COLUMN, ShardLayout, split_extension, webdataset_key
from interleaved_assets.io.tar.passthrough import ColumnTypes
from interleaved_assets.io.tar.references import ImageRef, Leftover, References
from interleaved_assets.io.tar.source import TarSource
from interleaved_assets.model.errors import ShardError, row_error

logger = logging.getLogger(__name__)

KEPT_JSON_BYTES: Final = 64 * 2**20
"""Documents stay in memory between finding the samples and building their rows up to so many bytes of JSON."""

# What a row takes besides its text and bytes, roughly: ids, locators, types.
_ROW_BYTES: Final = 300

_MEANING: Final = {
    "repeated_sample_ids": "samples have the id of one before, and got another",
    "repeated_members": "members have the name of one before",
    "unreferenced_members": "members or frames are named by no document, and are kept beside their sample",
    "uneven_lists": "lists have not one entry per image or text, and stay whole",
    "unchecked_frames": "TIFFs were not fetched, so frames that no document names would go unnoticed",
    "damaged_frames": "frames that no document names are damaged, and are left out",
    "odd_tars": "oddities of the tar itself",
}


@dataclass
class Sample:
    """One sample of a tar.

    Attributes:
        key: name of its JSON member without extension; where it has none, what WebDataset groups its members by.
        number: of its JSON member, else of its first one.
        json: its JSON member, None where it has none.
        sample_id: unique in the tar.
        stated_id: what its document says in the field ``sample_id``.
        images: what its image tokens lead to, those that are null left out.
        leftovers: members that go with it, though its document does not name them.
        error: what is wrong with the sample as a whole, as a row error.
        document: what its JSON says, where that is kept in memory.
        size: bytes that its rows take, roughly.
    """

    key: str
    number: int
    json: TarMember | None = None
    sample_id: str = ""
    stated_id: Any = None
    images: list[ImageRef] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    error: str | None = None
    document: Document | None = None
    size: int = _ROW_BYTES


class SampleList(NamedTuple):
    """The samples of a tar in its order, and what was noticed on the way, counted by kind."""

    samples: list[Sample]
    notes: Counter[str]


def find_samples(
    source: TarSource,
    layout: ShardLayout,
    types: ColumnTypes,
    *,
    max_member_bytes: int,
    kept_json_bytes: int = KEPT_JSON_BYTES,
) -> SampleList:
    """Read every document of the tar, find out what belongs to it, and tell ``types`` what it says.

    Raises:
        ShardError: it is not a tar, or so damaged that there is no sample.
    """
    references = References(source, layout, max_member_bytes)
    samples: list[Sample] = []
    uneven = 0
    for number, member in enumerate(source.index.members):
        if not references.is_document(number):
            continue
        sample, document = _read_sample(source, layout, references, number)
        observe_document(types, document)
        uneven += len(document.uneven)
        kept_json_bytes -= member.size
        if kept_json_bytes >= 0 or document.is_blank:
            sample.document = document
        samples.append(sample)
    samples = _with_leftovers(samples, references)
    if not source.index.is_complete:
        _mark_end(samples, source)
    repeated = _make_unique(samples)
    for sample in samples:
        if sample.stated_id not in (None, sample.sample_id):
            types.observe(ID_COLUMN, [sample.stated_id])
    notes = references.notes + Counter(
        repeated_sample_ids=repeated,
        unreferenced_members=sum(len(sample.leftovers) for sample in samples),
        uneven_lists=uneven,
        odd_tars=len(source.index.notes),
    )
    _log(source, samples, notes)
    return SampleList(samples, notes)


def observe_document(types: ColumnTypes, document: Document) -> None:
    """Tell ``types`` about all columns of ``document``, but for the field ``sample_id``, which mostly is the id."""
    types.seen |= document.columns
    exact = document.exact
    if exact is not None and exact.schema is not None:
        types.state_schema(exact.schema)
    for column, value in document.fields.items():
        if column != ID_COLUMN or value is None:
            types.observe(column, [value])
    for spread in (document.per_image, document.per_text):
        for column, values in spread.items():
            types.observe(column, values)
    if exact is not None and exact.rows is not None:
        types.state_schema(exact.rows.schema, ordered=False)


def _read_sample(
    source: TarSource, layout: ShardLayout, references: References, number: int
) -> tuple[Sample, Document]:
    member, name = source.index.members[number], references.names[number]
    key = split_extension(name)[0]
    error = references.error_of(member)
    document = Document() if error else read_document(source.content(member), layout, key)
    sample = Sample(key, number, member, error=error or document.error)
    if document.error is not None and document.is_blank:
        # kept as it is, since nothing of it is in the rows
        sample.leftovers.append(Leftover(number, name, member))
    sample.sample_id = key if document.own_id is None else document.own_id
    sample.stated_id = document.fields.get(ID_COLUMN)
    sample.images = references.resolve(document, number, key)
    sample.size += 2 * member.size + _ROW_BYTES * (len(document.texts) + len(document.images))
    sample.size += sum(member.size for member in {ref.member for ref in sample.images if ref.member is not None})
    return sample, document


def _with_leftovers(samples: list[Sample], references: References) -> list[Sample]:
    """The samples, each with the members that no token led to; members without a document make samples of their own."""
    by_key: dict[str, list[Sample]] = defaultdict(list)
    by_group: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_key[sample.key].append(sample)
        by_group[webdataset_key(sample.key)].append(sample)
    found = list(samples)
    for leftover in references.leftovers():
        name = references.names[leftover.number]
        candidates = _owners(name, by_key) or by_group[webdataset_key(name)]
        if not candidates:
            orphan = Sample(webdataset_key(name), leftover.number, document=Document())
            orphan.sample_id = orphan.key
            candidates.append(orphan)
            found.append(orphan)
        before = [sample for sample in candidates if sample.number < leftover.number]
        owner = before[-1] if before else candidates[0]
        if error := references.error_of(leftover.member):
            owner.error = owner.error or error
        else:
            owner.leftovers.append(leftover)
            owner.size += leftover.member.size
    return sorted(found, key=lambda sample: sample.number)


def _owners(name: str, by_key: dict[str, list[Sample]]) -> list[Sample]:
    """Samples with the longest key that ``name`` begins with, up to one of its dots."""
    stem, extension = split_extension(name)
    while extension:
        if stem in by_key:
            return by_key[stem]
        stem, extension = split_extension(stem)
    return []


def _mark_end(samples: list[Sample], source: TarSource) -> None:
    """Put the end that the tar should not have on the last sample, unless a row of it says so already."""
    damage = source.index.damage
    if not samples:
        if damage is not None:
            raise ShardError(f"{source.uri}: {damage}, and there is no sample in front. Fetch or write it anew.")
        return
    last = samples[-1]
    error = row_error("truncated_shard", damage or "the tar has no end mark")
    last.images = [
        ref._replace(error=error) if ref.error is not None and ref.error.startswith("missing_member") else ref
        for ref in last.images
    ]
    errors = [last.error, *(ref.error for ref in last.images)]
    if damage is not None and not any(found is not None and found.startswith("truncated_shard") for found in errors):
        last.error = last.error or error


def _make_unique(samples: list[Sample]) -> int:
    """Give every repeated id a number behind it that makes it one of a kind; gives how many there were."""
    taken = {sample.sample_id for sample in samples}
    seen: dict[str, int] = {}
    repeated = 0
    for sample in samples:
        own = sample.sample_id
        if own not in seen:
            seen[own] = 1
            continue
        repeated += 1
        while sample.sample_id in taken:
            seen[own] += 1
            sample.sample_id = f"{own}~{seen[own]}"
        taken.add(sample.sample_id)
    return repeated


def _log(source: TarSource, samples: list[Sample], notes: Counter[str]) -> None:
    for kind, count in notes.items():
        if count:
            logger.warning("%s: %s: %d %s", source.uri, kind, count, _MEANING[kind])
    if not samples:
        logger.warning("%s: there is no sample in it", source.uri)
    for note in (*source.index.notes, *filter(None, [source.index.damage])):
        logger.warning("%s: %s", source.uri, note)
