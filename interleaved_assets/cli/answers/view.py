"""The work of ``interleaved view``: show the documents of a shard, or of a tar or Parquet file, on one HTML page."""

from difflib import get_close_matches
from pathlib import Path, PurePosixPath

from interleaved_assets.cli.terminal.browser import open_page
from interleaved_assets.cli.terminal.console import console, print_error, print_json, progress, short
from interleaved_assets.io.storage import atomic_output
from interleaved_assets.pipeline.files.inputs import without_ending
from interleaved_assets.pipeline.files.write_rows import check_target
from interleaved_assets.pipeline.run.stored_records import read_valid_records, recorded_stages
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.reporting.documents.choice import DEFAULT_LIMIT, Choice, NothingChosen
from interleaved_assets.reporting.documents.files import file_documents
from interleaved_assets.reporting.documents.html import documents_html
from interleaved_assets.reporting.documents.pages import DocumentPage, shard_documents
from interleaved_assets.settings import Settings, load_settings, load_settings_or_defaults


def show_documents(
    file: str | None,
    *,
    shard: str,
    limit: int | None,
    sample_ids: tuple[str, ...],
    reasons: tuple[str, ...],
    random: int | None,
    seed: int,
    page_file: str | None,
    in_browser: bool,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write the page of a shard or a file; return 1 if there is no such shard, document or reason."""
    out = console()
    choice = Choice(limit or random or DEFAULT_LIMIT, sample_ids, reasons, random, seed)
    path = page_file or f"{PurePosixPath(without_ending(shard)).name or 'documents'}.html"
    is_file = _is_file(shard)
    # the settings of this folder, if any, have the layout of its tars
    settings = load_settings_or_defaults(file) if is_file else load_settings(file)
    check_target(path, [shard] if is_file else [], settings.storage, overwrite=overwrite)
    try:
        with progress("reading documents", 1, out, as_json=as_json):
            page = file_documents(shard, choice, settings) if is_file else _shard_page(shard, choice, settings)
    except NothingChosen as error:
        print_error(f"interleaved: {error}")
        return 1
    if page is None:
        return 1
    with atomic_output(path, settings.storage.options_for(path)) as written:
        written.write(documents_html(page).encode())
    for problem in page.layout:
        print_error(f"interleaved: {shard}: {problem}")
    if as_json:
        facts = {"page": path, "documents": len(page.documents), "chosen": page.how, "layout": list(page.layout)}
        print_json({**facts, "bytes": written.size})
    else:
        size = f"{written.size / 1e6:.1f} MB" if written.size >= 1e6 else f"{written.size / 1e3:.0f} KB"
        console().print_line(f"{path}: {page.how}, {size}")
    return 0 if not in_browser or open_page(path) else 2


def _is_file(shard: str) -> bool:
    """Return whether this is a tar or Parquet file, and not the key of a shard."""
    if "://" in shard or without_ending(shard) != shard:
        return True
    try:
        return Path(shard).is_file()
    except PermissionError:  # reading it reports the error; a key is relative, to a folder that can be searched
        return Path(shard).is_absolute()


def _shard_page(key: str, choice: Choice, settings: Settings) -> DocumentPage | None:
    if read_valid_records(settings.storage.shard(key), [NORMALIZED]):
        return shard_documents(key, settings, choice, with_previews=True)
    known = recorded_stages(settings.storage, [NORMALIZED])
    alike = get_close_matches(key, known, cutoff=0.4)
    hint = f"; there is {', '.join(alike)}" if alike else ""
    print_error(f"interleaved: no shard {short(key)} has been materialized, and there is no such file{hint}")
    return None
