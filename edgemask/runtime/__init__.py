"""Access to the machine: atomic files, checkpoints, devices, threads, memory and distributed processes."""
