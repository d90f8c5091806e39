"""A connection to a worker: address, token, pinned certificate, and repeated requests.

Every request may be sent twice, because objects are named by their hashes and jobs by their
requests. So requests that fail in the network are repeated for a while.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import random
import socket
import ssl
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from encryptedstats.errors import ArgumentError, Cure, EncryptedStatsError, Failure, WorkerError
from encryptedstats.service import messages
from encryptedstats.storage.files import read_regular

if TYPE_CHECKING:
    import httpx2

TOKEN_VARIABLE: Final = "ENCRYPTEDSTATS_TOKEN"
TOKEN_FILE_VARIABLE: Final = "ENCRYPTEDSTATS_TOKEN_FILE"
PIN_VARIABLE: Final = "ENCRYPTEDSTATS_PIN"
PATIENCE: Final = 60.0  # seconds for which a worker that has answered before is asked again
_FIRST_PATIENCE: Final = 5.0  # seconds for which a worker that has never answered is asked again
_FIRST_SECONDS: Final = 8.0  # timeout of the first answer
_CONNECT_SECONDS: Final = 3.0
_SLOW: Final = (("POST", "/v1/plans"), ("POST", "/v1/jobs"))  # answered after planning
_AGAIN: Final = (408, 429, 502, 503, 504)
_PAUSES: Final = (0.2, 5.0)
_MAX_TOKEN: Final = 4096
_PIECE: Final = 1 << 17


def find_token(file: str | os.PathLike[str] | None = None) -> str:
    """Read the token from a file that only its user can read, or from the environment."""
    named = file or os.environ.get(TOKEN_FILE_VARIABLE)
    if named is not None:
        mode = os.stat(named).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:  # other systems have no such modes
            raise PermissionError(
                f"{named} holds a token and other users can read it: chmod 600 {named}"
            )
        token = read_regular(named, limit=_MAX_TOKEN).decode(errors="replace").strip()
    else:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise WorkerError(
            f"there is no token: put it into a file of mode 0600 and set {TOKEN_FILE_VARIABLE} to "
            f"its path, or set {TOKEN_VARIABLE} to the token",
            code="no-token",
        )
    return token


class _Pinned(ssl.SSLContext):
    """Accepts one certificate only, whatever its issuer, before a byte of a request is sent."""

    pin: bytes = b""

    def wrap_socket(self, *arguments: Any, **options: Any) -> ssl.SSLSocket:
        """Compare the certificate after the handshake."""
        made = super().wrap_socket(*arguments, **options)
        found = hashlib.sha256(made.getpeercert(binary_form=True) or b"").digest()
        if not hmac.compare_digest(found, self.pin):
            made.close()
            raise ssl.SSLCertVerificationError(
                1, f"its certificate sha256:{found.hex()} is not the pinned one"
            )
        return made

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        """Refuse TLS within TLS, which shows its certificate only after this."""
        raise ssl.SSLError("a pinned certificate cannot be checked through a TLS proxy")


def pinned_context(pin: str) -> ssl.SSLContext:
    """Return a TLS context for the certificate of ``sha256:`` and 64 hexadecimal digits."""
    digits = pin.removeprefix("sha256:").replace(":", "").lower()
    if not pin.startswith("sha256:") or len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise ArgumentError(
            f"pin={pin!r}: 'sha256:' and the 64 hexadecimal digits of a certificate's SHA-256 are "
            "needed",
            code="malformed-pin",
        )
    context = _Pinned(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the pin identifies the server
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.pin = bytes.fromhex(digits)
    return context


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Body:
    """A request body that is sent in pieces and reports its progress.

    If it is sent again, the reported progress is taken back.
    """

    def __init__(self, data: bytes, tell: Callable[[float], None]) -> None:
        self._data, self._tell, self._sent = data, tell, 0

    @property
    def headers(self) -> dict[str, str]:
        return {"Content-Length": str(len(self._data))}

    def __iter__(self) -> Iterator[bytes]:
        self._tell(-self._sent)
        self._sent = 0
        for start in range(0, len(self._data), _PIECE):
            piece = self._data[start : start + _PIECE]
            yield piece
            self._sent += len(piece)
            self._tell(len(piece))


class Connection:
    """Sends requests to a worker and repeats those that fail in the network."""

    def __init__(self, url: str, token: str, pin: str | None, patience: float) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise ImportError(
                "es.connect needs the extra service: pip install 'encryptedstats[service]'"
            ) from error
        parts = urlsplit(url)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.query
            or parts.fragment
            or parts.username
        ):
            raise ArgumentError(
                f"{url!r} is not the address of a worker: use https://worker.example, without user "
                "name, query or fragment",
                code="not-a-url",
            )
        loopback = _is_loopback(parts.hostname)
        if parts.scheme == "http" and not loopback:
            raise ArgumentError(
                f"{url!r}: the token would be sent unencrypted. Use an https:// address, or a "
                "tunnel that ends on this machine",
                code="token-in-the-clear",
            )
        if pin is not None and parts.scheme == "http":
            raise ArgumentError(
                f"{url!r} has no certificate to pin: use an https:// address, or no pin",
                code="no-certificate",
            )
        self.url, self.patience = url.rstrip("/"), patience
        self._is_reached = False
        self._httpx: Any = httpx2
        self._client: httpx2.Client = httpx2.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            verify=True if pin is None else pinned_context(pin),
            timeout=httpx2.Timeout(60.0, connect=_CONNECT_SECONDS),
            # No proxies for this machine, nor for a pinned certificate.
            trust_env=pin is None and not loopback,
            limits=httpx2.Limits(max_connections=32),
        )

    @property
    def broken(self) -> type[Exception]:
        """Return the exception that is raised if a body breaks off."""
        kind: type[Exception] = self._httpx.TransportError
        return kind

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def json(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and return the JSON of its answer."""
        response = self.send(method, path, **options)
        return response.json() if response.content else None

    def send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """Send a request and return its answer with the complete body."""
        return self._send_until_taken(self._client, method, path, whole=True, **options)

    @contextmanager
    def stream(self, method: str, path: str, **options: Any) -> Iterator[httpx2.Response]:
        """Send a request and yield its answer before the body; only the request is repeated."""
        response = self._send_until_taken(self._client, method, path, whole=False, **options)
        try:
            yield response
        finally:
            response.close()

    def put_elsewhere(self, url: str, body: Body) -> None:
        """Send bytes to an address that the worker has signed, without the token."""
        with self._httpx.Client(timeout=60.0) as client:
            self._send_until_taken(
                client, "PUT", url, whole=True, content=body, headers=body.headers
            )

    def _send_until_taken(
        self, client: httpx2.Client, method: str, path: str, *, whole: bool, **options: Any
    ) -> httpx2.Response:
        """Send a request until it is accepted or refused, or patience ends.

        A worker that has never answered is given up sooner, because its address may be wrong.
        """
        started, pause = time.monotonic(), _PAUSES[0]
        end, own = started + self.patience, client is self._client
        while True:
            # Random, so that the clients of a restarted worker do not return all at once.
            wait = pause * random.uniform(0.7, 1.3)
            is_first = own and not self._is_reached
            soonest = self._httpx.Timeout(_FIRST_SECONDS, connect=_CONNECT_SECONDS)
            limits = {"timeout": soonest} if is_first else {}
            try:
                if is_first and (method, path) in _SLOW:
                    self._client.get("/healthz", timeout=soonest)
                    self._is_reached, limits = True, {}
                response = client.send(
                    client.build_request(method, path, **limits, **options), stream=not whole
                )
            except self._httpx.TransportError as error:
                soon = min(end, started + _FIRST_PATIENCE) if is_first else end
                if _is_final(error) or time.monotonic() + wait > soon:
                    raise self._unreachable(error) from error
            else:
                self._is_reached |= own
                if response.status_code < 300:  # no redirections: the token is for this address
                    return response
                refusal, after = self._refusal(response)
                if response.status_code not in _AGAIN or time.monotonic() + max(wait, after) > end:
                    raise refusal
                wait = max(wait, after)
            time.sleep(wait)
            pause = min(2 * pause, _PAUSES[1])

    def _refusal(self, response: httpx2.Response) -> tuple[EncryptedStatsError, float]:
        try:
            said = messages.Error.model_validate_json(response.read())
        except (ValueError, self._httpx.TransportError):
            said = messages.Error(what="", why="", cure="")
        finally:
            response.close()
        text = f"refuses {said.what}: {said.why}. {said.cure[:1].upper()}{said.cure[1:]}"
        text = text if said.what else f"answered {response.status_code}"
        whose = "" if response.url.host == urlsplit(self.url).hostname else "the storage of "
        after = response.headers.get("retry-after", "")
        refusal: EncryptedStatsError = WorkerError(
            f"{whose}{self.url} {text}", status=response.status_code, code="refused-by-worker"
        )
        if said.code:  # an error of the library is raised here as it was there
            refusal = Failure(text, said.error, said.code).to_error(f"{self.url} ")
        return refusal, float(after) if after.isdigit() else 0.0

    def _unreachable(self, error: Exception) -> WorkerError:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        found = next(filter(_is_about_certificates, reversed([*_causes(error)])), None)
        if found is None:
            return WorkerError(
                f"{self.url} cannot be reached ({said}): check the address, and whether the worker "
                "is running",
                code="unreachable-worker",
            )
        cure = Cure(
            "pin the certificate",
            "ask its administrator for the certificate's SHA-256 and pass it as pin=",
        )
        why = getattr(found, "verify_message", "")
        said = f"its certificate is not trusted: {why}" if why else said
        return WorkerError(
            f"{self.url} cannot be reached safely ({said}): ",
            cure,
            untrusted=True,
            code="untrusted-certificate",
        )


def _is_final(error: BaseException | None) -> bool:
    """Return whether repeating cannot help: an untrusted certificate or an unknown host name."""
    return any(
        _is_about_certificates(one) or isinstance(one, socket.gaierror) for one in _causes(error)
    )


def _is_about_certificates(error: BaseException) -> bool:
    return isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(
        error
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
