"""The process that parses pages, with limits of memory and processor time.

It is started as ``python -m interleaved_assets.io.warc.child`` and reads requests from its standard input: a line of
JSON with the address and the size of a page, then the page. It answers each with a size and so many bytes of marshal,
the fields of :class:`.Page`. A page over a limit ends it: by SIGPROF, or with the code :data:`TOO_LARGE`.
"""

import json
import marshal
import resource
import signal
import sys
from typing import Final

from selectolax.lexbor import SelectolaxError

from interleaved_assets.io.warc.main_content import page_content

SIZE_BYTES: Final = 8
TOO_LARGE: Final = 3
LEAST_MEMORY: Final = 2**30
LEAST_SECONDS: Final = 5
_MEMORY_OF_A_BYTE: Final = 64
_SECONDS_OF_A_MIB: Final = 1


def limits_of(size: int) -> tuple[int, int]:
    """Return the address space in bytes and the processor time in seconds that a page of ``size`` bytes may take."""
    return max(LEAST_MEMORY, size * _MEMORY_OF_A_BYTE), LEAST_SECONDS + size // 2**20 * _SECONDS_OF_A_MIB


def main() -> None:
    """Parse the pages that are given until there are no more."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    while line := sys.stdin.buffer.readline():
        url, size, only_main_content = json.loads(line)
        html = sys.stdin.buffer.read(size)
        memory, seconds = limits_of(size)
        resource.setrlimit(resource.RLIMIT_AS, (memory if most == resource.RLIM_INFINITY else min(memory, most), most))
        signal.setitimer(signal.ITIMER_PROF, seconds)  # without a handler, its signal ends the process
        try:
            page = page_content(html, url, only_main_content)
        except (MemoryError, SelectolaxError):  # the latter if the parser itself gets no memory
            sys.exit(TOO_LARGE)
        signal.setitimer(signal.ITIMER_PROF, 0)
        blocks = [(block.text, block.tag, block.links, block.url, block.alt, block.caption) for block in page.blocks]
        answer = marshal.dumps((page.title, page.language, blocks, dict(page.characters), dict(page.images)))
        sys.stdout.buffer.write(len(answer).to_bytes(SIZE_BYTES) + answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
