"""From a URL or a redis-py client to addresses where connections can be opened.

redis-py opens the connections (TCP, TLS, unix sockets, AUTH, HELLO, SELECT, Sentinel, credential
providers). Its retries and timeouts are switched off: the budget of a call limits its time.
"""

import re
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

from redis.exceptions import RedisError

from ..errors import UsageError

_SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "unix": "unix",
    "valkey": "redis",
    "valkeys": "rediss",
}
_KNOWN = (
    "redis:// rediss:// unix:// valkey:// valkeys:// redis+sentinel:// redis+cluster:// embedded://"
)

# These options of a URL or a client are overridden: see above.
_OVERRIDES: dict[str, Any] = {
    "decode_responses": False,
    "retry": None,
    "retry_on_timeout": False,
    "retry_on_error": [],
    "health_check_interval": 0,
}
# A cluster client mixes the options of its connections with its own; these are for connections.
_FOR_CONNECTIONS = frozenset(
    (
        "username", "password", "credential_provider", "client_name",
        "socket_keepalive", "socket_keepalive_options",
    )
)  # fmt: skip
_IGNORED = (
    "maint_notifications_config",
    "maint_notifications_pool_handler",
    "oss_cluster_maint_notifications_handler",
)


@dataclass(frozen=True, repr=False)
class Address:
    """One server, and the options of connections to it."""

    connection_class: type[Any]
    options: dict[str, Any]
    pool: Any = None
    """Kept alive because some connections point to their pool weakly."""

    def __repr__(self) -> str:
        options = self.options
        host = str(options.get("host", "localhost"))
        address = f"{f'[{host}]' if ':' in host else host}:{options.get('port', 6379)}"
        return f"{options.get('path') or address}/{options.get('db', 0)}"

    @property
    def protocol(self) -> int:
        """The highest version of RESP to use: 3, unless the URL says `protocol=2`."""
        return int(self.options.get("protocol", 3))

    def connection(self, limit: float | None, protocol: int, *, plain: bool = False) -> Any:
        """Return a redis-py connection that is not connected yet.

        *limit*: the seconds that each step of its handshake may take. *plain*: it does not set a
        client name, because a proxy may not know the command CLIENT.
        """
        call = {"socket_timeout": limit, "socket_connect_timeout": limit, "protocol": protocol}
        connection = self.connection_class(**{**self.options, **_OVERRIDES, **call})
        if plain:
            for name in ("client_name", "driver_info", "lib_name", "lib_version"):
                if hasattr(connection, name):
                    setattr(connection, name, None)
        return connection


@dataclass(frozen=True, repr=False)
class Embedded:
    """A server that dibs starts: private, or shared by all processes that name the folder."""

    folder: str | None

    def __repr__(self) -> str:
        return f"embedded {self.folder or ''}".rstrip()


@dataclass(frozen=True, repr=False)
class Cluster:
    """A cluster. `seeds` are nodes that are asked for its slot map."""

    seeds: tuple[tuple[str, int], ...]
    template: Address
    """How to connect; host and port are replaced for each node."""

    def __repr__(self) -> str:
        return "cluster " + ",".join(f"{host}:{port}" for host, port in self.seeds)

    def node(self, host: str, port: int) -> Address:
        """Return the address of one node."""
        options = {**self.template.options, "host": host, "port": port}
        return Address(self.template.connection_class, options)


@dataclass(frozen=True, repr=False)
class SentinelService:
    """The master of a Sentinel service, whichever server that is."""

    name: str
    sentinels: tuple[Address, ...]
    """Where to ask who the master is, with their own credentials and TLS options."""
    template: Address
    """How to connect to the master; host and port are replaced."""
    forced_host: str | None = None
    """Used instead of the host that sentinels name (redis-py's `force_master_ip`)."""

    def __repr__(self) -> str:
        return f"service {self.name}"


Target = Address | Embedded | Cluster | SentinelService


def parse_target(target: object, redis: ModuleType) -> Target:
    """Return what a URL or a client stands for. *redis*: `redis` or `redis.asyncio`.

    UsageError: it is neither, or its options cannot be used.
    """
    if isinstance(target, str):
        return _from_url(target, redis)
    if hasattr(target, "nodes_manager"):
        return _from_cluster_client(target, redis)
    if hasattr(target, "connection_pool"):
        pool = _pool_of(target, redis)
        is_sentinel = hasattr(pool, "sentinel_manager")
        return _from_sentinel_client(pool, redis) if is_sentinel else _from_client(pool)
    raise UsageError(f"target must be a URL or a redis-py client, not {type(target).__name__}")


def parse_address(url: str, redis: ModuleType) -> Address:
    """Return the address in a URL of redis-py. Raises UsageError if redis-py cannot read it."""
    _check_parts(url)
    try:
        pool = redis.ConnectionPool.from_url(url)
    except (ValueError, TypeError) as error:
        raise UsageError(f"redis-py cannot read the target URL: {_why_not(error)}") from None
    protocol = pool.connection_kwargs.get("protocol", 3)
    if str(protocol) not in ("2", "3"):
        raise UsageError(f"protocol in a target URL must be 2 or 3, not {protocol!r}")
    return _address_of_pool(pool)


