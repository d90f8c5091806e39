"""Questions: their base class, constraints of parameters, statistics of every table, and folds.

Authors of questions import `encryptedstats.questions` instead.
"""
