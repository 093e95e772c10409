"""What a server says of itself (INFO), and whether records are safe there. Pure."""

from __future__ import annotations

from oncekey.stores.contract import Finding
from oncekey.stores.redis.trouble import refused

OLDEST = (6, 2)
Info = dict[str, str]


def read(info: bytes) -> Info:
    """The lines of INFO as a dictionary."""
    lines = info.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def no_info(error: Exception) -> Finding:
    """The server does not say."""
    return Finding(
        "warning",
        f"Redis does not tell its settings, so eviction and persistence are not checked: {refused(error)}",
        "allow the user INFO, or make sure of maxmemory-policy noeviction and appendonly yes yourself",
    )


def name(info: Info) -> str:
    """Engine and version, as people say it."""
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of unknown version')}"


def figures(info: Info) -> dict[str, int | str]:
    """What is worth showing beside the counts."""
    return {
        "server": name(info),
        "memory": int(info.get("used_memory", 0)),
        "memory_limit": int(info.get("maxmemory", 0)),
        "evicted": int(info.get("evicted_keys", 0)),
        "persistence": _persistence(info),
    }


def _persistence(info: Info) -> str:
    return "append-only file" if info.get("aof_enabled") == "1" else "snapshots at most"


def findings(info: Info, settings: dict[str, str]) -> list[Finding]:
    """What stops the start, what is said aloud, and what is well."""
    checks = (
        _version(info),
        _role(info),
        _cluster(info),
        _eviction(info),
        _durability(info, settings),
        _failover(info),
    )
    return [finding for finding in checks if finding is not None]


def _version(info: Info) -> Finding:
    said = info.get("redis_version", "0")
    numbers = tuple(int(part) if part.isdigit() else 0 for part in said.split(".")[:2])
    if numbers < OLDEST:
        return Finding("refusal", f"{name(info)} is too old", "use Redis 6.2 or later, or Valkey")
    return Finding("ok", name(info))


def _role(info: Info) -> Finding | None:
    if info.get("role", "master") == "master":
        return None
    return Finding(
        "refusal",
        "this server is a replica: it lags behind its primary and refuses writes",
        "let store= name the primary",
    )


def _cluster(info: Info) -> Finding | None:
    if info.get("cluster_enabled") != "1":
        return None
    return Finding(
        "refusal",
        "this server is a node of a Redis Cluster, which redis:// does not follow from node to node",
        "let store= name a standalone server",
    )


def _eviction(info: Info) -> Finding:
    policy = info.get("maxmemory_policy", "unknown")
    if policy == "noeviction":
        return Finding("ok", "maxmemory-policy is noeviction: no record is evicted")
    return Finding(
        "refusal",
        f"maxmemory-policy is {policy}: under memory pressure Redis forgets records, and their operations run again",
        "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; or use a server of OnceKey's own",
    )


def _durability(info: Info, settings: dict[str, str]) -> Finding:
    if info.get("aof_enabled") != "1":
        return Finding(
            "warning",
            "the append-only file is off: a restart of Redis forgets what was claimed and answered since its last "
            "snapshot, if there is one, and those operations run again",
            "CONFIG SET appendonly yes, and the same in redis.conf",
        )
    fsync = settings.get("appendfsync")
    if fsync == "no":
        return Finding(
            "warning",
            "appendfsync is no: a power loss forgets what the system had not written yet",
            "CONFIG SET appendfsync everysec, or always where no acknowledged claim may be lost",
        )
    if fsync == "everysec":
        return Finding(
            "ok",
            "the append-only file is synced every second: a crash of Redis loses nothing, a power loss up to a second",
            "CONFIG SET appendfsync always closes that gap",
        )
    return Finding("ok", "the append-only file is on" + (", and synced on every write" if fsync == "always" else ""))


def _failover(info: Info) -> Finding | None:
    if int(info.get("connected_slaves", 0)) == 0:
        return None
    return Finding(
        "warning",
        "replication is asynchronous: a failover may lose what the primary had acknowledged just before, and those "
        "operations run again",
        "min-replicas-to-write and min-replicas-max-lag narrow the gap; PostgreSQL with a synchronous standby has none",
    )
