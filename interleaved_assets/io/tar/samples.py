"""The samples of a tar: their documents, their images and their other members."""

import logging
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from interleaved_assets.io.archive.index import TarMember, shortened
from interleaved_assets.io.archive.source import TarSource
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.documents import Document, add_contents, read_document, too_large_document
from interleaved_assets.io.tar.estimates import ROW_BYTES, document_bytes
from interleaved_assets.io.tar.groups import MemberGroup, find_groups
from interleaved_assets.io.tar.layout import ID_COLUMN, ShardLayout, split_extension, webdataset_key
from interleaved_assets.io.tar.passthrough import ColumnTypes
from interleaved_assets.io.tar.references import ImageRef, Leftover, References, plain_name
from interleaved_assets.model.errors import ShardError, row_error

logger = logging.getLogger(__name__)

KEPT_BYTES: Final = 256 * 2**20
"""Rough bytes of the documents that stay in memory between finding the samples and building their rows."""

KEPT_TAGS: Final = 2**17
"""Number of tags of TIFF frames that stay in memory as well, some 40 MB; further TIFFs are parsed again."""

_NOTES_LOGGED: Final = 5

_MEANING: Final = {
    "repeated_sample_ids": "samples have the id of an earlier one, and got another",
    "repeated_members": "members have the name of an earlier one; the last one counts",
    "unreferenced_members": "members or frames are named by no document, and are kept beside their sample",
    "uneven_lists": "lists do not have one entry per image or text, and stay whole",
    "unchecked_frames": "TIFFs were not fetched, so frames that no document names would go unnoticed",
    "damaged_frames": "frames that no document names are damaged, and are left out",
    "odd_tars": "oddities of the tar itself",
}


