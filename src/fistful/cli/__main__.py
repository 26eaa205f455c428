"""`python -m fistful.cli` is `fistful`."""

from fistful.cli import main

main()
