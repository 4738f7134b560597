"""Folders of images with captions and JSON, one file of which is damaged, in another encoding, or gone."""

import json
import random
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.fuzz import images
from benchmarks.fuzz.child import WrongRead
from benchmarks.fuzz.documents import value
from benchmarks.fuzz.mutate import mutated
from interleaved_assets.io.image_files.reader import read_image_files
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.model import InterleavedBatch
from interleaved_assets.model.errors import InterleavedError, error_code

_LIMITS: Final = TarLimits(max_document_bytes=2**16)
_CODECS: Final = ("utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252", "shift_jis", "utf-7")


def check_image_files(dice: random.Random, folder: Path) -> str:
    """Damage one file of a folder and read it: all other documents are as they were."""
    sound: dict[str, bytes] = {}
    for number in range(dice.choice((1, 2, 5))):
        sound[f"{number}.png"] = images.sound_images()[dice.randrange(20)][1]
        if dice.random() < 0.7:
            sound[f"{number}.txt"] = f"caption {number}, é".encode()
        if dice.random() < 0.7:
            sound[f"{number}.json"] = json.dumps({"url": f"https://a.example/{number}", "n": number}).encode()
    expected = _read(folder / "sound", sound)
    damaged = dice.choice(sorted(sound))
    files = {**sound, damaged: _damaged(dice, damaged, sound[damaged])}
    if dice.random() < 0.1 and len(files) > 1:
        del files[damaged]
    found = _read(folder / "damaged", files)
    own = damaged.partition(".")[0]
    if _others(found, own) != _others(expected, own):
        raise WrongRead(f"documents beside {damaged} are not as they were, though only {damaged} is damaged")
    for row in found.to_pylist():
        is_whole = row["modality"] != "text" or row["sample_id"] != own or row["materialize_error"] is not None
        if not is_whole and row["text_content"] != files[f"{own}.txt"].decode("utf-8-sig"):
            raise WrongRead(f"the caption {own}.txt is not what the file has, and has no error")
    codes = {error_code(error) for error in found["materialize_error"].drop_null().to_pylist()}
    return f"row error {', '.join(sorted(codes))}" if codes else "read"


def _damaged(dice: random.Random, name: str, content: bytes) -> bytes:
    kind = dice.random()
    if name.endswith(".png") or kind < 0.3:
        return dice.choice((mutated(dice, content), b"", b"<html>404</html>"))
    if kind < 0.7:
        return content.decode().encode(dice.choice(_CODECS), "replace")
    if name.endswith(".json"):
        return json.dumps(value(dice)).encode()
    return content * dice.choice((1, 9000))


def _read(folder: Path, files: dict[str, bytes]) -> pa.Table:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    options = ReadOptions(max_batch_bytes=2**20, materialize=True, limits=_LIMITS)
    try:
        table = pa.concat_tables(read_image_files([str(folder / name) for name in files], options))
    except InterleavedError as error:
        if str(folder) not in str(error):
            raise WrongRead(f"the message does not name a file: {error}") from error
        raise
    table.validate(full=True)
    InterleavedBatch(table, (str(folder),)).validate()
    apply_error_policy(table, "warn", shard=folder.name, stage="read")
    return table


def _others(table: pa.Table, own: str) -> list[dict[str, object]]:
    columns = ["sample_id", "position", "modality", "text_content", "binary_content", "materialize_error"]
    return [row for row in table.select(columns).to_pylist() if row["sample_id"] != own]
