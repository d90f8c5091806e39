"""``python -m encryptedstats.cli``: the command line where the program is not on the path."""

from encryptedstats.cli import main

main()
