"""Writes the pages that are made from the code: ``python docs/generate.py``, or ``make docs``. A test compares them.

docs/settings.md, docs/errors.md and docs/api.md.
"""

import importlib
import inspect
import re
from itertools import groupby
from pathlib import Path
from textwrap import indent
from types import FunctionType

from pydantic import BaseModel

from interleaved_assets.model import InterleavedError, errors
from interleaved_assets.settings import Settings, setting_lines

DOCS = Path(__file__).parent
PACKAGES = ("model", "io", "scoring", "scoring.clip", "selection", "export")
NOTE = "Made by `make docs` from the code; changes belong there.\n"


def settings_page() -> str:
    """Every setting with its default and meaning, a table for each section."""
    lines = ["# Settings\n", NOTE]
    lines.append(
        "Keys of `interleaved.toml`. `INTERLEAVED_<SECTION>__<KEY>` in the environment overrides a key; lists and "
        "tables are given as JSON there. `interleaved settings` prints the values in force. A line such as "
        '`recipe = "obelics"` above the first section takes [the filters of a published data set](recipes.md).\n'
    )
    for section, found in groupby(setting_lines(Settings.model_construct()), lambda line: line.name.partition(".")[0]):
        lines.append(f"## `[{section}]`\n\n{Settings.model_fields[section].description}\n")
        lines.append("| key | default | meaning |\n|---|---|---|")
        for line in found:
            meaning = re.sub(r" Default [^:]*\.$", "", line.description)
            lines.append(f"| `{line.name.partition('.')[2]}` | {_default(line.default)} | {_cell(meaning)} |")
        lines.append("")
    return "\n".join(lines)


def errors_page() -> str:
    """Codes of row errors, and the exceptions."""
    lines = ["# Errors\n", NOTE, "## Errors of rows\n"]
    lines.append(
        "The error of one row is `<code>: <detail>`, in the column `materialize_error`, in the columns of errors "
        "beside scores, and in the ledger. `errors.on_materialize_error` and `selection.on_score_error` say what "
        "becomes of the row.\n\n| code | meaning |\n|---|---|"
    )
    lines += [f"| `{code}` | {_cell(meaning)} |" for code, meaning in errors.ROW_ERROR_CODES.items()]
    lines.append("\n## Exceptions\n\nAll derive from `InterleavedError`, which the library raises, and the UI shows.\n")
    lines.append("| exception | is also a | meaning |\n|---|---|---|")
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, InterleavedError) and kind is not InterleavedError:
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__ if base is not InterleavedError)
            lines.append(f"| `{name}` | {bases} | {_cell(_first(kind))} |")
    return "\n".join(lines) + "\n"


def api_page() -> str:
    """Every public name of the library with its signature and docstring."""
    lines = ["# Library reference\n", NOTE, "An overview is in [the library](library.md).\n"]
    for package in PACKAGES:
        module = importlib.import_module(f"interleaved_assets.{package}")
        lines.append(f"## `interleaved_assets.{package}`\n")
        members = ((name, getattr(module, name)) for name in module.__all__)
        lines += [_entry(name, value) for name, value in members if inspect.isclass(value) or inspect.isfunction(value)]
    return "\n".join(lines)


def _entry(name: str, value: type | FunctionType) -> str:
    texts = [_described(name, value)]
    if inspect.isclass(value) and not issubclass(value, BaseModel | Exception):
        methods = inspect.getmembers(value, lambda member: inspect.isfunction(member) or isinstance(member, property))
        texts += [_described(method, of) for method, of in methods if method[0] != "_" and inspect.getdoc(of)]
    return f"### `{name}`\n\n```text\n" + "\n\n".join(texts) + "\n```\n"


def _described(name: str, value: type | FunctionType | property) -> str:
    text = inspect.getdoc(value) or ""
    if isinstance(value, property) or (inspect.isclass(value) and issubclass(value, BaseModel | Exception)):
        return f"{name}\n\n{indent(text, '    ')}"
    signature = re.sub(r"<function .*? at 0x\w+>", "…", str(inspect.signature(value)))
    signature = re.sub(r"ForwardRef\('(.*?)'\)", r"\1", signature)
    return f"{name}{signature}\n\n{indent(text, '    ')}"


def _default(value: object) -> str:
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value)!r}`".replace("'", '"') if isinstance(value, tuple) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _first(kind: type) -> str:
    return (inspect.getdoc(kind) or "").split("\n\n")[0]


PAGES = {"settings.md": settings_page, "errors.md": errors_page, "api.md": api_page}

if __name__ == "__main__":
    for file, page in PAGES.items():
        (DOCS / file).write_text(page(), encoding="utf-8")
