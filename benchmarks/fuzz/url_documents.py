"""Documents with image URLs: JSONL with a damaged or odd line, and Parquet with odd or damaged lists."""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.fuzz.child import WrongRead
from benchmarks.fuzz.documents import odd_document, value
from benchmarks.fuzz.mutate import mutated, perhaps
from benchmarks.fuzz.parquets import foreign_bytes
from interleaved_assets.io.formats.format import ShardFormat
from interleaved_assets.io.formats.registry import JSONL, PARQUET
from interleaved_assets.io.rows.policy import apply_error_policy
from interleaved_assets.io.storage.limits import TarLimits
from interleaved_assets.io.tar.reader import ReadOptions
from interleaved_assets.io.web_documents.settings import UrlSettings
from interleaved_assets.model import InterleavedBatch
from interleaved_assets.model.errors import NOT_IN_SOURCE, InterleavedError, error_code
from interleaved_assets_tests.io.web_documents.stores import image_url, packed, write_store

_LIMITS = TarLimits(max_document_bytes=2**20)


def check_jsonl(dice: random.Random, folder: Path) -> str:
    """Damage one line and read the file: the documents of all other lines are as they were."""
    count = dice.choice((1, 3, 20))
    lines = [_sound(dice, number) for number in range(count)]
    damaged = dice.randrange(count)
    kind = dice.random()
    odd = odd_document(dice) if kind < 0.4 else _odd_mmc4(dice) if kind < 0.7 else mutated(dice, lines[damaged])
    lines[damaged] = odd.replace(b"\n", b" ")  # a line end would make two lines, of which both are others
    content = b"\n".join(lines) + b"\n"
    ending = dice.choice((".gz", ".zst", ".zip")) if dice.random() < 0.3 else ""
    stored = perhaps(dice, packed(content, ending), 0.3) if ending else content
    table = _read(JSONL, folder / f"case.jsonl{ending}", stored)
    if not ending:
        _check_others(table, set(range(count)) - {damaged})
    return _outcome(table)


def check_url_parquet(dice: random.Random, folder: Path) -> str:
    """Read lists of odd entries, and damaged bytes of such a file."""
    count = dice.choice((1, 5, 40))
    columns: dict[str, Any] = {}
    for name in ("texts", "images"):
        entries = [None if dice.random() < 0.2 else _list(dice, name) for _ in range(count)]
        columns[name] = pa.array(entries, dice.choice((pa.list_(pa.string()), pa.large_list(pa.large_string()))))
    columns["general_metadata"] = pa.array([json.dumps(value(dice)) for _ in range(count)])
    columns["url"] = pa.array([dice.choice((None, "", f"https://a.example/{dice.randrange(9)}")) for _ in range(count)])
    content = foreign_bytes(dice, pa.table(columns), checksums=dice.random() < 0.5)
    return _outcome(_read(PARQUET, folder / "case.parquet", perhaps(dice, content, 0.7)))


def _list(dice: random.Random, name: str) -> list[str | None]:
    entries = (None, f"{name} {image_url(1)}", image_url(1), image_url(2), "", "x" * 3000)
    return [dice.choice(entries) for _ in range(dice.choice((0, 1, 3, 8)))]


def _sound(dice: random.Random, number: int) -> bytes:
    texts = [f"text {number}", None, f"end {number}"]
    body = {
        "url": f"https://a.example/{number}",
        "texts": texts,
        "images": [None, f"https://a.example/{number}.png", None],
    }
    if dice.random() < 0.3:
        body["extra"] = dice.choice((1, "one", [1], {"a": 1}))
    return json.dumps(body).encode()


def _odd_mmc4(dice: random.Random) -> bytes:
    infos = [
        dice.choice(
            (
                {
                    "raw_url": dice.choice((f"u{at}", image_url(2), "\ud800")),
                    "matched_text_index": dice.choice((0, 1, -1, 2**70, "0", None, True)),
                },
                {"raw_url": value(dice), "matched_text_index": 0, "matched_sim": value(dice)},
                value(dice),
            )
        )
        for at in range(dice.choice((0, 1, 5)))
    ]
    return json.dumps(
        {"text_list": [value(dice, 2) for _ in range(3)], "image_info": infos, "url": value(dice)}
    ).encode()


def _read(form: ShardFormat, path: Path, content: bytes) -> pa.Table:
    path.write_bytes(content)
    store = path.parent / "store"
    write_store(store, [1, 2])
    options = ReadOptions(
        max_batch_bytes=2**20,
        materialize=True,
        limits=_LIMITS,
        accept_incomplete=True,
        sections={"urls": UrlSettings(image_store=str(store))},
    )
    try:
        table = pa.concat_tables(form.read(str(path), options))
    except InterleavedError as error:
        if path.name not in str(error):
            raise WrongRead(f"the message does not name the file: {error}") from error
        raise
    table.validate(full=True)
    InterleavedBatch(table, (str(path),)).validate()
    apply_error_policy(table, "warn", shard=path.name, stage="read")
    return table


def _check_others(table: pa.Table, numbers: set[int]) -> None:
    rows = table.select(["sample_id", "modality", "text_content", "image_url"]).to_pylist()
    for number in numbers:
        url = f"https://a.example/{number}"
        found = {tuple(row.values())[1:] for row in rows if row["sample_id"].partition("~")[0] == url}
        wanted = {
            ("metadata", None, None),
            ("text", f"text {number}", None),
            ("image", None, f"{url}.png"),
            ("text", f"end {number}", None),
        }
        if not wanted <= found:
            raise WrongRead(f"the document of line {number + 1} is not as it was, though another line is damaged")


def _outcome(table: pa.Table) -> str:
    errors = {error_code(error) for error in table["materialize_error"].drop_null().to_pylist()} - {*NOT_IN_SOURCE}
    return f"row error {', '.join(sorted(errors))}" if errors else "read"
