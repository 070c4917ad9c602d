"""Checks of the paper's theory on trained models."""