@dataclass
class Sample:
    """One sample of a tar.

    Attributes:
        key: name of its JSON member without extension; without a JSON, the key by which WebDataset groups its members.
        number: number of its JSON member, else of its first one; in the layout ``images`` of its first one.
        json: its JSON member, None without one.
        sample_id: its id, unique in the tar.
        stated_id: the value of the field ``sample_id`` in its document.
        images: the targets of its image tokens, without null tokens.
        leftovers: members that belong to it, though its document does not name them.
        error: the error of the sample as a whole, as a row error.
        texts: the members that are its texts, in the layout ``images``.
        document: the content of its JSON, if it is kept in memory.
        size: rough bytes that its rows take, without those of members until :func:`fit_samples`.
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
    texts: list[TarMember] = field(default_factory=list)
    document: Document | None = None
    size: int = ROW_BYTES
    rows: int = 1


def find_samples(
    source: TarSource,
    layout: ShardLayout,
    types: ColumnTypes,
    *,
    limits: TarLimits,
    with_bytes: bool,
    kept_bytes: int = KEPT_BYTES,
    kept_tags: int = KEPT_TAGS,
) -> tuple[list[Sample], Counter[str]]:
    """Find the samples of a tar in its order, and count irregularities by kind; add their columns to ``types``.

    Documents stay in memory up to ``kept_bytes``, and up to ``kept_tags`` tags of TIFFs if rows will have the bytes of
    images. :func:`fit_samples` adds the bytes of members.
    """
    references = References(source, layout, limits.max_member_bytes, kept_tags if with_bytes else 0)
    samples: list[Sample] = []
    uneven = 0
    has_lists = layout.layout == "interleaved"
    groups = _documents(references) if has_lists else find_groups(references.names, layout)
    for group in groups:
        document = _document(source, layout, references, group, limits)
        if excess := types.excess_with(_columns(document), _stated(document), limits.max_columns):
            advice = "name those that are wanted in fields"
            document = too_large_document(f"with its fields the shard would have {excess}; {advice}")
        observe_document(types, document)
        uneven += len(document.uneven)
        sample = _sample(document, references, group, source)
        if not has_lists:
            _add_members(sample, document, references, group, source, limits)
        kept_bytes -= document.size
        if kept_bytes >= 0 or document.is_blank:
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
    return samples, notes


def observe_document(types: ColumnTypes, document: Document) -> None:
    """Add all columns of ``document`` to ``types``, except the field ``sample_id``, which mostly is the id."""
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


def fit_samples(samples: Sequence[Sample], limits: TarLimits, row_bytes: int, *, with_bytes: bool) -> None:
    """Add the bytes of members to the samples, and leave out members that would exceed ``max_sample_bytes``.

    Each row also takes ``row_bytes`` for its columns. Images come first, then members that no document names. A
    document is left out only if its rows without them are too large. Then the sample has only its metadata row, and its
    JSON is a member beside it.
    """
    for sample in samples:
        room = limits.max_sample_bytes - sample.rows * row_bytes
        if sample.json is not None and sample.rows > 1 and sample.size > room:
            _refuse_document(sample, sample.json, limits, row_bytes)
            room = limits.max_sample_bytes - row_bytes
        for place, ref in enumerate(sample.images) if with_bytes else ():
            if sample.size + ref.size <= room:
                sample.size += ref.size
            else:
                sample.images[place] = _without_bytes(ref, limits)
        found, sample.leftovers = sample.leftovers, []
        for leftover in found:
            if sample.size + leftover.size <= room:
                sample.size += leftover.size
                sample.leftovers.append(leftover)
            else:
                sample.error = sample.error or _left_out(leftover, limits)


def _refuse_document(sample: Sample, json: TarMember, limits: TarLimits, row_bytes: int) -> None:
    size = sample.rows * row_bytes
    detail = f"{sample.rows} rows take {size} bytes for columns, over max_sample_bytes {limits.max_sample_bytes}"
    sample.document = too_large_document(f"{detail}; name the columns that are wanted in fields")
    sample.error, sample.images, sample.texts, sample.rows = sample.document.error, [], [], 1
    sample.leftovers.insert(0, Leftover(sample.number, plain_name(json.name), json, json.size))
    sample.size = ROW_BYTES


def _left_out(leftover: Leftover, limits: TarLimits) -> str:
    detail = f"with {shortened(leftover.name)} its rows exceed {limits.max_sample_bytes} bytes, so it is left out"
    return row_error("sample_too_large", f"{detail}; raise max_sample_bytes")


def _without_bytes(ref: ImageRef, limits: TarLimits) -> ImageRef:
    detail = f"with {ref.size} bytes more the rows of the sample exceed {limits.max_sample_bytes}"
    error = row_error("sample_too_large", f"{detail}; raise max_sample_bytes, or read without bytes")
    return ImageRef(ref.name, frame=ref.frame, error=ref.error or error)


def _columns(document: Document) -> set[str]:
    columns = {*document.fields, *document.per_image, *document.per_text}
    return columns.union(*(schema.names for schema in _stated(document)))


def _stated(document: Document) -> list[pa.Schema]:
    exact = document.exact
    parts = () if exact is None else (exact.schema, None if exact.rows is None else exact.rows.schema)
    return [schema for schema in parts if schema is not None]


def sample_document(source: TarSource, layout: ShardLayout, sample: Sample, limits: TarLimits) -> Document:
    """Return the document of a sample that was found before, but not kept in memory."""
    json = sample.json
    if layout.layout == "interleaved":
        assert json is not None
        return read_document(source.content(json), layout, sample.key, limits)
    document = Document()
    if json is not None and not source.is_cut(json) and json.size <= limits.max_member_bytes:
        document = read_document(source.content(json), layout, sample.key, limits)
    add_contents(document, [_bytes(source, member) for member in sample.texts], len(sample.images))
    return document


def _documents(references: References) -> Iterator[MemberGroup]:
    """Yield the JSON members, each of which names the other members of its sample."""
    for number, name in enumerate(references.names):
        if references.is_document(number):
            yield MemberGroup(split_extension(name)[0], number, json=number)


def _document(
    source: TarSource, layout: ShardLayout, references: References, group: MemberGroup, limits: TarLimits
) -> Document:
    """Return the document in a JSON member; one that cannot be read is blank, with the reason as its error."""
    if group.json is None:
        return Document()
    member = source.index.members[group.json]
    if (error := references.error_of(member)) is not None:
        return Document(error=error)
    return read_document(source.content(member), layout, group.key, limits)


def _add_members(
    sample: Sample,
    document: Document,
    references: References,
    group: MemberGroup,
    source: TarSource,
    limits: TarLimits,
) -> None:
    """Add the images and texts of ``group``, which its JSON does not name, to its sample.

    A text that is too large stays a member beside the sample.
    """
    row_bytes = ROW_BYTES + 2 * len(sample.key)
    for number in group.images:
        sample.images.append(references.take(number))
        sample.size, sample.rows = sample.size + row_bytes, sample.rows + 1
    texts = []
    for number in group.texts:
        member = source.index.members[number]
        if (error := references.error_of(member)) is not None:
            sample.error = sample.error or error
        elif member.size > limits.max_document_bytes:
            detail = f"{shortened(member.name)}: {member.size} bytes, over max_document_bytes"
            sample.error = sample.error or row_error("document_too_large", f"{detail} {limits.max_document_bytes}")
        else:
            text = _bytes(source, member)
            size = document_bytes(text, 1, len(member.name) + len(sample.key))
            if sample.size + size > limits.max_sample_bytes:
                sample.error = sample.error or row_error(
                    "sample_too_large",
                    f"with the text {shortened(member.name)} its rows exceed {limits.max_sample_bytes} bytes; raise "
                    "max_sample_bytes",
                )
                continue
            references.take(number)
            sample.size, sample.rows = sample.size + size, sample.rows + 1
            document.size += size
            sample.texts.append(member)
            texts.append(text)
    add_contents(document, texts, len(sample.images))


def _bytes(source: TarSource, member: TarMember) -> bytes:
    return bytes(source.range(member.offset, member.size))


def _sample(document: Document, references: References, group: MemberGroup, source: TarSource) -> Sample:
    """Return the sample of a document, without the members that it does not name."""
    key, number = group.key, group.json
    member = None if number is None else source.index.members[number]
    sample = Sample(key, group.number, member, error=document.error, size=document.size, rows=document.rows)
    sample.sample_id = key if document.own_id is None else document.own_id
    if number is None or member is None:
        return sample
    references.take(number)
    if document.error is not None and document.is_blank and references.error_of(member) is None:
        # the JSON is kept as it is, since none of it is in the rows
        sample.leftovers.append(Leftover(number, references.names[number], member, member.size))
    sample.stated_id = document.fields.get(ID_COLUMN)
    sample.images = references.resolve(document, number, key)
    return sample


def _with_leftovers(samples: list[Sample], references: References) -> list[Sample]:
    """Return the samples, each with the members that no token refers to.

    Members without a document become samples of their own.
    """
    by_key: dict[str, list[Sample]] = defaultdict(list)
    by_group: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_key[sample.key].append(sample)
        by_group[webdataset_key(sample.key)].append(sample)
    key_lengths = {len(key) for key in by_key}
    found = list(samples)
    for leftover in references.leftovers():
        name = references.described(leftover.number)
        candidates = _owners(name, by_key, key_lengths) or by_group[webdataset_key(name)]
        if not candidates:
            orphan = Sample(webdataset_key(name), leftover.number, document=Document())
            orphan.sample_id = orphan.key
            candidates.append(orphan)
            found.append(orphan)
        # the last sample before the member, or the first one if none is before it
        owner = candidates[max(0, bisect_left(candidates, leftover.number, key=attrgetter("number")) - 1)]
        if error := references.error_of(leftover.member):
            owner.error = owner.error or error
        else:
            owner.leftovers.append(leftover)
    return sorted(found, key=attrgetter("number"))


def _owners(name: str, by_key: dict[str, list[Sample]], key_lengths: set[int]) -> list[Sample]:
    """Return the samples with the longest key that ``name`` begins with, up to one of its dots."""
    first = name.rfind("/") + 2  # the dot of a hidden file does not count
    dot = name.rfind(".", first)
    while dot > 0:
        # a name may be a megabyte of dots, so only lengths that a key has are looked up
        if dot in key_lengths and (samples := by_key.get(name[:dot])):
            return samples
        dot = name.rfind(".", first, dot)
    return []


def _mark_end(samples: list[Sample], source: TarSource) -> None:
    """Put the error of the tar's unexpected end on the last sample, unless one of its rows reports it already."""
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
    """Append a number to every repeated id, so that it is unique; return the number of repeated ids."""
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
            logger.warning("%s: %s (%d): %s", source.uri, kind, count, _MEANING[kind])
    if not samples:
        logger.warning("%s: there is no sample in it", source.uri)
    # a tar may have a hundred thousand broken links
    for note in (*source.index.notes[:_NOTES_LOGGED], *filter(None, [source.index.damage])):
        logger.warning("%s: %s", source.uri, note)
