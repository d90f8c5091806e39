"""Check the code of an error, and the facts that its message has to name."""

from __future__ import annotations

from collections.abc import Callable


def error(code: str, *facts: object) -> Callable[[BaseException], bool]:
    """Return a check for ``pytest.raises`` that passes errors of this code whose message has the
    facts.

    Messages may be reworded, codes may not: a test names the code, and of the message only what
    the reader must find in it, such as the column, the row or the value.
    """

    def check(raised: BaseException) -> bool:
        found = getattr(raised, "code", None)
        assert found == code, f"the error's code is {found!r}, not {code!r}: {raised}"
        for fact in facts:
            assert str(fact) in str(raised), f"{fact!r} is not in the message: {raised}"
        return True

    return check
