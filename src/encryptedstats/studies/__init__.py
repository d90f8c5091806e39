"""Studies of several owners, who pool rows or totals, agree on the questions, and open nothing
else.

``study`` is the public interface. ``documents`` holds the agreement, ``transcript`` the messages,
``parties`` the identities, ``holding`` the kinds of keys (``joint``: a key that nobody holds),
``validity`` the checks of encrypted rows, ``pooling`` the rows of all sites as one table,
``totals`` what sites compute at home. Imports anything below the package itself.
"""

from encryptedstats.studies import joint as joint  # makes its kind of key known
from encryptedstats.studies.linkage import Linkage
from encryptedstats.studies.study import Study

__all__ = ["Linkage", "Study"]
