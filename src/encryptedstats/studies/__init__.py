"""Several owners: parties who pool rows or totals, agree on what may be asked, and open nothing
else.

``study`` is what users see. ``documents`` is what they agree on, ``transcript`` what they say,
``parties`` who they are, ``holding`` who can open (``joint``: a key that nobody holds),
``validity`` whether rows are what they should be, ``pooling`` the rows of all as one table,
``totals`` what sites compute at home. Imports anything below the package itself.
"""

from encryptedstats.studies import joint as joint  # makes its kind of key known
from encryptedstats.studies.study import Study

__all__ = ["Study"]
