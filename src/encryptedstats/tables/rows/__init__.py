"""Rows in the clear: files and DataFrames that are read into a table of integers by a schema."""
