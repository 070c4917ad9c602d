"""Kill commands at any moment, stage faults of the system, and check what is left: `python -m attacks.torture`."""
