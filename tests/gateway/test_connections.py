"""Which connection is given up when too many are unfinished, and which never."""

from __future__ import annotations

import ipaddress
import resource

import pytest

from app.config import Settings, load_settings
from app.errors import Misconfigured
from app.gateway.connections import Connections, descriptors_for_connections
from app.networks import network_of


class Line:
    """A connection that only knows whether it was given up."""

    def __init__(self) -> None:
        self.is_closed = False

    def give_up(self) -> None:
        self.is_closed = True


def joined(connections: Connections, host: str, count: int) -> list[Line]:
    lines = [Line() for _ in range(count)]
    for line in lines:
        connections.join(line, host)
    return lines


def closed(lines: list[Line]) -> list[bool]:
    return [line.is_closed for line in lines]


def test_the_oldest_of_an_address_goes_first() -> None:
    connections = Connections(3)

    lines = joined(connections, "192.0.2.1", 5)
    others = joined(connections, "192.0.2.2", 3)

    assert closed(lines) == [True, True, False, False, False]
    assert closed(others) == [False] * 3
    assert (connections.count, connections.unfinished) == (6, 6)


def test_a_request_that_arrived_whole_counts_no_more() -> None:
    connections = Connections(2)
    first, second = joined(connections, "192.0.2.1", 2)
    connections.whole(first)

    joined(connections, "192.0.2.1", 1)

    assert closed([first, second]) == [False, False]
    connections.begin(first)
    assert closed([first, second]) == [False, True]


def test_in_all_the_address_with_the_most_gives_way() -> None:
    connections = Connections(None, unfinished=10)
    lone = joined(connections, "192.0.2.9", 1)
    attack = joined(connections, "192.0.2.1", 9)

    late = joined(connections, "192.0.2.8", 3)

    assert closed(lone + late) == [False] * 4
    assert closed(attack) == [True] * 3 + [False] * 6


def test_of_all_connections_the_idle_ones_give_way_first() -> None:
    connections = Connections(None, connections=3)
    busy, idle, unfinished = joined(connections, "192.0.2.1", 3)
    connections.whole(busy)
    connections.whole(idle)
    connections.rest(idle)

    joined(connections, "192.0.2.2", 1)
    assert closed([busy, idle, unfinished]) == [False, True, False]
    joined(connections, "192.0.2.2", 1)
    assert not busy.is_closed
    assert connections.count == 3


def test_what_left_leaves_nothing_behind() -> None:
    connections = Connections(3)
    lines = joined(connections, "192.0.2.1", 5)
    for line in lines:
        connections.whole(line)
        connections.rest(line)
        connections.leave(line)
        connections.leave(line)
        connections.begin(line)
        connections.rest(line)

    assert (connections.count, connections.unfinished) == (0, 0)


def test_an_address_is_what_one_sender_has() -> None:
    assert network_of("192.0.2.1") == network_of("::ffff:192.0.2.1") == "192.0.2.1"
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2:ffff::1") != network_of("2001:db8:1:3::4")
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1")
    assert network_of("") == network_of("a socket") == ""


def test_who_has_no_address_has_no_bound_of_his_own() -> None:
    connections = Connections(1)
    assert closed(joined(connections, "", 3)) == [False] * 3


def test_descriptors_are_raised_as_far_as_allowed_and_some_are_kept_back() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        most = descriptors_for_connections()
        assert most < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_bound_of_an_address_is_off_behind_a_proxy_unless_it_is_set() -> None:
    assert Settings().address_bound == 64
    assert Settings(base_url="https://example.org").address_bound is None
    assert Settings(base_url="https://example.org", unfinished_per_address=5).address_bound == 5
    assert load_settings(unfinished_per_address="off").address_bound is None


@pytest.mark.parametrize("wrong", ["0", "-1", "many", "1.5", "1000000"])
def test_a_wrong_bound_is_named(wrong: str) -> None:
    with pytest.raises(Misconfigured, match="WHETSTONE_UNFINISHED_PER_ADDRESS"):
        load_settings(unfinished_per_address=wrong)


def test_proxies_are_addresses_or_networks() -> None:
    assert load_settings(trusted_proxies="10.0.0.7, 10.1.0.0/16").trusted_proxies == ("10.0.0.7/32", "10.1.0.0/16")
    assert ipaddress.ip_network(load_settings(trusted_proxies="::1").trusted_proxies[0])
    for wrong in ("*", "proxy.example.org", "10.0.0.7/8"):
        with pytest.raises(Misconfigured, match="WHETSTONE_TRUSTED_PROXIES"):
            load_settings(trusted_proxies=wrong)
