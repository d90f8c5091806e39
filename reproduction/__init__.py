"""The paper again, beside the library and not part of it: its data sets, its evaluation, its case
study.

``python -m reproduction`` has a command for each. It uses the library as anybody could, and prints
like its command line.
"""
