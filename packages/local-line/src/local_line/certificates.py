"""A certificate authority for one run: it signs one certificate, for LINE's hosts."""

import re
import ssl
import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from os import environ
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .hosts import HOSTS

_OF_NODE = "NODE_EXTRA_CA_CERTS"
_OF_CLIENTS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_BLOCK = re.compile(f"{ssl.PEM_HEADER}.*?{ssl.PEM_FOOTER}", re.DOTALL)
_DAYS = 30
"""How long a run may last, in days."""
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""Python 3.13 and Go refuse an authority that does not say so."""


def issue(folder: Path) -> ssl.SSLContext:
    """Writes `ca.pem`, and the bundle in the forms of OpenSSL, Java and PHP; returns what a
    server for LINE's hosts needs.

    The key of the authority is never written: nothing else can be signed by it.
    """
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _signed("local-line", authority.public_key(), "local-line", authority, is_authority=True)
    leaf = _signed(HOSTS[0], server.public_key(), "local-line", authority, is_authority=False)
    own = _pem(ca).decode()
    (folder / "ca.pem").write_text(own)
    (folder / "node.pem").write_text("".join(_blocks([environ.get(_OF_NODE, "")]) | {own: None}))
    bundle = folder / "bundle.pem"
    blocks = _usual_authorities() | {own: None}
    bundle.write_text("".join(blocks))
    (folder / "bundle.jks").write_bytes(_java_store(list(blocks)))
    (folder / "bundle.ini").write_text(f'curl.cainfo="{bundle}"\nopenssl.cafile="{bundle}"\n')
    secret = folder / "server.pem"
    secret.touch(mode=0o600)
    secret.write_bytes(_key_pem(server) + _pem(leaf))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secret)
    secret.unlink()
    return context


def _signed(
    subject: str,
    key: ec.EllipticCurvePublicKey,
    issuer: str,
    authority: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
    )
    if is_authority:
        builder = builder.add_extension(_SIGNS_CERTIFICATES, critical=True)
    else:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _java_store(blocks: list[str]) -> bytes:
    """A JKS file of them, which Java reads without a password.

    Written by hand, so that no certificate is parsed: some of a system are not well-formed.
    """
    entries: list[bytes] = []
    for number, text in enumerate(blocks):
        der, alias = ssl.PEM_cert_to_DER_cert(text), b"%d" % number
        head = struct.pack(">IH", 2, len(alias)) + alias + struct.pack(">QH", 0, 5) + b"X.509"
        entries.append(head + struct.pack(">I", len(der)) + der)
    return struct.pack(">III", 0xFEEDFEED, 2, len(entries)) + b"".join(entries)


def _usual_authorities() -> dict[str, None]:
    """Those that programs trust already: their variables replace the list, so it must have all."""
    usual = ssl.get_default_verify_paths()
    found = _blocks([usual.cafile or ""])
    if not found and usual.capath:  # as on Ubuntu
        found = _blocks(sorted(Path(usual.capath).iterdir()))
    return found | _blocks([environ.get(name, "") for name in (*_OF_CLIENTS, _OF_NODE)])


def _blocks(files: Iterable[Path | str]) -> dict[str, None]:
    """The certificates in them, each once; comments between them are in any encoding."""
    found: dict[str, None] = {}
    for each in files:
        try:
            text = Path(each).read_text("latin-1")
        except OSError:  # not there, or a folder
            continue
        found |= dict.fromkeys(f"{block}\n" for block in _BLOCK.findall(text))
    return found
