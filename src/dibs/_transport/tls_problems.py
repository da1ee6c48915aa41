"""What is wrong if TLS fails because of the settings: a file, a certificate, a cipher."""

import ssl
from typing import Literal

TlsProblem = Literal[
    "file", "authority", "host", "validity", "plain", "client", "refused", "version", "ciphers"
]

_WRONG_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
_NOT_VALID = (9, 10)  # …_CERT_NOT_YET_VALID, …_CERT_HAS_EXPIRED
_NO_RECORD = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""How versions of OpenSSL call a first reply that is not TLS."""


class UnreadableFile(OSError):
    """A file that the URL names for TLS cannot be opened."""

    def __init__(self, option: str, path: object, error: OSError) -> None:
        super().__init__(f"{option}={path}: {error.strerror}")


def tls_problem(error: BaseException) -> TlsProblem | None:
    """What *error*, without those that it was raised from, says. None: nothing about settings."""
    if isinstance(error, UnreadableFile):
        return "file"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error.verify_code)
    return _of_handshake(error) if isinstance(error, ssl.SSLError) else None


def reason_of(error: BaseException) -> str:
    """The name that OpenSSL has for it; "" if it is not an error of OpenSSL."""
    return (isinstance(error, ssl.SSLError) and getattr(error, "reason", None)) or ""


def _of_certificate(verify_code: int) -> TlsProblem:
    if verify_code in _WRONG_HOST:
        return "host"
    return "validity" if verify_code in _NOT_VALID else "authority"


def _of_handshake(error: ssl.SSLError) -> TlsProblem | None:
    reason, library = reason_of(error), getattr(error, "library", None)
    if reason in _NO_RECORD:
        return "plain"
    if library in ("PEM", "X509") or "PEM" in reason or "KEY_VALUES_MISMATCH" in reason:
        return "file"
    if "PROTOCOL" in reason:
        return "version"
    if "cipher can be selected" in str(error):
        return "ciphers"
    return _of_alert(reason) if "ALERT" in reason else None


def _of_alert(reason: str) -> TlsProblem | None:
    """Of a server that ends the handshake. "refused": by a certificate or by a cipher."""
    if "CERT" in reason or "UNKNOWN_CA" in reason:
        return "client"
    return "refused" if "HANDSHAKE" in reason or "INSUFFICIENT" in reason else None
