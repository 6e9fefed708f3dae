"""Runs in the peer's environment: Flask-Admin's list of 2,000 agents, 50 a page, served by uvicorn through a2wsgi."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime

import uvicorn
from a2wsgi import WSGIMiddleware
from flask import Flask
from flask_admin import Admin
from flask_admin.contrib.sqla import ModelView
from flask_sqlalchemy import SQLAlchemy

app = Flask(__name__)
app.config.update(SQLALCHEMY_DATABASE_URI=sys.argv[1], SECRET_KEY="of a benchmark")
db = SQLAlchemy(app)


class Agent(db.Model):
    """What a row of the product's list shows."""

    id = db.Column(db.Integer, primary_key=True)
    name = db.Column(db.String(80), unique=True, nullable=False)
    model_id = db.Column(db.String(200), nullable=False)
    core_token_budget = db.Column(db.Integer, nullable=False)
    core_token_usage = db.Column(db.Integer, nullable=False)
    core_count = db.Column(db.Integer, nullable=False)
    active = db.Column(db.Boolean, nullable=False)
    paused = db.Column(db.Boolean, nullable=False)
    last_refinement_at = db.Column(db.DateTime)
    created_at = db.Column(db.DateTime, nullable=False)


class AgentView(ModelView):
    page_size = 50


def main() -> None:
    with app.app_context():
        db.create_all()
        at = datetime.now(UTC).replace(tzinfo=None)
        same = {"model_id": "whetstone/offline", "core_token_budget": 5000, "core_token_usage": 3400, "core_count": 200}
        same |= {"active": True, "paused": False, "last_refinement_at": at, "created_at": at}
        db.session.add_all([Agent(name=f"fleet-{number}", **same) for number in range(int(sys.argv[2]))])
        db.session.commit()
    Admin(app).add_view(AgentView(Agent, db.session))
    config = uvicorn.Config(
        WSGIMiddleware(app, workers=16), host="127.0.0.1", port=0, log_level="error", lifespan="off"
    )
    server = uvicorn.Server(config)
    threading.Thread(target=server.run, daemon=True).start()
    for _ in sys.stdin:
        while not server.started:
            threading.Event().wait(0.05)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(json.dumps({"url": f"http://127.0.0.1:{port}/admin/agent/"}), flush=True)


main()
