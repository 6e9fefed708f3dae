"""Connected components: which things belong together because something links them."""

from __future__ import annotations

from collections.abc import Iterable


def connected_groups(links: Iterable[Iterable[int]]) -> list[tuple[int, ...]]:
    """Everything that is linked, directly or through others, as one group: sorted, in the order of the first links."""
    groups: list[set[int]] = []
    for link in links:
        joined = set(link)
        together = [group for group in groups if group & joined]
        if not together:
            groups.append(joined)
            continue
        together[0].update(joined, *together[1:])
        groups = [group for group in groups if group is together[0] or group not in together]
    return [tuple(sorted(group)) for group in groups]
