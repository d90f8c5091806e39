"""The owner's page, ``encryptedstats app``: from a file of rows to an opened result, for people who
write no Python.

A local server for one browser, on the loopback address. Everything it does is done by the library
and the commands of the command line; here are only forms and what is remembered between them. Needs
the extra ``app``.
"""
