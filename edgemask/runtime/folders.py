"""The folders of a user."""

from __future__ import annotations

import os
from pathlib import Path

from edgemask.errors import MissingFileError


def user_cache(variable: str) -> Path:
    """Return the folder of the user's cached files: `$XDG_CACHE_HOME`, or `~/.cache`.

    Args:
        variable: The environment variable that replaces the folder, for the message of the error.

    Raises:
        MissingFileError: The user has no home.
    """
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given)
    try:
        return Path.home() / ".cache"
    except RuntimeError as error:
        raise MissingFileError(
            f"this user has no home directory: set the environment variable {variable} to a folder, or HOME"
        ) from error
