"""Where webhooks may lead: a table of forms that hide a network of one's own, and what an operator may allow."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import pytest

from app.notices.addresses import AddressRefused, judge_address

OWN = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254"),
    *("192.0.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1"),
    *("::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "fe80::1", "fe80::1%eth0", "fc00::1"),
    *("fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1"),
    *("2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
)
"""What a name may resolve to; the last one is 127.0.0.1 by Teredo."""

OUTSIDE = ("93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946")


def leads_to(*addresses: str) -> object:
    return lambda host, port: list(addresses)


@pytest.mark.parametrize("address", OWN)
def test_a_name_that_leads_into_the_own_network_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused, match="own network") as caught:
        judge_address("https://hook.example.org/x", resolve=leads_to(address))  # type: ignore[arg-type]
    assert address not in caught.value.sentence

    with pytest.raises(AddressRefused, match="own network"):  # one good address does not wash the other
        judge_address("https://hook.example.org/x", resolve=leads_to(OUTSIDE[0], address))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "0x7f.1", "2130706433", "0177.0.0.1", "[::1]", "[::ffff:7f00:1]", "127.0.0.1."],
)
def test_this_machine_is_refused_however_it_is_spelled(host: str) -> None:
    with pytest.raises(AddressRefused, match=r"own network|could not be looked up"):
        judge_address(f"https://{host}:8443/x")


@pytest.mark.parametrize(
    "url",
    [
        *("", "hook", "//example.org/x", "ftp://example.org", "file:///etc/passwd", "https://", "https:///x"),
        *("https://user:pw@example.org/", "https://example.org@127.0.0.1/", "https://example.org:0/"),
        *("https://example.org:99999/", "https://exa mple.org/", "https://example.org\\@127.0.0.1/", "https://[::1"),
        *("https://example.org/\r\nX-Injected: 1", "https://exämple.org/", "https://[fe80::1%25eth0]/", "gopher://x"),
        "https://example.org/" + "x" * 500,
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_looked_up(url: str) -> None:
    def never(host: str, port: int) -> Sequence[str]:
        raise AssertionError(host)

    with pytest.raises(AddressRefused):
        judge_address(url, resolve=never)


def test_an_operator_allows_a_network_and_no_other_and_there_http_is_enough() -> None:
    allowed = ("10.1.0.0/16", "fd00::/8")
    judged = judge_address("http://hook.internal:8080/x?y=1", allowed=allowed, resolve=leads_to("10.1.2.3"))  # type: ignore[arg-type]
    assert (judged.ip, judged.port, judged.path, judged.named) == ("10.1.2.3", 8080, "/x?y=1", "hook.internal:8080")
    assert judge_address("http://h/", allowed=allowed, resolve=leads_to("::ffff:10.1.2.3")).ip  # type: ignore[arg-type]
    with pytest.raises(AddressRefused, match="own network"):
        judge_address("http://h/", allowed=allowed, resolve=leads_to("10.2.0.1"))  # type: ignore[arg-type]
    with pytest.raises(AddressRefused, match="https only"):
        judge_address("http://example.org/", allowed=allowed, resolve=leads_to(OUTSIDE[0]))  # type: ignore[arg-type]


def test_addresses_outside_are_good_by_https_and_names_without_one_are_not() -> None:
    for address in OUTSIDE:
        judged = judge_address("https://example.org", resolve=leads_to(address))  # type: ignore[arg-type]
        assert (judged.ip, judged.port, judged.path, judged.named) == (address, 443, "/", "example.org")
    with pytest.raises(AddressRefused, match="no address"):
        judge_address("https://example.org", resolve=leads_to())  # type: ignore[arg-type]

    def unknown(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror

    with pytest.raises(AddressRefused, match="could not be looked up"):
        judge_address("https://example.org", resolve=unknown)
