"""The exit codes of the program. Imports nothing: the help needs it without the library."""

from __future__ import annotations

from typing import Final

#: Interrupted is 128 and the number of the signal, as shells do; 2 is Typer's.
FAILED: Final = 1
MISTAKE: Final = 3
INTERRUPTED: Final = 130
EXIT_CODES: Final = """\
0    done
1    not done: one line on stderr says what is wrong, and how to fix it
2    the command was not understood: an option or an argument is wrong
3    an error in the program: please report it
130  interrupted by Ctrl-C; 143 if by the system
# nothing is left half-written; encrypt resumes where it stopped"""
