"""The icons of pages: 16 × 16 line drawings of our own. `static/css/frame.css` says how their lines look."""

from __future__ import annotations

from functools import cache

from markupsafe import Markup

DRAWINGS = {
    "agent": (
        '<rect x="3" y="5" width="10" height="8" rx="2"/><path d="M8 5V2.5M6 8.5v1M10 8.5v1M1.5 8.5v2M14.5 8.5v2"/>'
    ),
    "alert": '<path d="M8 2.2 14.5 13.3H1.5z"/><path d="M8 6.3v3.2M8 11.4v.1"/>',
    "arrow-right": '<path d="M3 8h10M9.5 4.5 13 8l-3.5 3.5"/>',
    "audit": '<path d="M4 1.8h5.5L12.5 5v9.2H4z"/><path d="M6 7h4.5M6 9.3h4.5M6 11.6h3"/>',
    "auto": '<circle cx="8" cy="8" r="5.6"/><path d="M8 2.4a5.6 5.6 0 0 1 0 11.2z" fill="currentColor"/>',
    "ban": '<circle cx="8" cy="8" r="5.8"/><path d="M4 12 12 4"/>',
    "bell": '<path d="M4 11.5V7.2a4 4 0 0 1 8 0v4.3l1 1H3z"/><path d="M6.8 14.2h2.4"/>',
    "bolt": '<path d="M9 1.8 3.5 9H8l-1 5.2L12.5 7H8z"/>',
    "budget": '<path d="M2 12.5a6 6 0 1 1 12 0"/><path d="M8 12.5 10.8 8"/>',
    "chat": '<path d="M2 3.5h12v7.5H7.5L4.5 13.7V11H2z"/><path d="M5 6.3h6M5 8.4h3.5"/>',
    "check": '<path d="M3 8.6 6.4 12 13 4.6"/>',
    "chevron-down": '<path d="M4 6l4 4 4-4"/>',
    "chevron-right": '<path d="M6 4l4 4-4 4"/>',
    "clock": '<circle cx="8" cy="8" r="5.8"/><path d="M8 4.8V8l2.3 1.6"/>',
    "close": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "copy": (
        '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/>'
        '<path d="M10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2"/>'
    ),
    "dashed": '<circle cx="8" cy="8" r="5.8" stroke-dasharray="3 2.4"/><path d="M8 5v3.4M8 10.8v.1"/>',
    "download": '<path d="M8 2v8M4.8 7 8 10.2 11.2 7M2.5 13.5h11"/>',
    "eye": '<path d="M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8z"/><circle cx="8" cy="8" r="2"/>',
    "flag": '<path d="M3.5 14.2V2.2M3.5 2.8h8.8L10.5 6l1.8 3.2H3.5"/>',
    "history": '<path d="M2.6 5.2A5.8 5.8 0 1 1 2.2 8M2.4 2.4v3h3"/><path d="M8 5v3.2l2 1.3"/>',
    "info": '<circle cx="8" cy="8" r="5.8"/><path d="M8 7.4v3.4M8 5.1v.1"/>',
    "key": '<circle cx="5" cy="11" r="2.7"/><path d="M7 9 13.5 2.5M10.6 5.4l2 2"/>',
    "lock": '<rect x="3.2" y="7" width="9.6" height="6.6" rx="1.4"/><path d="M5.2 7V4.9a2.8 2.8 0 0 1 5.6 0V7"/>',
    "merge": (
        '<path d="M3.5 2.5v2c0 2 4.5 2 4.5 4.5v4.5M12.5 2.5v2c0 2-4.5 2-4.5 4.5"/><path d="M5.9 11.4 8 13.5l2.1-2.1"/>'
    ),
    "moon": '<path d="M13.2 9.6A5.6 5.6 0 1 1 6.4 2.8a4.5 4.5 0 0 0 6.8 6.8z"/>',
    "overview": (
        '<rect x="2.2" y="2.2" width="4.8" height="4.8" rx="1"/>'
        '<rect x="9" y="2.2" width="4.8" height="4.8" rx="1"/>'
        '<rect x="2.2" y="9" width="4.8" height="4.8" rx="1"/>'
        '<rect x="9" y="9" width="4.8" height="4.8" rx="1"/>'
    ),
    "pause": '<path d="M5.5 3v10M10.5 3v10"/>',
    "pencil": '<path d="M2.5 13.5l.7-3 7.6-7.6 2.3 2.3-7.6 7.6zM9.3 4.4l2.3 2.3"/>',
    "play": '<path d="M4.5 2.8v10.4L12.8 8z"/>',
    "plus": '<path d="M8 3v10M3 8h10"/>',
    "refine": '<path d="M1.8 13h12.4M3 9.8 13.2 4.3c.4-.2.7.2.4.5L10.3 8.7a2 2 0 0 1-1.5.7z"/>',
    "search": '<circle cx="7" cy="7" r="4.4"/><path d="M10.3 10.3 13.8 13.8"/>',
    "settings": (
        '<path d="M2 4.5h6.5M11.5 4.5H14M2 11.5h2.5M7.5 11.5H14"/><circle cx="10" cy="4.5" r="1.6"/>'
        '<circle cx="6" cy="11.5" r="1.6"/>'
    ),
    "shield": (
        '<path d="M8 1.8 13.2 3.7v4c0 3.2-2.2 5.4-5.2 6.5-3-1.1-5.2-3.3-5.2-6.5v-4z"/>'
        '<path d="M5.7 7.9 7.4 9.6 10.4 6.3"/>'
    ),
    "sign-out": '<path d="M6.5 2.5H3v11h3.5M6.5 8H14M11 5l3 3-3 3"/>',
    "spinner": '<circle cx="8" cy="8" r="5.6" opacity=".3"/><path d="M8 2.4A5.6 5.6 0 0 1 13.6 8"/>',
    "stop": '<rect x="3.5" y="3.5" width="9" height="9" rx="1.5"/>',
    "sun": (
        '<circle cx="8" cy="8" r="2.9"/>'
        '<path d="M8 1.3v1.5M8 13.2v1.5M1.3 8h1.5M13.2 8h1.5M3.3 3.3l1 1M11.7 11.7l1 1M12.7 3.3l-1 1M4.3 11.7l-1 1"/>'
    ),
    "terminal": '<rect x="1.8" y="2.8" width="12.4" height="10.4" rx="1.5"/><path d="M4.5 6l2.2 2-2.2 2M8.5 10.3h3"/>',
    "trash": '<path d="M2.8 4.3h10.4M6.3 4.3V2.5h3.4v1.8M4 4.3l.7 9.2h6.6l.7-9.2M6.7 7v4M9.3 7v4"/>',
    "undo": '<path d="M5.6 3 2.6 6l3 3"/><path d="M2.8 6h6.4a4 4 0 0 1 0 8H6"/>',
    "upload": '<path d="M8 10.5v-8M4.8 5.5 8 2.3l3.2 3.2M2.5 13.5h11"/>',
    "user": '<circle cx="8" cy="5.3" r="2.8"/><path d="M2.6 13.8c.6-2.9 2.7-4.3 5.4-4.3s4.8 1.4 5.4 4.3"/>',
    "users": (
        '<circle cx="6" cy="5.5" r="2.5"/>'
        '<path d="M1.5 13.3c.5-2.6 2.2-3.8 4.5-3.8s4 1.2 4.5 3.8'
        'M10.5 3.3a2.5 2.5 0 0 1 0 4.5M12 9.8c1.4.5 2.2 1.6 2.5 3.5"/>'
    ),
}


@cache
def icon(name: str) -> Markup:
    """Silent to screen readers: a word beside it says the same."""
    return Markup(  # noqa: S704 - constants of this module
        f'<svg class="icon icon-{name}" viewBox="0 0 16 16" aria-hidden="true">{DRAWINGS[name]}</svg>'
    )
