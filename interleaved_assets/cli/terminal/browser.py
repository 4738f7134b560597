"""The browser, which opens a written page, and the message if it cannot."""

import webbrowser

from interleaved_assets.cli.terminal.console import print_error
from interleaved_assets.io.storage import is_local, local_path


def open_page(uri: str) -> bool:
    """Open the page at ``uri``; return False, with a line on stderr, if no browser can show it."""
    if not is_local(uri):
        print_error(
            f"interleaved: no browser opens {uri}: copy it to this machine, or look at it with interleaved serve"
        )
        return False
    if webbrowser.open(local_path(uri).as_uri()) is False:
        print_error(f"interleaved: there is no browser here to open {uri} with")
        return False
    return True
