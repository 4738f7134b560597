"""The samples of a tar: which document, which images and which other members belong together."""

import logging
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from interleaved_assets.io.archive.index import TarMember, shown
from interleaved_assets.io.archive.source import TarSource
from interleaved_assets.io.tar.documents import Document, read_document, too_large_document
from interleaved_assets.io.tar.layout import ID_COLUMN, ShardLayout, split_extension, webdataset_key
from interleaved_assets.io.tar.limits import ROW_BYTES, TarLimits
from interleaved_assets.io.tar.passthrough import ColumnTypes
from interleaved_assets.io.tar.references import ImageRef, Leftover, References, plain_name
from interleaved_assets.model.errors import ShardError, row_error

logger = logging.getLogger(__name__)

KEPT_BYTES: Final = 256 * 2**20
"""Documents stay in memory between finding the samples and building their rows up to so many bytes, roughly."""

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
        rows: their number.
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
    size: int = ROW_BYTES
    rows: int = 1


class SampleList(NamedTuple):
    """The samples of a tar in its order, and what was noticed on the way, counted by kind."""

    samples: list[Sample]
    notes: Counter[str]


def find_samples(
    source: TarSource,
    layout: ShardLayout,
    types: ColumnTypes,
    *,
    limits: TarLimits,
    with_bytes: bool,
    kept_bytes: int = KEPT_BYTES,
) -> SampleList:
    """Read every document of the tar, find out what belongs to it, and tell ``types`` what it says.

    Args:
        source: the tar.
        layout: where what stands in a document.
        types: collects the types of the passthrough columns that are found.
        limits: what each sample may take.
        with_bytes: whether rows will have the bytes of their images, which count then.
        kept_bytes: how much of the documents stays in memory.

    Raises:
        ShardError: it is not a tar, or so damaged that there is no sample.
    """
    references = References(source, layout, limits.max_member_bytes)
    samples: list[Sample] = []
    uneven = 0
    for number, member in enumerate(source.index.members):
        if not references.is_document(number):
            continue
        document = _document(source, layout, references, number, limits)
        if types.count_with(_columns(document)) > limits.max_columns:
            columns = f"over max_columns {limits.max_columns}; name those that are wanted in fields"
            document = too_large_document(f"with its fields the shard would have more columns, {columns}")
        observe_document(types, document)
        uneven += len(document.uneven)
        sample = _sample(document, references, number, member, limits if with_bytes else None)
        kept_bytes -= document.size
        if kept_bytes >= 0 or document.is_blank:
            sample.document = document
        samples.append(sample)
    samples = _with_leftovers(samples, references, limits)
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


def refuse_wide_samples(samples: Sequence[Sample], limits: TarLimits, row_bytes: int) -> bool:
    """Leave the metadata row alone of samples that are too large because each row takes ``row_bytes`` for its columns.

    Their documents become members that go with them. Gives whether there are any.
    """
    refused = False
    for sample in samples:
        size = sample.rows * row_bytes
        if sample.json is None or sample.rows == 1 or sample.size + size <= limits.max_sample_bytes:
            continue
        refused = True
        detail = f"{sample.rows} rows take {size} bytes for columns, over max_sample_bytes {limits.max_sample_bytes}"
        sample.document = too_large_document(f"{detail}; name the columns that are wanted in fields")
        sample.error, sample.images, sample.rows = sample.document.error, [], 1
        sample.leftovers = [Leftover(sample.number, plain_name(sample.json.name), sample.json, sample.json.size)]
    return refused


def _columns(document: Document) -> set[str]:
    columns = {*document.fields, *document.per_image, *document.per_text}
    exact = document.exact
    if exact is not None:
        columns.update(*(part.schema.names for part in (exact.rows,) if part is not None))
        columns.update(exact.schema.names if exact.schema is not None else ())
    return columns


def _document(
    source: TarSource, layout: ShardLayout, references: References, number: int, limits: TarLimits
) -> Document:
    """The document in a JSON member; one that cannot be had is blank, with the reason as its error."""
    member = source.index.members[number]
    if (error := references.error_of(member)) is not None:
        return Document(error=error)
    return read_document(source.content(member), layout, split_extension(references.names[number])[0], limits)


def _sample(
    document: Document, references: References, number: int, member: TarMember, limits: TarLimits | None
) -> Sample:
    """The sample of a document, without the members that it does not name.

    Images count by what their rows take, each of them as often as it is named; without ``limits`` rows have no bytes.
    """
    name = references.names[number]
    key = split_extension(name)[0]
    sample = Sample(key, number, member, error=document.error, size=document.size, rows=document.rows)
    if document.error is not None and document.is_blank and references.error_of(member) is None:
        # kept as it is, since nothing of it is in the rows
        sample.leftovers.append(Leftover(number, name, member, member.size))
        sample.size += member.size
    sample.sample_id = key if document.own_id is None else document.own_id
    sample.stated_id = document.fields.get(ID_COLUMN)
    sample.images = references.resolve(document, number, key)
    if limits is None:
        return sample
    for place, ref in enumerate(sample.images):
        if sample.size + ref.size <= limits.max_sample_bytes:
            sample.size += ref.size
        else:
            detail = f"with {ref.size} bytes more the rows of the sample exceed {limits.max_sample_bytes}"
            error = row_error("sample_too_large", f"{detail}; raise max_sample_bytes, or read without bytes")
            sample.images[place] = ImageRef(ref.name, frame=ref.frame, error=ref.error or error)
    return sample


def _with_leftovers(samples: list[Sample], references: References, limits: TarLimits) -> list[Sample]:
    """The samples, each with the members that no token led to; members without a document make samples of their own."""
    by_key: dict[str, list[Sample]] = defaultdict(list)
    by_group: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_key[sample.key].append(sample)
        by_group[webdataset_key(sample.key)].append(sample)
    key_lengths = {len(key) for key in by_key}
    found = list(samples)
    for leftover in references.leftovers():
        name = references.names[leftover.number]
        candidates = _owners(name, by_key, key_lengths) or by_group[webdataset_key(name)]
        if not candidates:
            orphan = Sample(webdataset_key(name), leftover.number, document=Document())
            orphan.sample_id = orphan.key
            candidates.append(orphan)
            found.append(orphan)
        # the last one in front of it, and the first where there is none
        owner = candidates[max(0, bisect_left(candidates, leftover.number, key=attrgetter("number")) - 1)]
        if error := references.error_of(leftover.member):
            owner.error = owner.error or error
        elif owner.size + leftover.size > limits.max_sample_bytes:
            detail = f"with {shown(leftover.name)} its rows exceed {limits.max_sample_bytes} bytes, so it is left out"
            owner.error = owner.error or row_error("sample_too_large", f"{detail}; raise max_sample_bytes")
        else:
            owner.leftovers.append(leftover)
            owner.size += leftover.size
    return sorted(found, key=attrgetter("number"))


def _owners(name: str, by_key: dict[str, list[Sample]], key_lengths: set[int]) -> list[Sample]:
    """Samples with the longest key that ``name`` begins with, up to one of its dots."""
    first = name.rfind("/") + 2  # the dot of a hidden file is none
    dot = name.rfind(".", first)
    while dot > 0:
        # a name may be a megabyte of dots, so what is no key by its length is not looked up
        if dot in key_lengths and (samples := by_key.get(name[:dot])):
            return samples
        dot = name.rfind(".", first, dot)
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
