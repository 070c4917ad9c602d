"""The machine: atomic files, checkpoints, devices, threads, memory, distributed processes."""
