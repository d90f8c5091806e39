"""A small cache of the most recently used results, such as circuits, which take Python long to
write.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Recent(Generic[Made]):
    """The last ``most`` results by key. Unlike ``lru_cache`` it does not keep the arguments alive."""

    def __init__(self, most: int) -> None:
        self._most, self._made, self._lock = most, dict[Hashable, Made](), Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the result for this key, and make it first if it is not there."""
        with self._lock:
            if key in self._made:
                self._made[key] = self._made.pop(key)
                return self._made[key]
        made = make()
        with self._lock:
            self._made[key] = made
            while len(self._made) > self._most:
                del self._made[next(iter(self._made))]
        return made
