"""Servers of tests that speak HTTPS."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socketserver import TCPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HERE = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


def certificate(into: Path, names: x509.GeneralName, *, days: int = 1) -> Path:
    """A self-signed certificate and its key, for `names`, in one file. `days` until it ends."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "A server of a test")])
    ends = datetime.now(UTC) + timedelta(days=days)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=5))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    into.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return into


def speak_tls(server: TCPServer, certificate: Path) -> None:
    """From now on the server, which has not begun, takes HTTPS alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
