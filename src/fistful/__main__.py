"""`python -m fistful` is `fistful`."""

from fistful.cli import main

main()
