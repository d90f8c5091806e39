"""Answers of tables, encrypted and decrypted: their files, predictions and results."""
