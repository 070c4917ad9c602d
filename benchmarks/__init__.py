"""Speed and memory of edgemask beside the stock libraries and plain torch: `python -m benchmarks --help`."""
