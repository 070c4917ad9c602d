"""`python -m edgemask.cli`."""

from edgemask.cli import main

main()
