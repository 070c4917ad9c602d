"""Training: the trainer of one method, selection rules, and `Fit`, which puts them together."""
