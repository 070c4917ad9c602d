"""Experiments: runs, their records, the processes and clusters they run on, `plan` and `tune`."""
