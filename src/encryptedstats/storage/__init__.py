"""Files: one container format for everything that is stored, and atomic writes.

Knows nothing of cryptography or statistics; imports only the errors.
"""
