"""`python -m cli` is `koord`."""

from cli.main import main

main()
