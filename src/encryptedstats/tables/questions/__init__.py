"""What is asked of a table: the base class of questions, what their parameters may be, the
statistics of every table, and the folds of a cross-validation.

Authors of questions import `encryptedstats.questions` instead.
"""
