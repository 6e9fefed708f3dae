"""Which network address a peer counts as, where something is bounded by address."""

from __future__ import annotations

import ipaddress


def network_of(host: str) -> str:
    """The address that bounds go by: of IPv6 the network that one customer has whole."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False).network_address)
