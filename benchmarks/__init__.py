"""Speed and memory of edgemask compared with stock libraries and plain torch: `python -m benchmarks --help`."""
