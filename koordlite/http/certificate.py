"""The server's TLS certificate: read from files, and read again when they are replaced, as cert-manager does."""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable

from koordlite.model.errors import ConfigError, Problem, reason

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 10.0
"""Time until a replaced file is noticed."""
_Stamp = tuple[tuple[int, int, int], ...]


class Certificate:
    """A certificate with its key. ConfigError from the constructor when they cannot be used."""

    def __init__(
        self,
        certificate_file: str,
        key_file: str,
        *,
        now: Callable[[], float] = time.monotonic,
        setting: tuple[str, str] = ("koordlite.yaml", "http.tlsCertFile"),
        client_ca_file: str = "",
    ) -> None:
        """`key_file` empty: the key is in `certificate_file`. `setting` is for errors: where the files were named.
        `client_ca_file`: who signs the certificates that clients have to show; empty: none is asked for."""
        self._files, self._now = (certificate_file, key_file or certificate_file), now
        self._client_ca = client_ca_file
        self._lock = threading.Lock()
        try:
            self._stamp, self._context = self._stamps(), self._load()
        except (OSError, ValueError) as error:
            names = " and ".join(dict.fromkeys([*self._files, *filter(None, [client_ca_file])]))
            do = "name a certificate and its key in PEM format, or leave both out for plain HTTP"
            raise ConfigError(Problem(*setting, names, reason(error), do)) from error
        self._checked = now()

    @property
    def asks_clients(self) -> bool:
        """True if clients have to show a certificate of theirs."""
        return bool(self._client_ca)

    def context(self) -> ssl.SSLContext:
        """Context for the next connection. A replacement that cannot be used is logged, and the last good one stays."""
        with self._lock:
            if self._now() - self._checked >= CHECK_SECONDS:
                self._checked = self._now()
                self._renew()
            return self._context

    def _renew(self) -> None:
        try:
            stamp = self._stamps()
            if stamp == self._stamp:
                return
            self._context, self._stamp = self._load(), stamp
        except (OSError, ValueError) as error:
            LOG.error("the certificate of the HTTP server was replaced by one that cannot be used: %s", error)

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files, password=_no_password)
        if self._client_ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cafile=self._client_ca)
        return context

    def _stamps(self) -> _Stamp:
        stats = (os.stat(path) for path in (*self._files, *filter(None, [self._client_ca])))
        return tuple((each.st_ino, each.st_mtime_ns, each.st_size) for each in stats)


class SelfSigned:
    """A certificate that signs itself, made at the start and kept in memory only: enough for probes, which do not ask
    who signed. ConfigError when the library that makes it is not installed."""

    def __init__(self, *, days: int = 365) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError as error:
            do = "install the package `cryptography`, or name a certificate"
            raise ConfigError(Problem("command line", "--secure-port", "", str(error), do)) from error
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "self-signed")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The ssl module reads files only; this one is in memory and has no name.
        with os.fdopen(os.memfd_create("certificate"), "wb", buffering=0) as file:
            file.write(certificate.public_bytes(pem) + private)
            self._context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")

    def context(self) -> ssl.SSLContext:
        """Context for the next connection."""
        return self._context


def _no_password() -> str:
    """OpenSSL would ask at the terminal."""
    raise ValueError("the key is protected by a password")
