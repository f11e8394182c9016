"""`python -m ringhash` is the command `ringhash`."""

from ringhash.cli import main

main()
