"""``interleaved init``: a settings file for one's own data."""

from pathlib import Path

from interleaved_assets.cli.terminal.console import console, print_json
from interleaved_assets.io.storage import create_file
from interleaved_assets.model.errors import StorageError
from interleaved_assets.settings import parse_settings, settings_template


def write_settings(*, file: str, raw_root: str, output_root: str, as_json: bool) -> int:
    """Write a commented settings file and print what comes next; returns the exit code."""
    path = Path(file)
    text = settings_template(raw_root, output_root)
    settings = parse_settings(text, path)
    if not path.parent.is_dir():
        raise StorageError(f"cannot write {file}: there is no folder {path.parent}; create it, or name another file")
    # whole or not at all: a part of it would be in the way of the next attempt
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
