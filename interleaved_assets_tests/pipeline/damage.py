"""Damage that no stamp shows, such as a stage that wrote a broken file, for tests of what reads the outputs."""

from interleaved_assets.io.storage import file_xxh3, filesystem, read_stamp
from interleaved_assets.pipeline.run.record import read_record, write_record
from interleaved_assets.settings import Settings


def accept_outputs(settings: Settings, stage: str, key: str = "a") -> None:
    """Let the record name the outputs as they are now, whatever is in them."""
    uri = settings.storage.shard(key).record(stage)
    record = read_record(uri, settings.storage.options)
    assert record is not None
    outputs = {}
    for role, output in record.outputs.items():
        fs, path = filesystem(output.uri, settings.storage.options)
        now = {"size": fs.info(path)["size"], "checksum": file_xxh3(output.uri), "stamp": read_stamp(output.uri)}
        outputs[role] = output.model_copy(update=now)
    write_record(record.model_copy(update={"outputs": outputs}), uri, settings.storage.options)
