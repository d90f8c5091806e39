"""Benchmarks, run by ``python -m benchmarks``. One module for each part; a new module that
registers itself is found.
"""
