"""Tables: from a DataFrame to integer columns, by the encodings of the paper's section 2.2.

A `Schema` says how columns are cut into bins; `Schema.table` applies it to rows and gives a clear
`Table`, and `Owner.encrypt` makes an `EncryptedTable` of it. Imports crypto and storage, nothing of
the layers above.
"""

from __future__ import annotations

from encryptedstats.circuits.layout import Layout
from encryptedstats.tables.answers.answer import Answer as EncryptedAnswer
from encryptedstats.tables.answers.schema_check import opening_schema
from encryptedstats.tables.answers.verification import verify
from encryptedstats.tables.encodings import Column
from encryptedstats.tables.encrypted_table import EncryptedTable
from encryptedstats.tables.encryption import encrypt_file, encrypt_table
from encryptedstats.tables.plans import plan
from encryptedstats.tables.questions.question import Question
from encryptedstats.tables.rows.csv_format import CsvFormat, CsvOptions
from encryptedstats.tables.schema.schema import PublicSchema, Schema, Variable
from encryptedstats.tables.table import Table

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
