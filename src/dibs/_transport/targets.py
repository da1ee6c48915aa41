"""From a URL or a client to a place where connections can be opened.

Connecting (TCP, TLS, unix sockets, AUTH, HELLO, SELECT, Sentinel, credential providers) stays
redis-py's business. Its retries and timeouts do not: the budget of a call is ours alone.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

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

# What a client may have been told about faults is not for our connections: see the top.
_OURS: dict[str, Any] = {
    "decode_responses": False,
    "retry": None,
    "retry_on_timeout": False,
    "retry_on_error": [],
    "health_check_interval": 0,
}
# A cluster client mixes the settings of its connections with its own; these are the former.
_LENT = frozenset(
    (
        "username", "password", "credential_provider", "client_name",
        "socket_keepalive", "socket_keepalive_options",
    )
)  # fmt: skip
_NOT_FOR_US = (
    "maint_notifications_config",
    "maint_notifications_pool_handler",
    "oss_cluster_maint_notifications_handler",
)


@dataclass(frozen=True, repr=False)
class Place:
    """One server: makes connections that are not yet connected."""

    connection_class: type[Any]
    options: dict[str, Any]
    pool: Any = None
    """Kept alive because some connections point to their pool weakly."""
    ours: tuple[Any, ...] = ()
    """Clients that we made to find the place; closed when the link is."""

    def __repr__(self) -> str:
        options = self.options
        address = f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        return f"{options.get('path') or address}/{options.get('db', 0)}"

    def connection(self, limit: float | None, protocol: int, *, plain: bool = False) -> Any:
        """A redis-py connection. *limit*: the most that each step of its handshake may take.

        *plain*: without a name, because a proxy may not know CLIENT.
        """
        ours = {"socket_timeout": limit, "socket_connect_timeout": limit, "protocol": protocol}
        made = self.connection_class(**{**self.options, **_OURS, **ours})
        if plain:
            for name in ("client_name", "driver_info", "lib_name", "lib_version"):
                if hasattr(made, name):
                    setattr(made, name, None)
        return made


@dataclass(frozen=True, repr=False)
class Embedded:
    """A Valkey of our own: private, or shared by all who name the folder."""

    folder: str | None

    def __repr__(self) -> str:
        return f"embedded {self.folder or ''}".rstrip()


@dataclass(frozen=True, repr=False)
class Cluster:
    """Many servers, one slot map. `seeds` are where to ask for it."""

    seeds: tuple[tuple[str, int], ...]
    place: Place
    """How to connect; host and port are replaced for each node."""

    def __repr__(self) -> str:
        return "cluster " + ",".join(f"{host}:{port}" for host, port in self.seeds)

    def node(self, host: str, port: int) -> Place:
        """The place of one node."""
        options = {**self.place.options, "host": host, "port": port}
        return Place(self.place.connection_class, options)


@dataclass(frozen=True, repr=False)
class Service:
    """The master of a Sentinel service, whichever server that is."""

    name: str
    sentinels: tuple[Place, ...]
    """Where to ask who the master is, with credentials and TLS of the sentinels' own."""
    place: Place
    """How to connect to the master; its address is replaced."""
    forced_host: str | None = None
    """In place of the host that sentinels name (redis-py's `force_master_ip`)."""

    def __repr__(self) -> str:
        return f"service {self.name}"


Target = Place | Embedded | Cluster | Service


def find(target: object, redis: ModuleType) -> Target:
    """Where *target* is. *redis*: `redis` or `redis.asyncio`. UsageError: nowhere we know."""
    if isinstance(target, str):
        return _from_url(target, redis)
    if hasattr(target, "nodes_manager"):
        return _from_cluster_client(target, redis)
    if hasattr(target, "connection_pool"):
        pool = _pool_of(target, redis)
        is_sentinel = hasattr(pool, "sentinel_manager")
        return _from_sentinel_client(pool, redis) if is_sentinel else _place(pool)
    raise UsageError(f"a target is a URL or a redis-py client, not {type(target).__name__}")


