"""The rules of the house, as tables. Change them here, with a reason; the allow-list only ever shrinks."""

from __future__ import annotations

import sys

# ---- sizes -------------------------------------------------------------------------------------------------------

FUNCTION_LINES = 40  # without signature and docstring: what a reader sees at once
FILE_LINES = 400
ADAPTER_LINES = 150  # adapters translate and decide nothing
PARAMETERS = 7  # without self and cls

# What is over a limit today: "check path[:function]" -> its measure. An entry may not grow, must follow
# when the code shrinks, and must go when it is no longer needed.
ALLOWED: dict[str, int] = {}

# ---- rooms -------------------------------------------------------------------------------------------------------

# A room is a folder or file directly in src/oncekey. It imports its own floor and those below, never above,
# and no two rooms import each other. A new room gets its place here.
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"errors"}),
    frozenset({"core"}),
    frozenset({"stores"}),
    frozenset({"engine", "http", "operations", "effects", "reconcile", "client", "telemetry"}),
    frozenset({"adapters", "cli", "console", "demo", "once", "__main__"}),
    frozenset({"__init__"}),  # the public names, from wherever they live
)

# The shipped test tools stand beside the floors: they use everything but the skins, and only users import them.
TESTING = "testing"
TESTING_AVOIDS = frozenset({"adapters", "cli", "console", "demo", "once", "__main__", "__init__"})

# ---- imports -----------------------------------------------------------------------------------------------------

STANDARD_LIBRARY = frozenset(sys.stdlib_module_names)

# core decides and does nothing else: no I/O, no clock, no randomness, no waiting.
FORBIDDEN_IN_CORE = frozenset(
    {"asyncio", "concurrent", "http", "os", "pathlib", "queue", "random", "secrets", "select", "selectors", "shutil"}
    | {"signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time"}
)

# Where records are compressed and encrypted.
CODECS = ("engine/sealing",)

# Third-party package -> the only places (path prefixes in src/oncekey) that may import it.
HOMES: dict[str, tuple[str, ...]] = {
    "orjson": ("",),
    "psycopg": ("stores/postgres", "effects/"),  # effects run on the caller's own connection
    "psycopg_pool": ("stores/postgres", "effects/"),
    "redis": ("stores/redis", "effects/brokers/"),  # its streams are a broker
    "hiredis": ("stores/redis",),
    "rich": ("cli/", "demo/"),
    "uvicorn": ("demo/", "cli/"),
    "jinja2": ("console/", "demo/"),
    "opentelemetry": ("telemetry/",),
    "sqlalchemy": ("effects/",),
    "django": ("effects/", "adapters/"),
    "fastapi": ("adapters/",),
    "flask": ("adapters/",),
    "httpx": ("client/", "effects/"),
    "requests": ("client/", "effects/"),
    "aiohttp": ("client/", "effects/"),
    "urllib3": ("client/",),
    "confluent_kafka": ("effects/brokers/",),
    "aiokafka": ("effects/brokers/",),
    "aio_pika": ("effects/brokers/",),
    "nats": ("effects/brokers/",),
    "boto3": ("effects/brokers/",),
    "botocore": ("effects/brokers/",),
    "celery": ("effects/brokers/",),
    "kombu": ("effects/brokers/",),  # Celery's own transport and spelling
    "faststream": ("effects/brokers/",),
    "pytest": ("testing/",),
    "hypothesis": ("testing/",),
    "cryptography": CODECS,
    "zstandard": CODECS,
}
# core may use one package, behind one door.
CORE_HOMES: dict[str, tuple[str, ...]] = {"orjson": ("core/jcs.py",)}

# What a bare `import oncekey` may load beside the standard library: ourselves and the base dependency.
BARE = frozenset({"oncekey", "orjson"})

# Modules that only some places may use, and why.
RESTRICTED: dict[str, tuple[str, ...]] = {
    "random": (
        "client/",
        "demo/",
        "effects/outbox/",
        "reconcile/",
    ),  # back-off may be predictable; tokens and ids may not: they use `secrets`
    "pickle": (),  # reading a pickle runs code
    "marshal": (),  # as pickle
    "shelve": (),  # as pickle
    "dill": (),  # as pickle
    "cloudpickle": (),  # as pickle
}
