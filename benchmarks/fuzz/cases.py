"""The kinds of cases: what is made from a seed, and how it is checked."""

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.acero  # loaded at first use otherwise, in each child anew
import pyarrow.dataset

from benchmarks.fuzz import (
    checks,
    documents,
    image_checks,
    image_files,
    images,
    parquets,
    pdfs,
    tars,
    tiffs,
    url_documents,
    warcs,
)
from benchmarks.fuzz.mutate import mutated, overwritten, perhaps
from interleaved_assets.io import parquet_shard

Check = Callable[[random.Random, Path], str]

_SECRET: Final = b"bytes that lie outside of the root"


def _stub(dice: random.Random) -> bytes:
    return dice.choice((*images.STUBS, images.sound_images()[dice.randrange(20)][1]))


def _sound_members(dice: random.Random) -> list[tuple[bytes, bytes]]:
    """Name and content of the members of a sound tar: documents, images beside them, one TIFF with frames."""
    members = []
    for key in dice.sample(("a", "b", "c/d"), dice.choice((1, 2, 3))):
        names = [f"{key}.{at}.png" for at in range(dice.choice((0, 1, 2)))]
        members.append((f"{key}.json".encode(), documents.sound_document(dice, names)))
        members += [(name.encode(), _stub(dice)) for name in names]
    frames = dict(images.sound_images())["TIFF RGB save_all append_images"]
    members.append((b"t.json", documents.sound_document(dice, ["page_0_image_0", "page_0_image_1"])))
    members.append((b"t.tiff", frames))
    return members


