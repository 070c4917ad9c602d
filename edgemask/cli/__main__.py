"""Run the command line with `python -m edgemask.cli`."""

from edgemask.cli import main

main()
