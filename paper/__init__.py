"""The paper's part of the repository: its suites, published figures, findings, and the pages made from the records.

This folder is not installed. `edgemask reproduce` and `make paper` use it from a checkout.
"""
