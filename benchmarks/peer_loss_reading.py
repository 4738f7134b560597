"""Loss cases of reading: a docstring is a claim, its function an experiment that runs the same on either side."""

import io
import json
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.peer_loss_inputs import (
    Case,
    Outcome,
    attempt,
    documents,
    encoded,
    image_document,
    image_rows,
    make_tar,
    members_of,
    picture,
    tar_json,
)
from benchmarks.peer_loss_sides import Side


def keys_of_later_documents(side: Side, folder: Path) -> Outcome:
    """Keys missing from the first document are dropped."""
    tar = make_tar(folder / "shard.tar", documents({"url": "u0"}, {"url": "u1", "licence": "CC0"}))
    there = "CC0" in {row.get("licence") for row in side.rows(side.read([tar]))}
    return Outcome(not there, f"the second document's `licence` is {'there' if there else 'gone'}")


def unknown_image_token(side: Side, folder: Path) -> Outcome:
    """An unknown image token resolves to another image."""
    members = image_document(a=encoded(picture(1)), b=encoded(picture(2)))
    del members["b.png"]
    first, second = image_rows(side.rows(side.read([make_tar(folder / "shard.tar", members)])))
    if second["binary_content"] == first["binary_content"]:
        return Outcome(True, "`b.png`, which is not in the tar, has the bytes of `a.png`")
    error = second["materialize_error"]
    return Outcome(error is None, f"`b.png` has no bytes and the error `{error}`")


def equal_stems(side: Side, folder: Path) -> Outcome:
    """Equal stems in different folders merge."""
    members = {f"{place}/doc.json": {"texts": [f"text of {place}"], "images": [None], "id": place} for place in "ab"}
    return _two_documents(side, side.read([make_tar(folder / "shard.tar", members)]), folder)


def duplicate_sample_ids(side: Side, folder: Path) -> Outcome:
    """Duplicate sample ids merge."""
    tar = make_tar(folder / "shard.tar", documents({"id": "same"}, {"id": "same"}))
    return _two_documents(side, side.read([tar], sample_id_field="id"), folder)


def _two_documents(side: Side, batches: list[Any], folder: Path) -> Outcome:
    ids = {row["sample_id"] for row in side.rows(batches)}
    texts = [text for payload in tar_json(side.write(batches, folder / "out")) for text in payload["texts"] if text]
    names = ", ".join(f"`{name}`" for name in sorted(ids))
    return Outcome(len(ids) < 2 or len(texts) < 2, f"2 documents read as {names}; {len(texts)} of 2 texts written")


def jpeg_frames(side: Side, folder: Path) -> Outcome:
    """JPEG frames are encoded anew."""
    frames = [picture(number, (96, 64)) for number in range(2)]
    tiff = encoded(frames[0], "TIFF", save_all=True, append_images=frames[1:], compression="jpeg", quality=80)
    before = []
    with Image.open(io.BytesIO(tiff)) as source:
        for number in range(2):
            source.seek(number)
            before.append(source.convert("RGB").tobytes())
    payload = {"texts": [None, None], "images": ["page_0_image_1", "page_0_image_2"]}
    tar = make_tar(folder / "shard.tar", {"doc.json": payload, "doc.tiff": tiff})
    rows = image_rows(side.rows(side.read([tar])))
    after = [Image.open(io.BytesIO(row["binary_content"])).convert("RGB").tobytes() for row in rows]
    equal = sum(one == other for one, other in zip(before, after, strict=True))
    return Outcome(equal < 2, f"{equal} of 2 frames have the source's pixels")


def nested_passthrough(side: Side, folder: Path) -> Outcome:
    """Lists and dicts come back as strings, keys with null vanish."""
    payload = {"language": {"en": 0.9}, "tags": ["a", "b"], "licence": None}
    batches = side.read([make_tar(folder / "shard.tar", documents(payload))])
    written = tar_json(side.write(batches, folder / "out"))[0]
    changed = [key for key in payload if key not in written or written[key] != payload[key]]
    seen = [f"`{key}` is `{json.dumps(written[key])}`" if key in written else f"`{key}` is gone" for key in changed]
    return Outcome(bool(changed), ", ".join(seen) or "all three keys as they were")


