"""The steps of the owner's page, one module each: its routes, what its template needs, and what it
does. A module may import the desk and what stands below it, and other steps only where one follows
from another.
"""
