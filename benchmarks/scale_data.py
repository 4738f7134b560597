"""Ten thousand small shards, with the outputs, records and events of runs through all stages.

A shard is a tar of one or two documents with a text and a small picture each, one of a few dozen variants. Variants are
really taken through the chain; every other shard is given its variant's outputs as hard links, and records and events
of its own that say what its own run would have said. So nothing that reads records, outputs or the event log can tell.
"""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import dagster as dg
import fsspec
import pyarrow.parquet as pq
from dagster._core.events import AssetObservationData, DagsterEvent, StepMaterializationData
from dagster._core.events.log import EventLogEntry
from dagster._core.instance.utils import RUNLESS_JOB_NAME, RUNLESS_RUN_ID

from interleaved_assets.defs.metadata import shard_metadata, version_tags
from interleaved_assets.defs.partitions import SHARDS
from interleaved_assets.defs.sensor import observation
from interleaved_assets.pipeline.raw.listing import RawShard, RawSource, list_raw_shards
from interleaved_assets.pipeline.raw.snapshot import compare_with_snapshot, write_snapshot
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import RAW_SHARDS, Record, read_record
from interleaved_assets.pipeline.run.stage import StageOutcome
from interleaved_assets.pipeline.stages.dag import code_versions, stage_dag
from interleaved_assets.settings import Settings, load_settings
from interleaved_assets_tests.documents import document, sharp_image, write_shard

VARIANTS = 40
SEED = 20261121
_IN_A_FOLDER = 200
_EVENTS_AT_ONCE = 1000


