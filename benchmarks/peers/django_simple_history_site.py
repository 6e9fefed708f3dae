"""Runs in the peer's environment: django-simple-history's versioned update of one text row, one commit each."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import django
from django.apps import AppConfig
from django.conf import settings
from django.db import connection, transaction


class PeersConfig(AppConfig):
    """The application is this file."""

    name, label, path = "__main__", "peers", str(Path(__file__).parent)


settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "simple_history", "__main__.PeersConfig"],
    DATABASES={"default": json.loads(sys.argv[1])},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    USE_TZ=True,
)
django.setup()

from django.db import models  # noqa: E402
from django.utils import timezone  # noqa: E402
from simple_history.models import HistoricalRecords  # noqa: E402


class Memory(models.Model):
    """As many columns as a memory of the product has."""

    agent_id = models.IntegerField(db_index=True)
    type = models.CharField(max_length=8)
    content = models.TextField()
    token_estimate = models.IntegerField()
    constitutional = models.BooleanField(default=False)
    immutable = models.BooleanField(default=False)
    tags = models.JSONField(default=list)
    origin_at = models.DateTimeField()
    other_dates = models.JSONField(default=list)
    source = models.CharField(max_length=100)
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    discarded_at = models.DateTimeField(null=True)
    history = HistoricalRecords(user_model=None, history_user_id_field=models.IntegerField(null=True))

    class Meta:
        app_label = "peers"


def main() -> None:
    with connection.schema_editor() as editor:
        editor.create_model(Memory)
        editor.create_model(Memory.history.model)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_fill(asked) if asked["do"] == "fill" else _update(asked)), flush=True)


def _fill(asked: dict) -> dict:
    at = timezone.now()
    with transaction.atomic():
        for number, content in enumerate(asked["contents"], 1):
            row = {"agent_id": 1, "type": "core", "content": content, "token_estimate": len(content) // 4}
            Memory.objects.create(id=number, source="agent", origin_at=at, created_at=at, updated_at=at, **row)
    return {"rows": len(asked["contents"])}


def _update(asked: dict) -> dict:
    """Milliseconds of each: loaded, changed, committed with its version."""
    spent, clock = [], getattr(time, asked["clock"])
    for number, content in asked["changes"]:
        began = clock()
        with transaction.atomic():
            memory = Memory.objects.get(pk=number)
            memory.content, memory.token_estimate, memory.updated_at = content, len(content) // 4, timezone.now()
            memory.save()
        spent.append((clock() - began) * 1000)
    return {"ms": spent, "versions": Memory.history.count()}


main()