def unreferenced_members(side: Side, folder: Path) -> Outcome:
    """Members that no document refers to are dropped."""
    spare = encoded(picture(2))
    members = image_document(a=encoded(picture(1))) | {"doc.extra.png": spare}
    batches = side.read([make_tar(folder / "shard.tar", members)])
    kept = {row["binary_content"] for row in side.rows(batches)}
    if spare in kept | set(members_of(side.write(batches, folder / "out")).values()):
        return Outcome(False, "its bytes are kept")
    said = side.said()
    return Outcome(not said, f"left out: {said[0]}" if said else "gone, and nothing says so")


def mixed_scalars(side: Side, folder: Path) -> Outcome:
    """An int and a string under one key stop the whole task."""
    return _one_key(side, folder, 1, "one")


def mixed_nesting(side: Side, folder: Path) -> Outcome:
    """A dict and an int under one key stop the whole task."""
    return _one_key(side, folder, {"a": 1}, 1)


def large_integer(side: Side, folder: Path) -> Outcome:
    """An integer over 64 bits stops the whole task."""
    return _one_key(side, folder, 1, 2**70)


def _one_key(side: Side, folder: Path, *values: Any) -> Outcome:
    """Documents with these values under one key, read and written as a tar."""
    tar = make_tar(folder / "shard.tar", documents(*({"key": value} for value in values)))
    batches, failure = attempt(lambda: side.read([tar]))
    if failure:
        return Outcome(True, failure)
    written = [document.get("key") for document in tar_json(side.write(batches, folder / "out"))]
    return Outcome(written != list(values), f"written as `{json.dumps(written)}`")


def malformed_json(side: Side, folder: Path) -> Outcome:
    """One malformed JSON stops the whole task."""
    members = documents({}, {}) | {"doc1.json": b'{"texts": ["broken'}
    return _damaged(side, make_tar(folder / "shard.tar", members))


def truncated_tar(side: Side, folder: Path) -> Outcome:
    """A truncated tar stops the whole task."""
    tar = make_tar(folder / "shard.tar", documents({}, {"more": "x" * 4000}))
    tar.write_bytes(tar.read_bytes()[:3000])
    return _damaged(side, tar)


def _damaged(side: Side, tar: Path) -> Outcome:
    """A tar whose first document is sound and whose second is not."""
    batches, failure = attempt(lambda: side.read([tar]))
    if failure:
        return Outcome(True, failure)
    rows = side.rows(batches)
    errors = [row["materialize_error"] for row in rows if row["materialize_error"]] or side.said()
    sound = "text 0" in [row["text_content"] for row in rows]
    seen = f"the sound document is {'read' if sound else 'lost'}; "
    return Outcome(not sound or not errors, seen + (f"`{errors[0]}`" if errors else "nothing says what is wrong"))


def lazy_gzip(side: Side, folder: Path) -> Outcome:
    """Lazy reads of `.tar.gz` return garbage."""
    data = encoded(picture(1))
    tar = make_tar(folder / "shard.tar.gz", image_document(a=data), "w:gz")
    written, failure = attempt(lambda: side.write(side.read([tar], lazy=True), folder / "out"))
    if failure:
        return Outcome(True, failure)
    images = [content for name, content in members_of(written).items() if not name.endswith(".json")]
    equal = images == [data]
    sizes = ", ".join(f"{len(image)} bytes" for image in images) or "no bytes"
    return Outcome(not equal, "the image as it was" if equal else f"{sizes}, not the image's {len(data)}, and no error")


def gzip_not_found(side: Side, folder: Path) -> Outcome:
    """A `.tar.gz` is not found in a folder, although its ending is among the reader's."""
    make_tar(folder / "shard.tar.gz", documents({}), "w:gz")
    found = side.found(folder)
    return Outcome(found < 1, f"{found} of 1 found")


READING: list[Case] = [
    keys_of_later_documents,
    unknown_image_token,
    equal_stems,
    duplicate_sample_ids,
    jpeg_frames,
    nested_passthrough,
    unreferenced_members,
    mixed_scalars,
    mixed_nesting,
    large_integer,
    malformed_json,
    truncated_tar,
    lazy_gzip,
    gzip_not_found,
]
