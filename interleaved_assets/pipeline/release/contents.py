"""Find shards with the same documents, and make the manifest and the index of a release."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Final

from interleaved_assets.io.storage import join
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.shown import cut_list
from interleaved_assets.pipeline.release.found_values import (
    LICENCE_COLUMNS,
    SOURCE_COLUMNS,
    URL_COLUMNS,
    Counted,
    summed,
)
from interleaved_assets.pipeline.release.manifest import Manifest, ReleasedTar
from interleaved_assets.pipeline.run.record import Counts, OutputFile
from interleaved_assets.pipeline.stages.dag import LEDGER_STAGES
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS, NORMALIZED
from interleaved_assets.pipeline.status.dataset_status import ShardState
from interleaved_assets.pipeline.status.status import CurrentStages
from interleaved_assets.settings import Settings

_SHARDS_NAMED: Final = 10
_PACKAGES: Final = ("interleaved-assets", "numpy", "opencv-python-headless", "pillow", "pyarrow", "webdataset")


def others_error(others: dict[str, str], shards: int) -> OptionError:
    """Return the error for a release of ``shards`` shards, among them ``others`` that are not current."""
    named = [f"  {key}: {why}" for key, why in list(others.items())[:_SHARDS_NAMED]]
    if len(others) > len(named):
        named.append(f"  and {len(others) - len(named):,} more: interleaved status")
    return OptionError(
        f"{len(others):,} of {shards:,} shards are not current. Materialize them, or leave them out with "
        "--incomplete:\n" + "\n".join(named)
    )


def same_documents(shards: Iterable[ShardState]) -> list[list[str]]:
    """Return sorted groups of shard keys that have a final tar with the same bytes, and so the same documents.

    A final tar does not name its raw shard, so a renamed or compressed copy of a raw shard gives the same final tar.
    """
    by_content: dict[str, list[str]] = {}
    for shard in shards:
        for role, tar in tars_of(shard).items():
            if _counts_of(shard, role).samples:  # all tars without documents have the same bytes
                by_content.setdefault(tar.content, []).append(shard.key)
    # equal shards that are split have equal parts, so their group is found once for each part
    groups = {tuple(sorted(keys)) for keys in by_content.values() if len(keys) > 1}
    return [list(keys) for keys in sorted(groups)]


def duplicates_error(duplicates: list[list[str]]) -> OptionError:
    """Return the error for groups of shards with the same documents."""
    named = [f"  {cut_list(keys, _SHARDS_NAMED)}" for keys in duplicates[:_SHARDS_NAMED]]
    if len(duplicates) > len(named):
        named.append(f"  and {len(duplicates) - len(named):,} more groups")
    return OptionError(
        f"{sum(map(len, duplicates)):,} shards have the same documents as another shard. Remove the copies below the "
        "raw root and forget them with interleaved forget, or release them all with --allow-duplicates:\n"
        + "\n".join(named)
    )


def tars_of(shard: ShardState) -> dict[str, OutputFile]:
    """Return the final tars by role: one, or the parts."""
    return shard.records[FINAL_TARS].rows_files


def _counts_of(shard: ShardState, role: str) -> Counts:
    """Return the counts of one of the final tars."""
    record = shard.records[FINAL_TARS]
    return record.parts.get(role, record.counts_out)


def make_manifest(
    name: str,
    shards: Sequence[ShardState],
    hashes: Iterable[str],
    left_out: dict[str, str],
    duplicates: list[list[str]],
    values: list[Counted],
    present: CurrentStages,
    settings: Settings,
    above: str,
) -> Manifest:
    """Return the manifest of ``shards``, whose tars have ``hashes``, before its files and its checksum are known.

    Args:
        name: the name of the release.
        hashes: the SHA-256 of each tar, in the order of the shards and of their parts.
        left_out: by key the reason why a shard is not part of the release.
        duplicates: groups of shards with the same documents.
        values: the licences and sources of each shard.
        present: the settings and versions that the shards were made with.
        above: what leads from the folder of the manifest to the output root.
    """
    dropped = Counter[str]()
    for shard in shards:
        for stage in LEDGER_STAGES:
            dropped.update(shard.records[stage].dropped if stage in shard.records else {})
    # a filter with a bound is not applied where nothing measured its score, as CLIP's by default
    noted = {str(shard.records[FILTERED].notes.get("filters", "")) for shard in shards}
    applied = {name for names in noted for name in names.split(", ")}
    bounds = {name: settings.selection.bounds(name) for name in settings.selection.active_filters() if name in applied}
    tars = [(shard, role, tar) for shard in shards for role, tar in tars_of(shard).items()]
    return Manifest(
        name=name,
        counts=sum((shard.records[FINAL_TARS].counts_out for shard in shards), Counts()),
        counts_in=sum((shard.records[NORMALIZED].counts_in for shard in shards), Counts()),
        dropped=dict(sorted(dropped.items(), key=lambda item: (-item[1], item[0]))),
        filters={name: (found.minimum, found.maximum) for name, found in bounds.items()},
        settings={stage: dict(found) for stage, found in present.settings.items()},
        code_versions=dict(present.versions),
        packages={package: metadata.version(package) for package in _PACKAGES},
        licences=summed(values, LICENCE_COLUMNS),
        sources=summed(values, (*SOURCE_COLUMNS, *URL_COLUMNS)),
        left_out=left_out,
        duplicates=duplicates,
        tars=[
            _released(shard, role, tar, sha256, settings.storage.output_root, above)
            for (shard, role, tar), sha256 in zip(tars, hashes, strict=True)
        ],
        files={},
    )


def _released(shard: ShardState, role: str, tar: OutputFile, sha256: str, output_root: str, above: str) -> ReleasedTar:
    record = shard.records[FINAL_TARS]
    return ReleasedTar(
        shard=shard.key,
        path=f"{above}{tar.uri.removeprefix(join(output_root, ''))}",
        size=tar.size,
        sha256=sha256,
        counts=_counts_of(shard, role),
        source=record.source,
        versions={stage: found.data_version for stage, found in shard.records.items()},
    )


def wids_index(manifest: Manifest) -> str:
    """Return the index of ``wids``. Tars without samples are left out, since no number of a sample leads to them."""
    shards = [
        {"url": tar.path, "nsamples": tar.counts.samples, "filesize": tar.size}
        for tar in manifest.tars
        if tar.counts.samples
    ]
    return json.dumps({"wids_version": 1, "name": manifest.name, "shardlist": shards}, indent=1) + "\n"
