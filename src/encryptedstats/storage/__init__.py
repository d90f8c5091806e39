"""Files: one container format for everything that is stored, and writing that never leaves half a
file behind.

Knows nothing of cryptography or statistics; imports only the errors.
"""
