"""Settings from the environment, in one place, loud when wrong."""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.crontabs import check_crontab
from app.errors import Misconfigured
from app.keynames import is_possible
from app.mailserver import is_mail_address, parse_mail_server
from app.modelnames import is_model_pattern

ROOT = Path(__file__).resolve().parent.parent
"""The checkout: templates, static files and migrations stand here."""

HARD_MAX_MUTATIONS = 10
"""No setting lifts a refinement's cap above this; the database has the same number."""

MAX_ENVIRONMENT_NOTE = 280

MAX_RECALL_PROBES = 10
"""Questions that an agent may want to ask itself in each refinement."""

HARD_MAX_CONFIRMED_LOSSES = 10
"""No setting lets more calls of a refinement lose what the agent was told of; the database has the same number."""

IMMUTABLE_TAGS = ("audio", "somatic", "voice")


OFFLINE_MODEL = "whetstone/offline"
"""It only removes duplicates by rule: no language model, so it is never asked what to think of anything."""

READS_NOTHING = "whetstone/offline is a rule-based program: it reads nothing, so it can't be a second reader"


class ReaderAction(StrEnum):
    """What becomes of a refinement when its second reader does not call something kept."""

    FLAG = "flag"
    REVERSE = "reverse"


def _env_aliases(name: str) -> AliasChoices:
    return AliasChoices(name, name.lower())


