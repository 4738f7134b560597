"""``interleaved init``: write a settings file for a project."""

from pathlib import Path
from typing import Final

import click

from interleaved_assets.cli.terminal.options import FILE, FOLDER, as_json

SECTION: Final = "A project"


@click.command("init")
@click.option(
    "--raw-root",
    metavar="URL",
    default="data/raw",
    show_default=True,
    help="Folder or URL with raw shards.",
    type=FOLDER,
)
@click.option(
    "--output-root",
    metavar="URL",
    default="data/out",
    show_default=True,
    help="Folder or URL for outputs.",
    type=FOLDER,
)
@click.option(
    "--file", metavar="FILE", default="interleaved.toml", show_default=True, help="The file to write.", type=FILE
)
@as_json
def init_command(*, file: str, raw_root: str, output_root: str, as_json: bool) -> int:
    """Write a settings file, with the settings explained.

    A file that exists is not changed.

    \b
    interleaved init --raw-root s3://bucket/raw --output-root s3://bucket/curated
    """
    from interleaved_assets.cli.terminal.console import console, print_json
    from interleaved_assets.io.storage import create_file, storage_errors
    from interleaved_assets.model.errors import StorageError
    from interleaved_assets.settings import parse_settings, settings_template

    path = Path(file)
    text = settings_template(raw_root, output_root)
    settings = parse_settings(text, path)
    with storage_errors(file, "write"):
        has_folder = path.parent.is_dir()
    if not has_folder:
        raise StorageError(f"cannot write {file}: there is no folder {path.parent}; create it, or name another file")
    # written whole or not at all: a partial file would block the next attempt
    if not create_file(str(path), text.encode()):
        raise StorageError(f"{path} exists and is not changed: name another file with --file")
    if as_json:
        roots = {name: getattr(settings.storage, name) for name in ("raw_root", "output_root")}
        print_json({"file": file, **roots})
        return 0
    out = console()
    out.print_line(f"wrote {file}")
    out.print_facts([("raw shards", settings.storage.raw_root), ("outputs", settings.storage.output_root)])
    option = "" if file == "interleaved.toml" else f" --settings {file}"
    out.print_line(f"next: interleaved{option} status, then interleaved{option} run")
    return 0
