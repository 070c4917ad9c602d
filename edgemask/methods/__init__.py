"""Methods, one file each, behind the interface of `base` and in the registry of `registry`."""