def _check_parts(url: str) -> None:
    """UsageError: redis-py would take another port, database or socket than the URL says."""
    parts = urlsplit(url)
    if parts.scheme == "unix":
        host = parts.netloc.rpartition("@")[2]
        if host not in ("", "localhost") or not parts.path.strip("/"):
            raise UsageError("the target URL of a Unix socket is unix:///path/to/redis.sock")
    elif _PORT_ZERO.search(parts.netloc):
        raise UsageError("the port in the target URL must be a number from 1 to 65535, not 0")
    query = parse_qs(parts.query)
    given = unquote(parts.path).strip("/") if parts.scheme != "unix" else ""
    database = query["db"][0] if "db" in query else given or "0"
    if not (database.isascii() and database.isdigit()):
        raise UsageError(f"the database in the target URL must be a number, not {database!r}")


_PORT_ZERO = re.compile(r":0+$")


def _why_not(error: Exception) -> str:
    """Return what is wrong with a URL. What cannot be read may be a part of the password."""
    if "Port " in str(error):
        return f"its port is not a number from 1 to 65535; {_ESCAPES}"
    return str(error) if _NAMES_AN_OPTION.fullmatch(str(error)) else f"check it; {_ESCAPES}"


_ESCAPES = "a password is written with %2F in place of /, %3F of ?, %23 of #, %40 of @"
_NAMES_AN_OPTION = re.compile(r"Invalid value for '\w+' in connection URL\.?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+]*")


def _from_url(url: str, redis: ModuleType) -> Target:
    scheme, mark, rest = url.partition("://")
    if not mark or _SCHEME.fullmatch(scheme) is None:
        raise UsageError(f"the target URL has no scheme; known: {_KNOWN}")
    if scheme in _SCHEMES:
        _check_password(rest)
        return _checked_address(parse_address(f"{_SCHEMES[scheme]}://{rest}", redis))
    if scheme == "embedded":
        return Embedded(unquote(rest.rstrip("/")) or None)
    if scheme == "redis+sentinel":
        return _from_sentinel_url(rest, redis)
    if scheme == "redis+cluster":
        return _from_cluster_url(rest, redis)
    raise UsageError(f"unknown target scheme {scheme!r}; known: {_KNOWN}")


def _check_password(rest: str) -> None:
    """Raise UsageError if a / or # in the password ends what is read as the host."""
    host, _, others = rest.partition("?")[0].replace("#", "/").partition("/")
    if "@" in others and "@" not in host and host:
        raise UsageError(f"the host of the target URL cannot be read; {_ESCAPES}")


def _pool_of(client: Any, redis: ModuleType) -> Any:
    """Return the pool of a caller's client.

    Only its options are read; it is not used and not closed.
    """
    pool = client.connection_pool
    is_async = hasattr(pool.connection_class, "_connect") and _is_coroutine(pool.connection_class)
    if is_async != redis.__name__.endswith("asyncio"):
        wanted = "redis.asyncio.Redis" if redis.__name__.endswith("asyncio") else "redis.Redis"
        raise UsageError(f"this needs a {wanted} (or a URL), not a {type(client).__module__} one")
    return pool


