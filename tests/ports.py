"""Ports for servers of tests. Each stays reserved for this process until it ends."""

from __future__ import annotations

import socket
from typing import Final

_RESERVED: Final = list[socket.socket]()


def free_port() -> int:
    """Return a port of this machine that no other program is given.

    The socket that reserves it never listens: a server that sets SO_REUSEADDR, as all of ours do,
    may bind the same port, and the system gives it to nobody who asks for any port.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _RESERVED.append(reserved)
    port: int = reserved.getsockname()[1]
    return port
