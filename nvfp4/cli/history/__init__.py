"""Judgements that are kept."""
