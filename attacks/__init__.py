"""Attacks on edgemask that are not part of the package."""