def write_settings(folder: Path, *, raw_root: str = "raw", output_root: str = "out") -> Settings:
    """A project in ``folder``, CLIP off; its sensors are off."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "interleaved.toml"
    file.write_text(
        f'[storage]\nraw_root = "{raw_root}"\noutput_root = "{output_root}"\n'
        "[watch]\ninterval_seconds = 5\nquiet_seconds = 0\n"
    )
    return load_settings(file)


def shard_name(number: int) -> str:
    """Path below the raw root of one shard, without ``.tar``; its last part is the number."""
    return f"crawl-{number // (10 * _IN_A_FOLDER):02}/part-{number // _IN_A_FOLDER % 10}/{number:06}"


def variant_of(key: str) -> int:
    """The variant of which the shard with this key is a copy."""
    return int(key.rpartition("/")[2]) % VARIANTS


def variants(folder: Path) -> list[Path]:
    """The tars that shards are copies of, 10 kB each: a tar is filled up to that."""
    paths = []
    for number in range(VARIANTS):
        documents = {
            f"doc-{number}-{index}": document(
                f"page {index} of variant {number}",
                sharp_image(SEED + 2 * number + index, width=24, height=20),
                url=f"https://example.org/{number}/{index}",
            )
            for index in range(1 + number % 2)
        }
        paths.append(write_shard(folder / f"{number:06}.tar", documents))
    return paths


def contents(folder: Path) -> list[bytes]:
    """Content of the tars of :func:`variants`."""
    return [path.read_bytes() for path in variants(folder)]


def write_shards(root: Path, tars: Sequence[bytes], numbers: range) -> None:
    """A file for each number, as :func:`shard_name` names it."""
    folder = None
    for number in numbers:
        path = root / f"{shard_name(number)}.tar"
        if path.parent != folder:
            folder = path.parent
            folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tars[number % VARIANTS])


def write_first_snapshot(settings: Settings) -> dict[str, RawSource]:
    """Write the snapshot of a sensor that has reported every shard; returns what it has reported."""
    seen = compare_with_snapshot(
        list_raw_shards(settings.storage), {}, settings.storage, now=time.time(), quiet_seconds=0, at_most=sys.maxsize
    ).snapshot
    handled = {key: entry._replace(handled=entry.version) for key, entry in seen.items()}
    write_snapshot(handled, {}, settings.storage, None)
    return {key: entry.source for key, entry in seen.items()}


def cursor_of(settings: Settings) -> str:
    """Return the cursor of the snapshot that is stored."""
    storage = settings.storage
    with fsspec.open(f"{storage.output_root}/state/raw_shards.parquet", **storage.options) as file:
        return pq.read_schema(file).metadata[b"snapshot"].decode()


def register_all(instance: dg.DagsterInstance, settings: Settings) -> dict[str, RawSource]:
    """Register and observe every shard below the raw root, and write their snapshot; returns them by key."""
    sources = write_first_snapshot(settings)
    instance.add_dynamic_partitions(SHARDS, list(sources))
    store(instance, (observed(key, source) for key, source in sources.items()))
    return sources


def observed(key: str, source: RawSource) -> DagsterEvent:
    """The event of :func:`observation`."""
    return DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_OBSERVATION.value,
        event_specific_data=AssetObservationData(observation(key, source)),
        job_name=RUNLESS_JOB_NAME,
    )


def store(instance: dg.DagsterInstance, events: Iterator[DagsterEvent]) -> None:
    """Store many events at once, outside of a run: reporting them one by one takes about 10 ms each."""
    while batch := list(islice(events, _EVENTS_AT_ONCE)):
        entries = [
            EventLogEntry(
                error_info=None,
                level="info",
                user_message="",
                run_id=RUNLESS_RUN_ID,
                timestamp=time.time(),
                job_name=RUNLESS_JOB_NAME,
                dagster_event=event,
            )
            for event in batch
        ]
        instance.event_log_storage.store_event_batch(entries)


def finish_all(instance: dg.DagsterInstance, settings: Settings, work: Path) -> None:
    """Write outputs, records and events as if every registered shard had passed all stages."""
    raws = {raw.key: raw for raw in list_raw_shards(settings.storage)}
    keys = [key for key in instance.get_dynamic_partitions(SHARDS) if key in raws]
    model = _Model(settings, work)
    stages = stage_dag(settings)
    versions = code_versions(stages, settings)
    for name, stage in stages.items():
        input_ids: dict[str, Mapping[str, int]] = {}
        for source in stage.inputs:
            observations = source == RAW_SHARDS
            kind = dg.DagsterEventType.ASSET_OBSERVATION if observations else dg.DagsterEventType.ASSET_MATERIALIZATION
            input_ids[source] = instance.get_latest_storage_id_by_partition(dg.AssetKey(source), kind)

        def events(name: str = name, ids: Mapping[str, Mapping[str, int]] = input_ids) -> Iterator[DagsterEvent]:
            for key in keys:
                record = model.finish(raws[key], name)
                tags = version_tags(record, versions[name], {source: found[key] for source, found in ids.items()})
                yield materialized(record, tags, settings)

        store(instance, events())


def materialized(record: Record, tags: Mapping[str, str], settings: Settings) -> DagsterEvent:
    """The event that a run logs for a shard, with metadata and versions."""
    event = dg.AssetMaterialization(
        record.stage,
        partition=record.shard,
        metadata=shard_metadata(StageOutcome(record, unchanged=False, seconds=0.1), settings, {}),
        tags=tags,
    )
    return DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
        event_specific_data=StepMaterializationData(event),
        job_name=RUNLESS_JOB_NAME,
    )


class _Model:
    """The variants, run through all stages in a separate project."""

    def __init__(self, settings: Settings, work: Path) -> None:
        self._settings = settings
        own = write_settings(work / "variants")
        tars = variants(work / "variants" / "raw")
        for stage in stage_dag(own).values():
            for path in tars:
                take_through(stage, path.stem, own)
        self._own = own
        self._records = {
            (stage, number): read_record(own.storage.shard(path.stem).record(stage), {})
            for stage in stage_dag(own)
            for number, path in enumerate(tars)
        }

    def finish(self, raw: RawShard, stage: str) -> Record:
        """Give the shard the outputs and the record of its variant at ``stage``."""
        number = variant_of(raw.key)
        model = self._records[stage, number]
        assert model is not None
        assert model.source is not None
        outputs = {}
        for role, output in model.outputs.items():
            below = output.uri.removeprefix(f"{self._own.storage.output_root}/")
            path = Path(self._settings.storage.output_root) / below.replace(f"{number:06}", raw.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            os.link(output.uri, path)
            outputs[role] = output.model_copy(update={"uri": str(path)})
        source = RawSource(uri=raw.uri, size=raw.size, stamp=raw.stamp, version=model.source.version)
        record = model.model_copy(update={"shard": raw.key, "outputs": outputs, "source": source})
        path = Path(self._settings.storage.shard(raw.key).record(stage))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record.model_dump_json(indent=1) + "\n")
        return record
