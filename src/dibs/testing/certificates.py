"""Certificates for one test run: an authority, a server's, and a client's."""

from __future__ import annotations

import ssl
from pathlib import Path


class Certificates:
    """Files in a folder: `ca.pem` to trust, `server.pem` and `client.pem` with their keys.

    Made by the package trustme, for 127.0.0.1 and localhost.

    Args:
        mutual: The server asks clients for a certificate, and `url()` names one.

    Raises:
        RuntimeError: trustme is not installed.
    """

    def __init__(self, folder: Path, *, mutual: bool = False) -> None:
        self.ca, self.server, self.client = (
            folder / name for name in ("ca.pem", "server.pem", "client.pem")
        )
        self.mutual = mutual
        self._make_files()

    def url(self, address: str) -> str:
        """Return the URL of a server with these certificates, as redis-py reads it."""
        query = f"ssl_ca_certs={self.ca}"
        if self.mutual:
            query += f"&ssl_certfile={self.client}&ssl_keyfile={self.client}"
        return f"rediss://{address}?{query}"

    def server_context(self) -> ssl.SSLContext:
        """Return what a server in Python needs to speak TLS."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(self.server)
        context.verify_mode = ssl.CERT_REQUIRED if self.mutual else ssl.CERT_NONE
        return context

    def server_options(self) -> dict[str, str]:
        """Return the settings with which a Redis server speaks TLS."""
        return {
            "tls-ca-cert-file": str(self.ca),
            "tls-cert-file": str(self.server),
            "tls-key-file": str(self.server),
            "tls-auth-clients": "yes" if self.mutual else "no",
        }

    def _make_files(self) -> None:
        try:
            import trustme
        except ImportError:
            raise RuntimeError("TLS in tests needs the package trustme") from None
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        for file, name in ((self.server, "127.0.0.1"), (self.client, "client")):
            issued = authority.issue_cert(name, "localhost")
            issued.private_key_and_cert_chain_pem.write_to_path(str(file))
