"""Keeps Dagster's SQLite files open while a step logs events."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

_FOLDER: Final = Path("history", "runs")  # below DAGSTER_HOME
_OF_ALL_RUNS: Final = "index"


@contextmanager
def sqlite_files_open(run_id: str) -> Iterator[list[Path]]:
    """Hold a connection to each SQLite file in which events of a run are stored; gives those that there are.

    Dagster opens and closes a connection for each statement, and SQLite writes its log back into the file and deletes
    it whenever the last connection to the file is closed. One more halves the time of an event. Without
    ``DAGSTER_HOME``, or with other storage below it, there are no such files and nothing is held.
    """
    home = os.environ.get("DAGSTER_HOME")
    files = [Path(home, _FOLDER, f"{name}.db") for name in (_OF_ALL_RUNS, run_id)] if home else []
    found = [file for file in files if file.is_file()]
    with ExitStack() as stack:
        for file in found:
            connection = stack.enter_context(closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)))
            connection.execute("PRAGMA schema_version").fetchall()  # opens the log; holds no lock afterwards
        yield found
