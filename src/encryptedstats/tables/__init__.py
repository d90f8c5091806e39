"""Tables: from a DataFrame to integer columns, by the encodings of the paper's section 2.2.

A `Schema` says how columns are cut into bins; `Schema.table` applies it to rows and gives a clear
`Table`, and `Owner.encrypt` makes an `EncryptedTable` of it. Imports crypto and storage, nothing of
the layers above.
"""

from __future__ import annotations

from encryptedstats.circuits.layout import Layout
from encryptedstats.tables.answers import Answer as EncryptedAnswer
from encryptedstats.tables.dialects import CsvFormat, CsvOptions
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.encrypted import EncryptedTable
from encryptedstats.tables.encrypting import encrypt_file, encrypt_table
from encryptedstats.tables.opening import opening_schema
from encryptedstats.tables.planning import plan
from encryptedstats.tables.questions import Question
from encryptedstats.tables.schema.schema import PublicSchema, Schema, Variable
from encryptedstats.tables.table import Table
from encryptedstats.tables.verifying import verify

__all__ = [
    "Column",
    "CsvFormat",
    "CsvOptions",
    "EncryptedAnswer",
    "EncryptedTable",
    "Layout",
    "PublicSchema",
    "Question",
    "Schema",
    "Table",
    "Variable",
    "encrypt_file",
    "encrypt_table",
    "opening_schema",
    "plan",
    "verify",
]
