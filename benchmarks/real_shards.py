"""Run real shards through all stages and compare output with input, pixel by pixel and row by row.

For each tar: every image of the final tar against its source (decoded by Pillow, frame or member), the final tar as the
``webdataset`` package reads it, and as our own reader does, against the filtered rows.

    python -m benchmarks.real_shards --tars shard.tar … --work build/real
"""

import argparse
import io
import json
import shutil
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset
from PIL import Image

from interleaved_assets.io import InterleavedWebdatasetReader
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import Settings, load_settings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tars", nargs="+", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder for inputs and outputs; emptied first")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    (options.work / "raw").mkdir(parents=True)
    for tar in options.tars:
        shutil.copy(tar, options.work / "raw")
    toml = options.work / "interleaved.toml"
    toml.write_text('[storage]\nraw_root = "raw"\noutput_root = "out"\n[selection]\non_score_error = "drop_row"\n')
    settings = load_settings(toml)
    failed = [tar for tar in options.tars if not report(tar, settings)]
    return 1 if failed else 0


def report(tar: Path, settings: Settings) -> bool:
    """Print the figures of one shard; returns whether everything is equal."""
    started = time.perf_counter()
    records = {name: take_through(stage, tar.stem, settings).record for name, stage in stage_dag(settings).items()}
    seconds = time.perf_counter() - started
    first, last = records["normalized"], records["final_tars"]
    filtered = pq.read_table(records["filtered"].outputs["rows"].uri)
    checks = {
        "pixels equal the source's": pixels_are_equal(tar, filtered),
        "webdataset reads the same samples": webdataset_agrees(last.outputs["rows"].uri, filtered),
        "our reader reads the same rows": reader_agrees(last.outputs["rows"].uri, filtered),
    }
    before, after = first.counts_in, last.counts_out
    print(f"{tar.name}: {before.samples} samples, {before.images} images, {before.rows} rows in")
    print(f"  {after.samples}, {after.images}, {after.rows} out; {records['filtered'].dropped}; {seconds:.2f} s")
    for what, holds in checks.items():
        print(f"  {'yes' if holds else 'NO '}  {what}")
    return all(checks.values())


def pixels_are_equal(tar: Path, rows: pa.Table) -> bool:
    """Compare each kept image with the frame or member that its ``source_ref`` names, decoded by Pillow."""
    members = {}
    with tarfile.open(tar) as file:
        for member in file:
            content = file.extractfile(member)
            members[member.name] = content.read() if content else b""
    images = 0
    for row in rows.select(["modality", "binary_content", "source_ref"]).to_pylist():
        if row["modality"] != "image":
            continue
        ref = json.loads(row["source_ref"])
        source = Image.open(io.BytesIO(members[ref["member"]]))
        source.seek(ref.get("frame_index", 0))
        if not np.array_equal(np.asarray(source), np.asarray(Image.open(io.BytesIO(row["binary_content"])))):
            return False
        images += 1
    return images > 0


def webdataset_agrees(uri: str, rows: pa.Table) -> bool:
    """The samples as a training loader gets them: their ids in order, their texts, their image bytes."""
    found = []
    for sample in webdataset.WebDataset(uri, shardshuffle=False):
        document = json.loads(sample["json"])
        # webdataset splits at the first dot: `<key>.<position>.<ext>` comes as `<position>.<ext>`
        images = [sample[name.partition(".")[2]] for name in document["images"] if name]
        found.append((document["sample_id"], [text for text in document["texts"] if text is not None], images))
    return found == samples_of(rows)


def reader_agrees(uri: str, rows: pa.Table) -> bool:
    """Compare the rows of our reader with the filtered ones: all columns except ``source_ref``, with their types."""
    batches = InterleavedWebdatasetReader(uri, sample_id_field="sample_id", materialize_on_read=True)
    read = pa.concat_tables([batch.to_pyarrow() for batch in batches]).drop_columns("source_ref")
    expected = rows.drop_columns("source_ref")
    return read.schema.equals(expected.schema) and read.to_pylist() == expected.to_pylist()


def samples_of(rows: pa.Table) -> list[tuple[str, list[str], list[bytes]]]:
    samples: dict[str, tuple[list[str], list[bytes]]] = {}
    for row in rows.select(["sample_id", "modality", "text_content", "binary_content"]).to_pylist():
        texts, images = samples.setdefault(row["sample_id"], ([], []))
        if row["modality"] == "text":
            texts.append(row["text_content"])
        elif row["modality"] == "image":
            images.append(row["binary_content"])
    return [(sample_id, texts, images) for sample_id, (texts, images) in samples.items()]


if __name__ == "__main__":
    sys.exit(main())
