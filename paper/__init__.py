"""Suites of the paper's tables and figures, the paper's published numbers, and the pages generated from the records.

This folder is not installed. `edgemask reproduce` and `make paper` use it from a checkout.
"""
