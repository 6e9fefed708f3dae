"""Where a webhook may go: never into a network of one's own that the operator did not name.

A name is resolved once, all of its addresses are judged, and the connection goes to the one that was judged: a name
that points elsewhere a moment later leads nowhere else.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from app.errors import Invalid

MAX_URL = 500

RESOLVE_SECONDS = 5.0

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Sequence[str]]
"""The addresses of a host's name. Raises OSError."""

_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_SITE_LOCAL = ipaddress.ip_network("fec0::/10")
_COMPATIBLE = ipaddress.ip_network("::/96")
_threads = ThreadPoolExecutor(8, thread_name_prefix="names")


class AddressRefused(Invalid):
    """This address can't be used for a webhook."""

    code = "address_refused"


@dataclass(frozen=True)
class JudgedAddress:
    """Where to connect: `ip` is one that was judged, `host` is what the certificate and the Host header name."""

    scheme: str
    host: str
    port: int
    ip: str
    path: str

    @property
    def named(self) -> str:
        """As the Host header names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"


def judge_address(url: str, *, allowed: Iterable[str] = (), resolve: Resolver | None = None) -> JudgedAddress:
    """Where `url` leads now. Raises AddressRefused, with a sentence that names the host and no address.

    `allowed` are networks that the operator named: there http is enough, and any address is good.
    """
    parts = _split(url)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    own = [ipaddress.ip_network(each) for each in allowed]
    found = [_parse(each) for each in _look_up(host, port, resolve or _resolve)]
    if not found:
        raise AddressRefused(f"The name {host} has no address.")
    for address in found:
        _check(address, own, parts.scheme, host)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return JudgedAddress(parts.scheme, host, port, str(found[0]), path)


def is_own(address: Address) -> bool:
    """Whether it leads inside: loopback, private, link-local, metadata, multicast, or one of these in disguise."""
    return any(not each.is_global or each.is_multicast or each.is_reserved for each in _disguises(address))


def _split(url: str) -> SplitResult:
    if len(url) > MAX_URL:
        raise AddressRefused(f"An address has at most {MAX_URL} characters.")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise AddressRefused("An address has no spaces and no characters beyond ASCII: write a foreign name as xn--….")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for one that is none
    except ValueError:
        raise AddressRefused("This is no address. It looks like https://example.org/hook.") from None
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.port == 0:
        raise AddressRefused("This is no address. It looks like https://example.org/hook.")
    if "@" in parts.netloc:
        raise AddressRefused("An address can't hold a user or a password.")
    if not _HOST.fullmatch(parts.netloc.removesuffix(f":{parts.port}") if parts.port else parts.netloc):
        raise AddressRefused("This is no address. It looks like https://example.org/hook.")
    return parts


def _look_up(host: str, port: int, resolve: Resolver) -> Sequence[str]:
    try:
        return _threads.submit(resolve, host, port).result(RESOLVE_SECONDS)
    except (OSError, UnicodeError, TimeoutError):
        raise AddressRefused(f"The name {host} could not be looked up.") from None


def _resolve(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def _parse(text: str) -> Address:
    return ipaddress.ip_address(text.partition("%")[0])


def _check(address: Address, own: Sequence[Network], scheme: str, host: str) -> None:
    plain = next(reversed(_disguises(address)))
    if any(each.version == network.version and each in network for each in (address, plain) for network in own):
        return
    if is_own(address):
        raise AddressRefused(
            f"{host} leads into this server's own network. An operator allows that in WHETSTONE_WEBHOOK_NETWORKS."
        )
    if scheme != "https":
        raise AddressRefused("A message leaves this network by https only.")


def _disguises(address: Address) -> list[Address]:
    """The address, and the IPv4 addresses that it stands for: mapped, compatible, 6to4, Teredo or NAT64."""
    found: list[Address] = [address]
    if isinstance(address, ipaddress.IPv6Address):
        teredo = address.teredo[1] if address.teredo else None
        embedded = any(address in network for network in (*_NAT64, _COMPATIBLE))
        last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF) if embedded else None
        found += [each for each in (last, address.ipv4_mapped, address.sixtofour, teredo) if each is not None]
        if address in _SITE_LOCAL:
            found.append(ipaddress.IPv6Address("::1"))
    return found
