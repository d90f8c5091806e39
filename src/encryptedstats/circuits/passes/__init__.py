"""Passes that rewrite expressions before they are lowered, one job in each file."""