def _tar_of(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"".join(tars.plain_member(*member) for member in members) + bytes(1024)


def _headers(dice: random.Random, folder: Path) -> str:
    parts = [
        (tars.odd_member if dice.random() < 0.2 else lambda _, *member: tars.plain_member(*member))(dice, *member)
        for member in _sound_members(dice)
    ]
    if dice.random() < 0.1:
        links = (tars.header(b"l%d" % at, kind=b"1", link=b"a.0.png") for at in range(2000))
        parts.insert(dice.randrange(len(parts)), b"".join(links))
    if dice.random() < 0.15:
        dice.shuffle(parts)
    content = b"".join(parts) + dice.choice((bytes(1024), bytes(1024), b"", bytes(512), bytes(1024) + b"rest"))
    if dice.random() < 0.3:
        content = content[: dice.randrange(len(content) + 1)]
    return checks.check_tar(perhaps(dice, content, 0.4), dice, folder)


def _pax(dice: random.Random, folder: Path) -> str:
    parts = []
    for name, content in _sound_members(dice):
        parts += [tars.extension(dice) for _ in range(dice.choice((0, 0, 1, 2)))]
        parts.append(tars.plain_member(dice.choice((name, name, name, dice.choice(tars.NAMES))), content))
    return checks.check_tar(perhaps(dice, b"".join(parts) + bytes(1024), 0.1), dice, folder)


def _json(dice: random.Random, folder: Path) -> str:
    members = [(key + b".json", documents.odd_document(dice)) for key in dice.choices((b"a", b"b", b"c/d"), k=3)]
    members += [(name, _stub(dice)) for name in dice.sample((b"a.png", b"a.tiff", b"b.tiff", b"c/d.png"), 2)]
    return checks.check_tar(_tar_of(members), dice, folder)


def _tiff(dice: random.Random, folder: Path) -> str:
    members = []
    for key in (b"a", b"b")[: dice.choice((1, 2))]:
        tokens = [
            f"page_0_image_{at}"
            for at in range(dice.choice((1, 2, 3, 3, 3, 600) if dice.random() < 0.1 else (1, 2, 3)))
        ]
        members.append((key + b".json", documents.sound_document(dice, tokens)))
        kinds = (tiffs.odd_tiff, tiffs.odd_tiff, _odd_sound_tiff, lambda d: d.choice(images.STUBS))
        members.append((key + dice.choice((b".tiff", b".tif")), dice.choice(kinds)(dice)))
    return checks.check_tar(_tar_of(members), dice, folder)


def _odd_sound_tiff(dice: random.Random) -> bytes:
    return mutated(dice, dice.choice([data for name, data in images.sound_images() if name.startswith("TIFF")]))


def _gzip(dice: random.Random, folder: Path) -> str:
    members = _sound_members(dice)
    if dice.random() < 0.1:
        members.append((b"zeros.png", bytes(dice.choice((2**20, 2**20, 2**27)))))
    return checks.check_tar(tars.damaged_gzip(dice, _tar_of(members)), dice, folder)


def _image(dice: random.Random, _folder: Path) -> str:
    return image_checks.check_image(images.odd_image(dice))


def _written(table: pa.Table, folder: Path) -> bytes:
    path = folder / "sound.parquet"
    with parquet_shard(str(path), table.schema) as shard:
        shard.write(table)
    return path.read_bytes()


def _own_parquet(dice: random.Random, folder: Path) -> str:
    table = parquets.sound_table(dice)
    content = _written(table, folder)
    seal = max(parquets.footer_start(content) - 80, 0)
    damage: Callable[..., bytes] = dice.choice((mutated, mutated, overwritten))
    if dice.random() < 0.5:
        return checks.check_same_or_refused(damage(dice, content, seal, len(content)), table, folder)
    # pages have no checksum: other values may be read, in one of the three outcomes
    path = folder / "case.parquet"
    path.write_bytes(damage(dice, content, 0, seal))
    return checks.check_parquet(path, folder)[0]


def _foreign_pages(dice: random.Random, folder: Path) -> str:
    table, checksums = parquets.sound_table(dice), dice.random() < 0.5
    content = parquets.foreign_bytes(dice, table, checksums=checksums)
    column = dice.choice(table.column_names)
    first, last = dice.choice(parquets.column_ranges(content, column))
    return checks.check_other_columns(overwritten(dice, content, first, last), table, column, folder)


def _foreign_footer(dice: random.Random, folder: Path) -> str:
    content = parquets.foreign_bytes(dice, parquets.sound_table(dice), checksums=False)
    damage: Callable[..., bytes] = dice.choice((mutated, overwritten, overwritten))
    path = folder / "case.parquet"
    path.write_bytes(damage(dice, content, parquets.footer_start(content), len(content)))
    return checks.check_parquet(path, folder)[0]


def _columns(dice: random.Random, folder: Path) -> str:
    try:
        content = parquets.foreign_bytes(dice, parquets.odd_table(dice), checksums=False)
    except (pa.ArrowException, OverflowError):
        # pyarrow does not write it: nothing is there to be read
        return "refused by pyarrow, which does not write it"
    return checks.check_against_pyarrow(content, folder)


def _locators(dice: random.Random, folder: Path) -> str:
    root = folder / "root"
    (root / "file:").mkdir(parents=True)
    (folder / "secret.tar").write_bytes(_tar_of([(b"a.png", _SECRET * 9)]))
    (folder / "secret.png").write_bytes(_SECRET)
    (root / "link.png").symlink_to(folder / "secret.png")
    tar = _tar_of(_sound_members(dice))
    (root / "a.tar").write_bytes(tar)
    (root / "a.tar.gz").write_bytes(tars.damaged_gzip(dice, tar))
    odd: tuple[Any, ...] = (None, -1, 0, 1, 512, 2**31, 2**63 - 1, 2**63, 2**80, 1.5, "1", True, [], {}, "a\0b", "")
    places = (
        f"{root}/a.tar", f"{root}/a.tar.gz", f"file:{folder}/secret.png", f"file://{folder}/secret.png",
        f"{root}/../secret.png", f"{root}/link.png", f"{root}/file:/../../secret.png", f"{folder}/secret.tar",
        f"file://localhost{root}/a.tar", f"local://{folder}/secret.png", f"{root}//./a.tar", f"{root}/a.tar\0",
        f"{root}", f"memory://{folder}/secret.png", f"simplecache::file://{folder}/secret.png", "https://",
        f"{root}/%2e%2e/secret.png", f"zip://a::file://{folder}/secret.tar", f"FILE://{folder}/secret.png", "",
        "\ud800", "x" * 5000, f"tar://a.png::file://{folder}/secret.tar", f"{root}/a.tar/a.json", "s3://\n/", "::", "a://b:c@d/e",
    )  # fmt: skip
    locators: list[str | None] = []
    for _ in range(dice.choice((1, 3, 8))):
        body = {"path": dice.choice((*places, *odd))}
        for field in ("member", "byte_offset", "byte_size", "frame_index", "other"):
            if dice.random() < 0.4:
                body[field] = dice.choice((*odd, "a.json", "t.tiff", "../a", "a.0.png"))
        text = json.dumps(body)
        raw = ("[" * 5000, "null", "", "{}", '{"path":"a","path":"b"}', "9" * 5000, '{"path":' + "9" * 5000 + "}", "\\")
        locators.append(dice.choice((None, *raw)) if dice.random() < 0.1 else text)
    return checks.check_locators(locators, _SECRET, root)


KINDS: Final[dict[str, Check]] = {
    "tar headers": _headers,
    "pax": _pax,
    "json": _json,
    "tiff": _tiff,
    "gzip": _gzip,
    "image": _image,
    "own parquet": _own_parquet,
    "foreign parquet, pages": _foreign_pages,
    "foreign parquet, footer": _foreign_footer,
    "parquet columns": _columns,
    "locators": _locators,
    "warc": warcs.check_warc,
    "jsonl": url_documents.check_jsonl,
    "url parquet": url_documents.check_url_parquet,
    "pdf": pdfs.check_pdf,
    "image files": image_files.check_image_files,
}
"""By name; a case's kind is its number modulo their count."""


def case(seed: int, number: int) -> tuple[str, Callable[[str], str]]:
    """Kind and work of case ``number``, the same for the same arguments."""
    kind = list(KINDS)[number % len(KINDS)]
    return kind, functools.partial(_run, seed, number, kind)


def _run(seed: int, number: int, kind: str, folder: str) -> str:
    return KINDS[kind](random.Random(f"{seed}/{number}"), Path(folder))
