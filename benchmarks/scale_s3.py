"""Raw root and outputs in a bucket: a tick of the sensor, and the nightly schedule over the records there."""

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import fsspec

from benchmarks.scale_data import cursor_of, shard_name, write_first_snapshot, write_settings
from benchmarks.scale_services import START_SECONDS, environment, s3_server, wait_for
from benchmarks.scale_ticks import quiet_night, quiet_ticks
from benchmarks.scale_world import Figure, World
from interleaved_assets.io.storage import etag_stamp
from interleaved_assets.pipeline.raw.listing import RawSource
from interleaved_assets.pipeline.run.record import read_record
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings.shard_paths import ShardPaths

_UPLOADS_AT_ONCE = 1000
BUCKET = "scale"


def s3(world: World) -> list[Figure]:
    """Raw root and outputs in a bucket of a server on this machine, which answers in 1 to 2 ms."""
    world.finished()
    with s3_server(world.work / "s3") as variables, environment(variables):
        fs = fsspec.filesystem("s3")
        wait_for(lambda: takes_files(fs), START_SECONDS, "the start of the S3 server")
        settings = write_settings(world.work / "on-s3", raw_root=f"s3://{BUCKET}/raw", output_root=f"s3://{BUCKET}/out")
        file = world.work / "on-s3" / "interleaved.toml"
        numbers = range(world.shards)
        _upload(fs, ((f"{BUCKET}/raw/{shard_name(each)}.tar", world.tars[each % len(world.tars)]) for each in numbers))
        sources = write_first_snapshot(settings)
        listing = world.probe("listing", "--times", "3", settings_file=file)["evaluations"]
        assert listing[-1]["shards"] == world.shards, listing
        ticks = world.probe("sensor", "--cursor", cursor_of(settings), "--times", "3", settings_file=file)
        _upload(fs, _records(world, sources, settings.storage.output_root))
        return [
            Figure("listing alone", max(each["seconds"] for each in listing), "s"),
            *quiet_ticks(ticks, world.shards),
            *(
                figure._replace(what=f"nightly: {figure.what}")
                for figure in quiet_night(world.probe("nightly", settings_file=file))
            ),
        ]


def takes_files(fs: Any) -> bool:
    """Whether the server is ready: its gateway answers before its other parts do."""
    try:
        if not fs.exists(BUCKET):
            fs.mkdir(BUCKET)
        fs.pipe(f"{BUCKET}/ready", b"probe")
    except OSError:
        return False
    return True


def _upload(fs: Any, files: Iterator[tuple[str, bytes]]) -> None:
    while batch := dict(islice(files, _UPLOADS_AT_ONCE)):
        fs.pipe(batch)


def _records(world: World, sources: Mapping[str, RawSource], output_root: str) -> Iterator[tuple[str, bytes]]:
    """A small output in place of each, and the records of every shard, with sources in the bucket."""
    for key, source in sources.items():
        local = world.settings.storage.shard(key)
        remote = ShardPaths(output_root=output_root.removeprefix("s3://"), key=key)
        for stage, declared in stage_dag(world.settings).items():
            record = read_record(local.record(stage), {})
            assert record is not None
            outputs, places = {}, remote.outputs(stage, declared.output.others)
            for role, output in record.outputs.items():
                content = f"{stage} {role} {key}".encode()
                stamp = etag_stamp(hashlib.md5(content, usedforsecurity=False).hexdigest(), len(content))
                place = f"s3://{places[role]}"
                outputs[role] = output.model_copy(update={"uri": place, "stamp": stamp})
                yield places[role], content
            there = record.model_copy(update={"source": source, "outputs": outputs})
            yield remote.record(stage), there.model_dump_json(indent=1).encode()
