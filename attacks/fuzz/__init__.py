"""A fuzzer of every reader: `python -m attacks.fuzz --inputs 100000 --seed 1 --jobs 2`.

A target (`attacks.fuzz.targets`) is a reader with small valid files, mutations that know their structure, and checks of
what the reader returns. Each input is a few random mutations of a valid file. It is read in a worker process with a
limit on memory and on time. The input with a given seed and number is always the same.

An input is a finding if the reader crashes or hangs, raises an error other than an `EdgemaskError`, raises one with an
unusable message, takes too much memory, or returns wrong content without an error.
"""
