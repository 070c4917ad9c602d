"""`python -m edgemask`."""

from edgemask.cli import main

main()