class Settings(BaseSettings):
    """Everything that an operator can set. Each field's description is its documentation."""

    model_config = SettingsConfigDict(env_prefix="WHETSTONE_", extra="ignore", populate_by_name=True, frozen=True)

    data_dir: Path = Field(ROOT / "var", description="Where the database, keys, logs and the broker's files live.")
    database_url: str = Field(
        "", validation_alias=_env_aliases("DATABASE_URL"), description="PostgreSQL; empty means SQLite in the data dir."
    )
    redis_url: str = Field(
        "",
        validation_alias=_env_aliases("REDIS_URL"),
        description="Redis or Valkey; empty means the embedded broker of `up`.",
    )
    host: str = Field("127.0.0.1", description="The address that the web process listens on.")
    port: int = Field(8000, ge=1, le=65535, description="The port that the web process listens on.")
    web_processes: int = Field(1, ge=1, le=64, description="Web processes that `up` runs. All listen on the same port.")
    base_url: str = Field("", description="The public address, when a reverse proxy stands in front.")
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        ("127.0.0.1", "::1"),
        description="Comma-separated addresses or networks whose X-Forwarded-For is believed, with a public address.",
    )
    unfinished_per_address: int | None = Field(
        64, ge=1, le=100_000, description="Requests of one address that may arrive slowly at the same time; or `off`."
    )
    secure_cookies: bool = Field(False, description="Send cookies over HTTPS only. Set it behind TLS.")
    master_key_file: Path | None = Field(
        None, description="The private master key. Only the worker and the command line read it."
    )
    min_threshold: Decimal = Field(Decimal("0.50"), description="The floor of every agent's retention threshold.")
    default_threshold: Decimal = Field(Decimal("0.75"), description="The threshold of agents that set none.")
    default_budget: int = Field(5000, ge=1, description="Tokens of core memory that a new agent should stay under.")
    max_mutations: int = Field(HARD_MAX_MUTATIONS, ge=0, le=HARD_MAX_MUTATIONS, description="Changes a refinement.")
    erosion_floor: Decimal | None = Field(
        Decimal("0.50"),
        description="What refinements must leave of an agent's core memories over 30 days; `off` for no such guard.",
    )
    schedule: str = Field("0 4 * * 1", description="Crontab of the scheduled tick, UTC.")
    interval_days: int = Field(7, ge=1, le=365, description="Days between scheduled refinements of one agent.")
    max_turns: int = Field(30, ge=1, le=200, description="Model replies a refinement.")
    deadline_seconds: int = Field(900, ge=5, le=86_400, description="Wall time a refinement.")
    step_timeout_seconds: int = Field(120, ge=1, le=3600, description="Wall time a model call.")
    max_model_tokens: int = Field(1_000_000, ge=1000, description="Model tokens a refinement, prompt and reply.")
    max_cost_usd: Decimal = Field(Decimal("5"), ge=0, description="Model cost a refinement, where it is known.")
    demo_pace_seconds: float = Field(
        1.0, ge=0, le=10, description="How long whetstone/offline takes a turn of the demo."
    )
    retry_base_seconds: float = Field(1.0, ge=0, le=60, description="First pause before a model call is repeated.")
    concurrency: int = Field(64, ge=1, le=1000, description="Refinements that one worker keeps in flight.")
    workers: int = Field(1, ge=1, le=64, description="Worker processes that `up` runs, one a core at most.")
    immutable_tags: Annotated[tuple[str, ...], NoDecode] = Field(
        IMMUTABLE_TAGS, description="Comma-separated. Memories with one of these tags are never changed by the Knife."
    )
    safety_model: str = Field(
        "", description="A model that reads prompts which agents write for themselves, before they apply; empty: off."
    )
    safety_api_base: str = Field("", description="The address of the safety model, for a server of your own.")
    safety_api_key_env: str = Field("", description="The NAME of the variable that holds the safety model's key.")
    max_confirmed_losses: int = Field(
        3,
        ge=0,
        le=HARD_MAX_CONFIRMED_LOSSES,
        description="Changes a refinement that may lose what the agent was told of and confirmed; agents may set less.",
    )
    second_reader_model: str = Field(
        "", description="A model that reads, after each refinement, whether its changes kept everything; empty: off."
    )
    second_reader_api_base: str = Field("", description="The address of the second reader, for a server of your own.")
    second_reader_api_key_env: str = Field(
        "", description="The NAME of the variable that holds the second reader's key."
    )
    second_reader_action: ReaderAction = Field(
        ReaderAction.FLAG, description="What the second reader does not call kept: `flag` it, or `reverse` all of it."
    )
    api_key_envs: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None, description="Comma-separated. The only variables that an agent's key may be read from; `off` for none."
    )
    models: Annotated[tuple[str, ...] | None, NoDecode] = Field(
        None,
        description="Comma-separated. The only models, and addresses behind an `@`, that agents may have; empty: all.",
    )
    checkpoint_url: str = Field(
        "",
        pattern=r"^(https?://[^\s]+)?$",
        description="Where each signed checkpoint of the log is sent (POST, text/plain); empty: nowhere.",
    )
    smtp_url: SecretStr = Field(
        SecretStr(""),
        description="The mail server for notices, such as smtp://user:password@mail.example.org; empty: no e-mail.",
    )
    smtp_from: str = Field("", description="The sender of notices by e-mail.")
    webhook_networks: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="Comma-separated networks of your own that webhooks may lead into, also by http; empty: none."
    )
    api_rate: str = Field(
        "600/minute",
        pattern=r"^[1-9][0-9]{0,8}/(second|minute|hour|day)$",
        description="Requests that one agent's token may send, such as 600/minute.",
    )
    environment_note: str = Field(
        "", description="One line that every model is told with every question, such as: this is a copy for tests."
    )
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Of all processes.")

    @field_validator("immutable_tags", mode="before")
    @classmethod
    def _split_tags(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(tag.strip().lower() for tag in value.split(",") if tag.strip())
        return value

    @field_validator("second_reader_model")
    @classmethod
    def _check_reader(cls, value: str) -> str:
        if value.strip() == OFFLINE_MODEL:
            raise ValueError(READS_NOTHING)
        return value.strip()

    @field_validator("api_key_envs", mode="before")
    @classmethod
    def _split_key_names(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = tuple(name.strip() for name in value.split(",") if name.strip())
        return () if value.strip().lower() == "off" else names or None

    @field_validator("api_key_envs")
    @classmethod
    def _check_key_names(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if not all(is_possible(name) for name in value or ()):
            raise ValueError(
                "must be names of variables that hold models' keys: none of Whetstone, its database or the system"
            )
        return value

    @field_validator("models", mode="before")
    @classmethod
    def _split_models(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(each.strip() for each in value.split(",") if each.strip()) or None

    @field_validator("models")
    @classmethod
    def _check_models(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        wrong = [each for each in value or () if not is_model_pattern(each)]
        if wrong:
            raise ValueError(
                f"must be models such as openai/*, or ollama/*@http://127.0.0.1:11434 with an address; not {wrong[0]!r}"
            )
        return value

    @field_validator("trusted_proxies", "webhook_networks", mode="before")
    @classmethod
    def _split_networks(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return tuple(str(ip_network(each.strip())) for each in value.split(",") if each.strip())
        except ValueError:
            raise ValueError("must be addresses or networks, such as 10.0.0.7 or 10.0.0.0/24") from None

    @field_validator("smtp_url")
    @classmethod
    def _check_smtp(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value():
            parse_mail_server(value.get_secret_value())
        return value

    @field_validator("smtp_from")
    @classmethod
    def _check_sender(cls, value: str) -> str:
        if value and not is_mail_address(value):
            raise ValueError("must be one plain e-mail address, such as whetstone@example.org")
        return value

    @field_validator("erosion_floor", "unfinished_per_address", mode="before")
    @classmethod
    def _read_off(cls, value: object) -> object:
        return None if isinstance(value, str) and value.strip().lower() in ("", "off", "null", "none") else value

    @field_validator("min_threshold", "default_threshold", "erosion_floor")
    @classmethod
    def _check_threshold(cls, value: Decimal | None) -> Decimal | None:
        if value is None:
            return None
        if not value.is_finite() or not Decimal("0") < value <= Decimal("1"):
            raise ValueError("must be a number above 0 and at most 1.00")
        if value != round(value, 4):
            raise ValueError("at most four digits after the point")
        return value

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, value: str) -> str:
        check_crontab(value)
        return value

    @field_validator("environment_note")
    @classmethod
    def _check_note(cls, value: str) -> str:
        note = value.strip()
        if not note.isprintable():
            raise ValueError("must be one line without line breaks or invisible characters")
        if len(note) > MAX_ENVIRONMENT_NOTE:
            raise ValueError(f"must have at most {MAX_ENVIRONMENT_NOTE} characters; it has {len(note):,}")
        return note

    @field_validator("database_url")
    @classmethod
    def _name_the_driver(cls, value: str) -> str:
        for prefix in ("postgresql://", "postgres://"):
            if value.startswith(prefix):
                return "postgresql+psycopg://" + value.removeprefix(prefix)
        if value and not value.startswith(("postgresql+psycopg://", "sqlite:///")):
            raise ValueError("must be postgresql://… or sqlite:///…")
        return value

    @field_validator("redis_url")
    @classmethod
    def _check_redis(cls, value: str) -> str:
        if value and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must be redis://…, rediss://… or unix://…")
        return value

    @model_validator(mode="after")
    def _check_floor(self) -> Settings:
        if self.default_threshold < self.min_threshold:
            raise ValueError("WHETSTONE_DEFAULT_THRESHOLD is below WHETSTONE_MIN_THRESHOLD")
        return self

    @model_validator(mode="after")
    def _check_mail(self) -> Settings:
        if self.smtp_url.get_secret_value() and not self.smtp_from:
            raise ValueError("WHETSTONE_SMTP_URL needs WHETSTONE_SMTP_FROM, the sender's address")
        return self

    @property
    def public_url(self) -> str:
        """Where people find the pages, for links in messages: without an address set, on this machine."""
        return self.base_url.rstrip("/") or f"http://127.0.0.1:{self.port}"

    @property
    def address_bound(self) -> int | None:
        """Behind a reverse proxy all requests have its address: there is no bound unless one is set."""
        is_set = "unfinished_per_address" in self.model_fields_set
        return self.unfinished_per_address if is_set or not self.base_url else None

    @property
    def data(self) -> Path:
        """The data dir, absolute."""
        return self.data_dir if self.data_dir.is_absolute() else self.data_dir.expanduser().absolute()

    @property
    def sqlalchemy_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data / 'whetstone.db'}"

    @property
    def master_key_path(self) -> Path:
        return (self.master_key_file or self.data / "keys" / "master.key").expanduser().absolute()

    @property
    def statements_dir(self) -> Path:
        """This machine's copy of the state of the log of statements, its checkpoints, and the web keys it knows."""
        return self.data / "statements"

    @property
    def web_key_path(self) -> Path:
        """What the web process signs with."""
        return self.data / "web.key"

    @property
    def pinned_path(self) -> Path:
        """The installation that the web process trusts."""
        return self.data / "installation.json"

    @property
    def run_dir(self) -> Path:
        """What a running `up` leaves for other commands: the broker's address, process ids, a lock."""
        return self.data / "run"

    @property
    def broker_url(self) -> str:
        """The broker to use now: REDIS_URL, else the embedded one of a running `up`, else nothing."""
        if self.redis_url:
            return self.redis_url
        try:
            return _address_file(self.data).read_text().strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""

    @property
    def counting_url(self) -> str:
        """The broker in which all web processes count together, or nothing: this one counts for itself."""
        return self.redis_url or (self.broker_url if self.web_processes > 1 else "")


@lru_cache(maxsize=8)
def _address_file(data: Path) -> Path:
    return data / "run" / "broker.url"


def load_settings(**overrides: Any) -> Settings:
    """Read the environment. Raises Misconfigured with a sentence for each wrong setting."""
    try:
        return Settings(**overrides)
    except ValidationError as error:
        lines = [
            f"{_located_variable(problem['loc'])}: {problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors()
        ]
        raise Misconfigured("Nothing was started: " + "; ".join(lines) + ".") from None


def variable_name(field: str) -> str:
    """The environment variable of a field of the settings."""
    name = field.upper()
    return name if name in {"DATABASE_URL", "REDIS_URL", "SETTINGS"} else f"WHETSTONE_{name.removeprefix('WHETSTONE_')}"


def _located_variable(location: tuple[int | str, ...]) -> str:
    return variable_name(str(location[0]) if location else "settings")