def _is_coroutine(connection_class: type[Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(connection_class.connect)


def _from_client(pool: Any) -> Address:
    # Some versions of redis-py set a protocol that the caller has not asked for.
    address = _address_of_pool(pool)
    options = {k: v for k, v in address.options.items() if k != "protocol"}
    return Address(address.connection_class, options, pool)


def _address_of_pool(pool: Any) -> Address:
    options = {k: v for k, v in pool.connection_kwargs.items() if k not in _IGNORED}
    return Address(pool.connection_class, options, pool)


# ---- Sentinel

_SENTINEL_OPENS, _SENTINEL_ANSWERS = 1.0, 0.3
"""Seconds that connecting to a sentinel (TLS included), and each of its replies, may take."""


def _from_sentinel_url(rest: str, redis: ModuleType) -> SentinelService:
    """`user:pw@h:p,h:p/service/db?options`: the master of *service*, asked from any sentinel.

    Options that begin with `sentinel_` are for the connections to the sentinels.
    """
    credentials, hosts, path, query = _split_url(rest)
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise UsageError(
            "a Sentinel URL needs the name of a service: redis+sentinel://host:26379/mymaster/0"
        )
    for_master, for_sentinels = _split_options(query)
    scheme = "rediss" if _wants_tls(for_master) else "redis"
    address = _checked_address(
        parse_address(f"{scheme}://{credentials}x:1/{db or '0'}{_query_text(for_master)}", redis)
    )
    scheme = "rediss" if _wants_tls(for_sentinels) else "redis"
    template = _checked_address(parse_address(f"{scheme}://x:1{_query_text(for_sentinels)}", redis))
    sentinels = [_sentinel_address(template, host, port or 26379) for host, port in hosts]
    return SentinelService(service, tuple(sentinels), address)


def _split_options(query: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options for the master, and those for the sentinels."""
    options = dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True))
    prefix = "sentinel_"
    for_sentinels = {
        name.removeprefix(prefix): value
        for name, value in options.items()
        if name.startswith(prefix)
    }
    return {k: v for k, v in options.items() if not k.startswith(prefix)}, for_sentinels


def _wants_tls(options: dict[str, str]) -> bool:
    """Remove `ssl` and return its value: redis-py has a scheme for it instead."""
    value = options.pop("ssl", "false").lower()
    if value not in ("true", "false", "1", "0", "yes", "no"):
        raise UsageError(f"ssl in a target URL must be true or false, not {value!r}")
    return value in ("true", "1", "yes")


def _query_text(options: dict[str, str]) -> str:
    return f"?{urlencode(options)}" if options else ""


def _checked_address(address: Address) -> Address:
    """Return *address*. Raises UsageError if redis-py does not know its options."""
    try:
        address.connection(None, 3)
    except (TypeError, ValueError, RedisError) as error:
        why = str(error).rpartition("__init__() ")[2]
        raise UsageError(f"redis-py cannot use the options of the target URL: {why}") from None
    return address


def _sentinel_address(template: Address, host: str, port: int) -> Address:
    limits = {"socket_timeout": _SENTINEL_ANSWERS, "socket_connect_timeout": _SENTINEL_OPENS}
    options = {**template.options, **_OVERRIDES, **limits, "host": host, "port": port, "db": 0}
    return Address(template.connection_class, options)


def _from_sentinel_client(pool: Any, redis: ModuleType) -> SentinelService:
    """`Sentinel(…).master_for(…)`: its sentinels and options; its clients are not used."""
    if not pool.is_master:
        raise UsageError("leases need the master: pass master_for(…), not slave_for(…)")
    manager = pool.sentinel_manager
    sentinels: list[Address] = []
    for client in manager.sentinels:
        template = _address_of_pool(client.connection_pool)
        options = template.options
        sentinels.append(_sentinel_address(template, options["host"], int(options["port"])))
    is_tls = any("SSL" in base.__name__ for base in pool.connection_class.__mro__)
    options = {k: v for k, v in _address_of_pool(pool).options.items() if k not in _NOT_OF_MASTER}
    address = Address(redis.SSLConnection if is_tls else redis.Connection, options)
    forced = getattr(manager, "_force_master_ip", None)
    return SentinelService(pool.service_name, tuple(sentinels), address, forced)


_NOT_OF_MASTER = ("host", "port", "connection_pool", "protocol")


# ---- Cluster


def _from_cluster_url(rest: str, redis: ModuleType) -> Cluster:
    """`user:pw@h:p,h:p?options`: any node knows where the others are."""
    credentials, hosts, path, query = _split_url(rest)
    if path.strip("/") not in ("", "0"):
        raise UsageError("a cluster has a single database; remove the path from the target URL")
    options = dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True))
    if options.pop("db", "0") not in ("", "0"):
        raise UsageError("a cluster has a single database; remove db from the target URL")
    scheme = "rediss" if _wants_tls(options) else "redis"
    address = _checked_address(
        parse_address(f"{scheme}://{credentials}x:1/0{_query_text(options)}", redis)
    )
    return Cluster(tuple((host, port or 6379) for host, port in hosts), address)


def _from_cluster_client(client: Any, redis: ModuleType) -> Cluster:
    manager = client.nodes_manager
    settings = getattr(client, "connection_kwargs", None) or manager.connection_kwargs
    options = {k: v for k, v in settings.items() if k in _FOR_CONNECTIONS or k.startswith("ssl_")}
    wants_tls = "SSL" in getattr(settings.get("connection_class"), "__name__", "")
    scheme = "rediss" if wants_tls or settings.get("ssl") else "redis"
    address = parse_address(f"{scheme}://x:1/0", redis)
    nodes = [(str(node.host), int(node.port)) for node in manager.startup_nodes.values()]
    return Cluster(tuple(nodes), Address(address.connection_class, {**address.options, **options}))


def _split_url(rest: str) -> tuple[str, list[tuple[str, int | None]], str, str]:
    """Return credentials (with @), hosts, path and query (with ?) of a URL with several hosts."""
    _check_password(rest)
    parts = urlsplit(f"x://{rest}")
    credentials, at, listed = parts.netloc.rpartition("@")
    hosts: list[tuple[str, int | None]] = []
    for item in listed.split(","):
        # `[::1]` is a host without a port, `[::1]:7000` one with.
        host, colon, port = ("", "", "") if item.endswith("]") else item.rpartition(":")
        if colon and not (port.isdigit() and 0 < int(port) < 65536):
            raise UsageError(f"a host of the target URL is not host:port; {_ESCAPES}")
        hosts.append(((host if colon else item).strip("[]"), int(port) if colon else None))
    if not all(host for host, _ in hosts):
        raise UsageError("the target URL has no host")
    return credentials + at, hosts, parts.path, f"?{parts.query}" if parts.query else ""
