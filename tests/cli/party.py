"""A party of the test with two users: runs the program in this process and hands over all of its
memory, twice, to be searched.

``python party.py FD ARGUMENT...``. It dumps while the program is about to put its result in place,
when everything it works with is still alive, and again at the end. What is looked for is never told
to this process, or it would be found in it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

_REGION = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)")
_CHUNK = 1 << 20


def regions() -> Iterator[tuple[int, int]]:
    """Readable memory, without the programs and libraries themselves, which are mapped from the
    disk as they are.
    """
    installed = ("/usr/", "/lib", sys.prefix, sys.base_prefix)
    with open("/proc/self/maps") as maps:
        lines = maps.read().splitlines()
    for line in lines:
        match = _REGION.fullmatch(line)
        assert match is not None, line
        first, last, mode, name = match.groups()
        code = name.startswith(installed) and "w" not in mode
        if (
            mode.startswith("r")
            and not code
            and name not in ("[vvar]", "[vvar_vclock]", "[vsyscall]")
        ):
            yield int(first, 16), int(last, 16)


def dump(target: int) -> None:
    """Write every region that is not all zeros, what the system says of this process, and which
    files it has open.
    """
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for first, last in regions():
            for place in range(first, last, _CHUNK):
                try:
                    memory.seek(place)
                    data = memory.read(min(_CHUNK, last - place))
                except OSError:  # a page that may not be read after all
                    continue
                if data.count(0) < len(data):
                    _write(target, data)
    for name in ("environ", "cmdline"):
        with open(f"/proc/self/{name}", "rb") as file:
            _write(target, file.read())


def _write(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def main() -> None:
    target, arguments = int(sys.argv[1]), sys.argv[2:]
    replace = os.replace

    def dump_and_replace(*places: object, **options: object) -> None:
        os.replace = replace
        dump(target)
        replace(*places, **options)  # type: ignore[call-overload]  # whatever it was called with

    os.replace = dump_and_replace  # type: ignore[assignment]  # the last step of every command that writes
    from encryptedstats.cli import main as program

    sys.argv[1:] = arguments
    try:
        program()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    dump(target)
    sys.exit(code)


if __name__ == "__main__":
    main()
