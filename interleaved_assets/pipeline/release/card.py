"""The data-set card of a release: Markdown with the YAML head of Hugging Face's cards."""

import json
import re
from typing import Final

from interleaved_assets.model import digits
from interleaved_assets.model.shown import markdown_table
from interleaved_assets.pipeline.release.documents import DOCUMENTS_FOLDER
from interleaved_assets.pipeline.release.manifest import ColumnValues, Manifest
from interleaved_assets.pipeline.stages.names import FILTERED
from interleaved_assets.selection.settings import SelectionSettings

_TARS_LISTED: Final = 50
_VALUES_LISTED: Final = 20
_SIZES: Final = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "n>1B")
_KNOWN_LICENCE: Final = re.compile(r"cc0-1\.0|cc-by(-nc)?(-sa|-nd)?-[234]\.[05]|mit|apache-2\.0|odc-by|pddl")
"""The identifiers of licences in the YAML head that documents commonly name."""


def data_set_card(manifest: Manifest, *, documents: bool) -> str:
    """Return the card of the release: counts, filters, drops, licences, sources and checksums.

    The same manifest always gives the same card. ``documents`` says whether the release has its documents as Parquet
    too.
    """
    counts, before = manifest.counts, manifest.counts_in
    parts = [
        _head(manifest, documents=documents),
        f"# {manifest.name}",
        f"Interleaved texts and images: {counts.samples:,} documents with {counts.texts:,} texts and {counts.images:,} "
        f"images in {len(manifest.tars):,} tar{'' if len(manifest.tars) == 1 else 's'}, "
        f"{sum(tar.size for tar in manifest.tars):,} bytes. A document is `<key>.json`, whose parallel lists `texts` "
        "and `images` give the order, followed by its images `<key>.<position>.<extension>`. `manifest.json` names "
        "every tar with its SHA-256; `wids.json` is the index for random access.",
        _loading(documents=documents),
        "## From raw shards to this release",
        markdown_table(
            ("", "raw", "kept"),
            [
                (name, f"{getattr(before, name):,}", f"{getattr(counts, name):,}")
                for name in ("samples", "texts", "images", "rows", "image_bytes")
            ],
        ),
        "## Filters",
        _filters(manifest),
        "## Dropped rows, by reason",
        _dropped(manifest),
        "## Licences and sources",
        _values(manifest),
    ]
    if manifest.left_out:
        parts += [
            "## Left out",
            f"{len(manifest.left_out):,} {'shard was' if len(manifest.left_out) == 1 else 'shards were'} not current "
            "when the release was made; `manifest.json` names them all.",
        ]
    if manifest.duplicates:
        parts += [
            "## Duplicates",
            f"{sum(map(len, manifest.duplicates)):,} shards have the same documents as another one; `manifest.json` "
            "names them.",
        ]
    parts += [
        "## Versions",
        markdown_table(("package", "version"), manifest.packages.items()),
        "## Checksums",
        _checksums(manifest),
    ]
    return "\n\n".join(parts) + "\n"


def _head(manifest: Manifest, *, documents: bool) -> str:
    fields: dict[str, object] = {
        "pretty_name": manifest.name,
        "tags": ["webdataset", "interleaved", "image-text"],
        "size_categories": [_size_category(manifest.counts.samples)],
    }
    if (licence := _single_licence(manifest)) is not None:
        fields["license"] = licence
    if documents:
        files = [{"split": "train", "path": f"{DOCUMENTS_FOLDER}/*.parquet"}]
        fields["configs"] = [{"config_name": "default", "data_files": files}]
    # JSON is YAML: no value needs quoting rules of its own
    lines = [f"{name}: {json.dumps(value)}" for name, value in fields.items()]
    return "\n".join(["---", *lines, "---"])


def _loading(*, documents: bool) -> str:
    if documents:
        return (
            f"`datasets.load_dataset` reads `{DOCUMENTS_FOLDER}/*.parquet`: one row a document, with its `key`, "
            "`texts` and `images` with nulls in place, its other `fields` as JSON, and its `tar`."
        )
    return (
        "Read the tars with `webdataset`, not with `datasets.load_dataset`, which leaves out images at positions that "
        "the first documents do not have: this release was made without documents as Parquet (`--documents`)."
    )


def _size_category(samples: int) -> str:
    return _SIZES[min(max(len(str(samples)) - 3, 0), len(_SIZES) - 1)]


def _single_licence(manifest: Manifest) -> str | None:
    """Return the identifier of the licence that every document names; None if they differ, or it has no identifier."""
    # a column that only some documents have contradicts the others too
    found = {re.sub(r"[\s_]+", "-", value.casefold().strip()) for values in manifest.licences for value in values.most}
    in_every = any(values.documents == manifest.counts.samples for values in manifest.licences)
    licence = next(iter(found)) if len(found) == 1 and in_every else None
    return licence if licence is not None and _KNOWN_LICENCE.fullmatch(licence) else None


def _filters(manifest: Manifest) -> str:
    if not manifest.filters:
        return "No filter had a bound: nothing was selected."
    selection = SelectionSettings.model_validate(manifest.settings[FILTERED]["settings"])
    rows = [
        (name, *("" if bound is None else digits.bound(bound) for bound in bounds), selection.given(name).strings)
        for name, bounds in manifest.filters.items()
    ]
    columns = 4 if any(row[-1] for row in rows) else 3
    header, rows = ("filter", "minimum", "maximum", "strings")[:columns], [row[:columns] for row in rows]
    return f"In the order in which they are applied.\n\n{markdown_table(header, rows)}"


def _dropped(manifest: Manifest) -> str:
    if not manifest.dropped:
        return "None."
    return markdown_table(("reason", "rows"), [(name, f"{rows:,}") for name, rows in manifest.dropped.items()])


def _values(manifest: Manifest) -> str:
    parts = [_values_of(values, manifest.counts.samples) for values in (*manifest.licences, *manifest.sources)]
    if not manifest.licences:
        parts.insert(0, "No document names a licence in a column that is searched (`license`, `licence`, `rights`, …).")
    if not manifest.sources:
        parts.append("No document names its source in a column that is searched (`source`, `dataset`, `url`, …).")
    return "\n\n".join(parts)


def _values_of(values: ColumnValues, samples: int) -> str:
    shown = list(values.most.items())[:_VALUES_LISTED]
    left = values.distinct - len(shown)
    name = f"Host of `{values.column}`" if values.what == "hosts" else f"`{values.column}`"
    text = f"{name}: in {values.documents:,} of {samples:,} documents.\n\n"
    text += markdown_table(("value", "documents"), [(value, f"{count:,}") for value, count in shown])
    return f"{text}\n\nand {left:,} more values." if left else text


def _checksums(manifest: Manifest) -> str:
    rows = [(tar.path, f"{tar.size:,}", tar.sha256) for tar in manifest.tars[:_TARS_LISTED]]
    left = len(manifest.tars) - len(rows)
    more = f"\n\nand {left:,} more in `manifest.json`." if left else ""
    return (
        f"SHA-256 over the lines of `sha256sum` for all tars in this order: `{manifest.tars_checksum}`. "
        f"`interleaved verify` compares every tar with `manifest.json`.\n\n"
        f"{markdown_table(('tar', 'bytes', 'sha256'), rows)}{more}"
    )
