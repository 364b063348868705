"""`python -m cli` is `koord`."""

from cli.entry_point import main

main()
