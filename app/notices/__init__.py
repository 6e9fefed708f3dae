"""Notices: e-mail and webhooks tell people what happened while nobody looked; never what a memory says.

`sightings` (which events count) → `outbox` (grouped into rows, claimed, sent, logged) → `mail` and `webhooks`.
"""
