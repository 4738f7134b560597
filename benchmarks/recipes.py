"""Keep rates of the recipes by filter, on the demo and on data of others, and dropped documents to look at.

``python -m benchmarks.recipes [NAME=PATH …]`` takes the demo's shards, and those at each path, through all stages under
each recipe, with CLIP off. A path is a tar, or a folder of tars, or of WCXB's JSON files: the main content of a page is
a document with a text for each line.
"""

import argparse
import io
import itertools
import json
import shutil
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from interleaved_assets.demo.shards import write_demo_shards
from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.model.ledger import SAMPLE_DROPPED
from interleaved_assets.pipeline.run.one import take_through
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.stages.dag import stage_dag
from interleaved_assets.settings import load_settings, recipe_names

_UNITS = {"metadata": "document", "text": "text", "image": "image"}
_OWN = """
[clip]
enabled = false
[errors]
on_materialize_error = "drop_row"
[publish]
max_lost_samples = 1.0
max_empty_samples = 1.0
max_unreferenced_bytes = 1.0
[selection]
on_score_error = "drop_row"
[storage]
raw_root = "{raw}"
output_root = "{out}"
"""


@dataclass
class Outcome:
    """What a recipe keeps of a data set."""

    order: Sequence[str] = ()
    counts_in: Counts = field(default_factory=Counts)
    counts_out: Counts = field(default_factory=Counts)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Documents, texts and images dropped, by unit and filter."""
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Dropped documents, by reason."""
    failed: int = 0

    def reached(self, unit: str, name: str) -> int:
        """Return how many of a unit the filters before ``name`` left."""
        total = {"document": self.counts_in.samples, "text": self.counts_in.texts, "image": self.counts_in.images}[unit]
        return total - sum(self.dropped[unit, before] for before in self.order[: self.order.index(name)])


def fill(path: Path, raw: Path) -> None:
    """Copy the shards at ``path`` into the raw root, or write one of WCXB's pages."""
    if path.is_file():
        shutil.copy(path, raw)
        return
    pages = sorted(path.rglob("*.json"))
    for tar in path.glob("*.tar") if not pages else ():
        shutil.copy(tar, raw)
    if pages:
        with tarfile.open(raw / "pages.tar", "w") as tar:
            for page in pages:
                content = json.loads(page.read_text(encoding="utf-8"))
                lines = [
                    line for line in (content["ground_truth"].get("main_content") or "").splitlines() if line.strip()
                ]
                document = {"texts": lines, "images": [None] * len(lines), "url": content.get("url", "")}
                member, body = tarfile.TarInfo(page.name), json.dumps(document).encode()
                member.size = len(body)
                tar.addfile(member, io.BytesIO(body))


def outcome(recipe: str, raw: Path, folder: Path) -> Outcome:
    """Take all shards below the raw root through the stages under a recipe."""
    file = folder / f"{recipe}.toml"
    file.write_text(f'recipe = "{recipe}"\n' + _OWN.format(raw=raw, out=folder / recipe))
    settings = load_settings(file)
    found = Outcome(settings.selection.full_order())
    reasons = {f"{name}_{end}": name for name in found.order for end in ("below", "above", "not_in", "in")}
    for tar in sorted(raw.rglob("*.tar")):
        key = tar.relative_to(raw).with_suffix("").as_posix()
        try:
            records = {name: take_through(stage, key, settings).record for name, stage in stage_dag(settings).items()}
        except InterleavedError:
            found.failed += 1
            continue
        rows = pq.read_table(settings.storage.shard(key).output("normalized"))
        found.counts_in += records["normalized"].counts_in
        found.counts_out += records["final_tars"].counts_out
        texts: dict[str, str] = {}
        for row in rows.select(["sample_id", "text_content"]).to_pylist():
            texts[row["sample_id"]] = f"{texts.get(row['sample_id'], '')} {row['text_content'] or ''}".strip()
        for line in pq.read_table(records["filtered"].outputs["ledger"].uri).to_pylist():
            name = reasons.get(line["reason"], line["reason"])
            found.dropped[_UNITS[line["modality"]], name] += 1
            if line["modality"] == "metadata" and line["reason"] != SAMPLE_DROPPED:
                found.examples[line["reason"]].append({**line, "text": texts[line["sample_id"]]})
    return found


def table(found: dict[str, Outcome]) -> Iterator[str]:
    """Yield the lines of the table of one recipe: kept of reached, by filter and data set."""
    order = next(iter(found.values())).order
    yield f"| filter | unit | {' | '.join(found)} |"
    yield f"|---|---|{'---|' * len(found)}"
    idle = []
    for name in order:
        units = [unit for unit in _UNITS.values() if any(one.dropped[unit, name] for one in found.values())]
        unit = "document" if "document" in units else next(iter(units), "")
        if not unit:
            idle.append(f"`{name}`")
            continue
        cells = []
        for one in found.values():
            reached = one.reached(unit, name)
            kept = reached - one.dropped[unit, name]
            cells.append(f"{kept:,} of {reached:,} ({kept / reached:.0%})" if reached else "–")
        yield f"| `{name}` | {unit} | {' | '.join(cells)} |"
    for unit, counts in (("document", "samples"), ("text", "texts"), ("image", "images")):
        both = [(getattr(one.counts_out, counts), getattr(one.counts_in, counts)) for one in found.values()]
        yield f"| all | {unit} | {' | '.join(f'{kept:,} of {total:,}' for kept, total in both)} |"
    yield f"\nNothing is dropped by {', '.join(idle)}."


def examples(found: dict[str, Outcome], most: int) -> Iterator[str]:
    """Yield lines with dropped documents, of each reason in each data set by turns."""
    groups = [
        [(data, line) for line in lines] for data, one in found.items() for _, lines in sorted(one.examples.items())
    ]
    by_turns = (one for turn in itertools.zip_longest(*groups) for one in turn if one is not None)
    for data, line in itertools.islice(by_turns, most):
        measured = "" if line["measured"] is None else f" {line['measured']:.3g} of {line['threshold']:g}"
        about = f"{line['reason']}{measured} {line['detail'] or ''}".strip()
        yield f"- {data}, {line['sample_id']}, {about}: {line['text'][:300]!r}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each recipe, and dropped documents."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes", description=__doc__)
    parser.add_argument("data", nargs="*", metavar="NAME=PATH", help="data of others")
    parser.add_argument("--examples", type=int, default=10, help="dropped documents of each recipe (default 10)")
    parser.add_argument("--recipe", action="append", help="a recipe, again for others (default all)")
    parser.add_argument("--no-demo", action="store_true", help="only the data of others")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        roots = {}
        for name, _, path in (one.partition("=") for one in options.data):
            roots[name] = Path(folder) / name
            (roots[name] / "raw").mkdir(parents=True)
            fill(Path(path), roots[name] / "raw")
        if not options.no_demo:
            roots["demo"] = Path(folder) / "demo"
            write_demo_shards(roots["demo"] / "raw")
        for recipe in options.recipe or recipe_names():
            found = {name: outcome(recipe, root / "raw", root) for name, root in roots.items()}
            print(f"\n### {recipe}\n")
            print("\n".join(table(found)))
            if failed := [f"{one.failed} of {name}" for name, one in found.items() if one.failed]:
                print(f"Shards that cannot be read: {', '.join(failed)}.")
            print()
            print("\n".join(examples(found, options.examples)))


if __name__ == "__main__":
    main()
