"""Schemas: the variables of a table, how they are cut into bins, and the names of both.

`variables` and `schema` say what is kept of each column, `inference` finds it from data,
`documents` writes it as strict JSON, and `names` turns names into public ids and back.
"""