def place_of(url: str, redis: ModuleType) -> Place:
    """The place that a redis-py URL names. UsageError: redis-py cannot read it."""
    try:
        pool = redis.ConnectionPool.from_url(url)
    except (ValueError, TypeError) as error:
        raise UsageError(f"redis-py cannot read the target URL: {error}") from None
    return _place(pool)


def _from_url(url: str, redis: ModuleType) -> Target:
    scheme, mark, rest = url.partition("://")
    if mark and scheme in _SCHEMES:
        return place_of(f"{_SCHEMES[scheme]}://{rest}", redis)
    if mark and scheme == "embedded":
        return Embedded(unquote(rest.rstrip("/")) or None)
    if mark and scheme == "redis+sentinel":
        return _from_sentinel_url(rest, redis)
    if mark and scheme == "redis+cluster":
        return _from_cluster_url(rest, redis)
    raise UsageError(f"unknown target scheme {scheme if mark else url[:12]!r}; known: {_KNOWN}")


def _pool_of(client: Any, redis: ModuleType) -> Any:
    """The pool of a client that the caller has: read for its settings, never used or closed."""
    pool = client.connection_pool
    is_async = hasattr(pool.connection_class, "_connect") and _is_coroutine(pool.connection_class)
    if is_async != redis.__name__.endswith("asyncio"):
        wanted = "redis.asyncio.Redis" if redis.__name__.endswith("asyncio") else "redis.Redis"
        raise UsageError(f"this needs a {wanted} (or a URL), not a {type(client).__module__} one")
    return pool


def _is_coroutine(connection_class: type[Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(connection_class.connect)


def _place(pool: Any) -> Place:
    options = {k: v for k, v in pool.connection_kwargs.items() if k not in _NOT_FOR_US}
    return Place(pool.connection_class, options, pool)


# ---- Sentinel

_SENTINEL_OPENS, _SENTINEL_ANSWERS = 1.0, 0.3
"""The most that connecting to a sentinel (TLS included), and each of its answers, may take."""


def _from_sentinel_url(rest: str, redis: ModuleType) -> Service:
    """`user:pw@h:p,h:p/service/db?options`: the master of *service*, asked from any sentinel.

    Options that begin with `sentinel_` are for the connections to the sentinels.
    """
    credentials, hosts, path, query = _split(rest)
    service, _, db = path.strip("/").partition("/")
    if not service:
        raise UsageError("a sentinel URL names its service: redis+sentinel://host:26379/mymaster/0")
    for_master, for_sentinels = _split_options(query)
    scheme = "rediss" if _wants_tls(for_master) else "redis"
    place = _checked(
        place_of(f"{scheme}://{credentials}x:1/{db or '0'}{_query(for_master)}", redis)
    )
    scheme = "rediss" if _wants_tls(for_sentinels) else "redis"
    template = _checked(place_of(f"{scheme}://x:1{_query(for_sentinels)}", redis))
    sentinels = [_sentinel(template, host, port or 26379) for host, port in hosts]
    return Service(service, tuple(sentinels), place)


def _split_options(query: str) -> tuple[dict[str, str], dict[str, str]]:
    """Those for the master, and those for the sentinels."""
    options = dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True))
    mark = "sentinel_"
    for_sentinels = {
        name.removeprefix(mark): value for name, value in options.items() if name.startswith(mark)
    }
    return {k: v for k, v in options.items() if not k.startswith(mark)}, for_sentinels


def _wants_tls(options: dict[str, str]) -> bool:
    """`ssl=true`, which is taken out: redis-py knows it by the scheme."""
    value = options.pop("ssl", "false").lower()
    if value not in ("true", "false", "1", "0", "yes", "no"):
        raise UsageError(f"ssl in a target URL is true or false, not {value!r}")
    return value in ("true", "1", "yes")


def _query(options: dict[str, str]) -> str:
    return f"?{urlencode(options)}" if options else ""


