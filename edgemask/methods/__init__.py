"""Training methods, one file each. `base` defines their interface, and `registry` lists them by name."""
