"""A store of images as img2dataset writes it, and documents that name its images by URL."""

import gzip
import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from interleaved_assets_tests.documents import sharp_image

SITE = "https://example.org"
_PARQUET_STORE = pa.schema(
    [("url", pa.string()), ("key", pa.string()), ("status", pa.string()), ("jpg", pa.binary()), ("sha256", pa.string())]
)


def image_url(number: int) -> str:
    return f"{SITE}/images/{number}.jpg"


def write_store(folder: Path, *shards: list[int]) -> dict[str, bytes]:
    """Write a tar and its Parquet file for the images of each of ``shards``; return the bytes of images by URL."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, bytes] = {}
    for number, images in enumerate(shards):
        rows: list[dict[str, Any]] = []
        with tarfile.open(folder / f"{number:05d}.tar", "w") as tar:
            for image in images:
                key = f"{number:05d}{len(rows):04d}"
                found[image_url(image)] = sharp_image(image)
                members = {"jpg": found[image_url(image)], "json": json.dumps({"url": image_url(image)}).encode()}
                for extension, content in members.items():
                    member = tarfile.TarInfo(f"{key}.{extension}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                rows.append({"url": image_url(image), "key": key, "status": "success"})
            # a download that failed has a row and no members
            rows.append({"url": f"{SITE}/gone.jpg", "key": f"{number:05d}9999", "status": "failed_to_download"})
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{number:05d}.parquet")
    return found


def write_parquet_store(folder: Path, *shards: list[int]) -> dict[str, bytes]:
    """Write a store as img2dataset does with ``output_format="parquet"``; return the bytes of images by URL."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, bytes] = {}
    for number, images in enumerate(shards):
        rows: list[dict[str, Any]] = [
            {"url": f"{SITE}/gone.jpg", "key": "9", "status": "failed_to_download", "jpg": None}
        ]
        for image in images:
            found[image_url(image)] = content = sharp_image(image)
            digest = hashlib.sha256(content).hexdigest()
            rows.append({"url": image_url(image), "key": "1", "status": "success", "jpg": content, "sha256": digest})
        table = pa.Table.from_pylist(rows, schema=_PARQUET_STORE)
        pq.write_table(table, folder / f"{number:05d}.parquet", row_group_size=2)
    return found


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def packed(content: bytes, ending: str) -> bytes:
    """Return ``content`` packed as the ending of a file's name says, ``.gz``, ``.zst`` or ``.zip``; else as it is."""
    if ending == ".gz":
        return gzip.compress(content, mtime=0)
    if ending == ".zst":
        return bytes(pa.Codec("zstd").compress(content, asbytes=True))
    if ending == ".zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("docs/part.jsonl"), content, zipfile.ZIP_DEFLATED)
        return buffer.getvalue()
    return content