def _checked(place: Place) -> Place:
    """*place*. UsageError: its options are not those of a connection."""
    try:
        place.connection(None, 3)
    except (TypeError, ValueError) as error:
        words = str(error).rpartition("__init__() ")[2]
        raise UsageError(f"redis-py cannot use the options of the target URL: {words}") from None
    return place


def _sentinel(template: Place, host: str, port: int) -> Place:
    limits = {"socket_timeout": _SENTINEL_ANSWERS, "socket_connect_timeout": _SENTINEL_OPENS}
    options = {**template.options, **_OURS, **limits, "host": host, "port": port, "db": 0}
    return Place(template.connection_class, options)


def _from_sentinel_client(pool: Any, redis: ModuleType) -> Service:
    """`Sentinel(…).master_for(…)`: its sentinels and settings; none of its clients is used."""
    if not pool.is_master:
        raise UsageError("leases live on the master: pass master_for(…), not slave_for(…)")
    manager = pool.sentinel_manager
    sentinels: list[Place] = []
    for client in manager.sentinels:
        template = _place(client.connection_pool)
        options = template.options
        sentinels.append(_sentinel(template, options["host"], int(options["port"])))
    is_tls = any("SSL" in base.__name__ for base in pool.connection_class.__mro__)
    options = {k: v for k, v in _place(pool).options.items() if k not in _FOUND_BY_SENTINEL}
    place = Place(redis.SSLConnection if is_tls else redis.Connection, options)
    forced = getattr(manager, "_force_master_ip", None)
    return Service(pool.service_name, tuple(sentinels), place, forced)


_FOUND_BY_SENTINEL = ("host", "port", "connection_pool")


# ---- Cluster


def _from_cluster_url(rest: str, redis: ModuleType) -> Cluster:
    """`user:pw@h:p,h:p?options`: any node tells where the others are."""
    credentials, hosts, path, query = _split(rest)
    if path.strip("/") not in ("", "0"):
        raise UsageError("a cluster has one database; leave out the path of the target URL")
    options = dict(parse_qsl(query.removeprefix("?"), keep_blank_values=True))
    scheme = "rediss" if _wants_tls(options) else "redis"
    place = _checked(place_of(f"{scheme}://{credentials}x:1/0{_query(options)}", redis))
    return Cluster(tuple((host, port or 6379) for host, port in hosts), place)


def _from_cluster_client(client: Any, redis: ModuleType) -> Cluster:
    manager = client.nodes_manager
    settings = getattr(client, "connection_kwargs", None) or manager.connection_kwargs
    lent = {k: v for k, v in settings.items() if k in _LENT or k.startswith("ssl_")}
    wants_tls = "SSL" in getattr(settings.get("connection_class"), "__name__", "")
    scheme = "rediss" if wants_tls or settings.get("ssl") else "redis"
    place = place_of(f"{scheme}://x:1/0", redis)
    nodes = [(str(node.host), int(node.port)) for node in manager.startup_nodes.values()]
    return Cluster(tuple(nodes), Place(place.connection_class, {**place.options, **lent}))


def _split(rest: str) -> tuple[str, list[tuple[str, int | None]], str, str]:
    """Credentials (with @), hosts, path and query (with ?) of a URL with several hosts."""
    parts = urlsplit(f"x://{rest}")
    credentials, at, listed = parts.netloc.rpartition("@")
    hosts: list[tuple[str, int | None]] = []
    for item in listed.split(","):
        # `[::1]` is a host without a port, `[::1]:7000` one with.
        host, colon, port = ("", "", "") if item.endswith("]") else item.rpartition(":")
        if colon and not port.isdigit():
            raise UsageError(f"{item!r} is not host:port")
        hosts.append(((host if colon else item).strip("[]"), int(port) if colon else None))
    if not all(host for host, _ in hosts):
        raise UsageError("the target URL names no host")
    return credentials + at, hosts, parts.path, f"?{parts.query}" if parts.query else ""
