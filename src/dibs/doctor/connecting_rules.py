"""Rules about servers that could not be asked: name, network, TLS, password."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from .facts import Asked, Facts, Failure, ServerFacts
from .finding import Finding, Severity


class _Case(NamedTuple):
    """What a failure is called, and what to do. `{address}` and others are filled in.

    See `_filling` for the URLs: of the same kind as that which was asked, with its TLS.
    """

    seen: str
    why: str
    fix: str
    commands: tuple[str, ...] = ()
    severity: Severity = "error"


_OUTAGE = "For dibs this is an outage: callers proceed unguarded, or get Unavailable."
_USAGE = "dibs raises a UsageError at the first call."
CASES: dict[str, _Case] = {
    "dns": _Case(
        "The host name '{host}' cannot be resolved.",
        _OUTAGE,
        "Correct the host name in the URL, or use an IP address.",
    ),
    "refused": _Case(
        "Nobody listens at {address}: the connection was refused.",
        _OUTAGE,
        "Start the server, or correct host and port in the URL. A server that listens only on"
        " 127.0.0.1 needs `bind` in its configuration.",
    ),
    "socket": _Case(
        "The Unix socket {address} cannot be used.",
        _OUTAGE,
        "Start the server with `unixsocket {address}` in its configuration, or correct the path in"
        " the URL. If permission is denied: `unixsocketperm 770`, and the user of this program in"
        " the group of the server.",
    ),
    "unreachable": _Case(
        "No TCP connection to {address}.",
        _OUTAGE,
        "Correct host and port in the URL, or open the port in the firewall or security group.",
    ),
    "silent": _Case(
        "{address} accepts connections and does not answer.",
        _OUTAGE,
        "The server hangs (stopped, swapping, or in a slow command), or a load balancer has no"
        " server behind it. Look at the server's process and log; restart it.",
    ),
    "closed": _Case(
        "{address} closes the connection.",
        _OUTAGE,
        "Is it a Redis or Valkey server? Look at its log. If `protected-mode` is on, it needs a"
        " password or a `bind` address; a proxy may have no server behind it.",
    ),
    "not-redis": _Case(
        "{address} answers, but not as a Redis or Valkey server does.",
        _OUTAGE,
        "Correct the port in the URL: another service listens there.",
    ),
    "proxy-backend": _Case(
        "The proxy at {address} cannot reach its server.",
        _OUTAGE,
        "Start the server behind the proxy, or correct its address in the proxy's configuration.",
    ),
    "embedded": _Case(
        "The embedded server could not be started.",
        "The first call raises Unavailable or UsageError, whatever the policy.",
        "Install it with `pip install 'dibs[embedded]'`, or put a valkey-server on the PATH.",
    ),
    "tls-expired": _Case(
        "The certificate of {address} has expired, or is not valid yet.",
        _USAGE,
        "Renew the certificate of the server; check that the clock of this machine is right.",
    ),
    "tls-host": _Case(
        "The certificate of {address} is for another host name.",
        _USAGE,
        "Use the name that the certificate was made for in the URL{names}, or have one made for"
        " {host}.",
    ),
    "tls-ca": _Case(
        "The certificate of {address} is not trusted.",
        _USAGE,
        "Name the file of its CA in the URL: {option}ssl_ca_certs=/path/to/ca.pem",
    ),
    "tls-client": _Case(
        "{address} does not accept our certificate, or misses one.",
        _USAGE,
        "Pass the one it knows: {option}ssl_certfile=/path/to.pem&ssl_keyfile=/path/to.key",
    ),
    "tls-file": _Case(
        "A file that the URL names for TLS is missing or cannot be read.",
        _USAGE,
        "Correct ssl_ca_certs, ssl_certfile and ssl_keyfile in the URL.",
    ),
    "tls-plain": _Case(
        "The URL asks for TLS, and {address} does not speak it.",
        "For dibs this is an outage (no connection was opened), or a UsageError at the first call.",
        "Use {plain} (without TLS), or the port on which the server speaks TLS.",
    ),
    "tls-required": _Case(
        "{address} speaks TLS only, and the URL asks for none.",
        _OUTAGE,
        "Use {secure}, or the port on which the server speaks without TLS.",
    ),
    "tls-failed": _Case(
        "The TLS handshake with {address} failed.",
        "dibs raises a UsageError at the first call, or this is an outage.",
        "Compare the TLS versions and ciphers of both sides: tls-protocols, tls-ciphers and"
        " tls-ciphersuites on the server, ssl_ciphers in the URL; the reason is above.",
    ),
    "auth-missing": _Case(
        "{address} asks for a password.",
        _USAGE,
        "Put it into the URL: {scheme}://:PASSWORD@{place}, with a user {scheme}://USER:PASSWORD@…;"
        " percent-encode special characters.",
    ),
    "auth-wrong": _Case(
        "{address} refuses the password, or does not know the user {user}.",
        _USAGE,
        "Correct user and password in the URL (percent-encode special characters), or set the"
        " password on the server, as an administrator:",
        ("ACL SETUSER {user} on >PASSWORD",),
    ),
    "auth-unset": _Case(
        "The URL has a password, and {address} has none.",
        _USAGE,
        "Remove the password from the URL, or set it on the server.",
    ),
    "acl-connect": _Case(
        "The user {user} may not run a command that the URL asks for.",
        _USAGE,
        "Remove the database number or client_name from the URL, or allow the commands:",
        ("ACL SETUSER {user} +select +client|setname",),
    ),
    "acl-cluster": _Case(
        "The user {user} may not ask {address} for the slots of the cluster.",
        "dibs cannot find the node of a key.",
        "Allow the command on every node:",
        ("ACL SETUSER {user} +cluster|slots",),
    ),
    "database": _Case(
        "{address} does not have database {database}.",
        _USAGE,
        "Use a smaller number in the URL, or raise `databases` in the server's configuration.",
    ),
    "cluster-database": _Case(
        "The URL names database {database}, and {address} is a node of a cluster.",
        "A cluster has a single database.",
        "Use {cluster}, without a number.",
    ),
    "cluster-disabled": _Case(
        "The URL asks for a cluster, and {address} is a single server.",
        "dibs does not find out which node has a key.",
        "Use {server}.",
    ),
    "max-clients": _Case(
        "{address} has reached its maximum number of clients.",
        _OUTAGE,
        "Close connections, or raise the limit:",
        ("CONFIG SET maxclients 10000",),
    ),
    "loading": _Case(
        "{address} is loading its data.",
        "Until it is done, this is an outage.",
        "Wait; `INFO persistence` says how long (loading_eta_seconds).",
        ("INFO persistence",),
    ),
    "busy": _Case(
        "{address} is busy running a script.",
        "Until it ends, this is an outage.",
        "End the script (a function: FUNCTION KILL). One that has written can only be ended with"
        " SHUTDOWN NOSAVE.",
        ("SCRIPT KILL",),
    ),
    "quota": _Case(
        "{address} answers that a quota of the service is exhausted.",
        _OUTAGE,
        "Raise the quota of the managed service.",
    ),
    "settings": _Case(
        "The settings do not allow a connection to {address}.",
        _USAGE,
        "Correct the URL; the reason is above.",
    ),
}


def failed_servers(facts: Facts) -> Iterator[Finding]:
    """Servers that could not be asked. In a cluster, another rule tells which nodes are lost."""
    failed = [each for each in facts.servers if each.failure and facts.cluster is None]
    for code in dict.fromkeys(each.failure.code for each in failed if each.failure):
        alike = [each for each in failed if each.failure and each.failure.code == code]
        first, rest = alike[0], len(alike) - 1
        name = f"{first.address} (and {rest} more)" if rest else first.address
        assert first.failure is not None
        yield of_failure(first.failure, replace(first, address=name), facts.asked)


def of_failure(failure: Failure, server: ServerFacts, asked: Asked) -> Finding:
    """The finding for a failure of *server*."""
    case = CASES.get(failure.code, CASES["closed"])
    fill = _filling(server, asked, failure.names)
    detail = failure.detail.strip().rstrip(".")
    seen = f"{fill(case.seen).rstrip('.')} ({detail})." if detail else fill(case.seen)
    commands = tuple(fill(command) for command in case.commands)
    return Finding(failure.code, case.severity, seen, fill(case.why), fill(case.fix), commands)


def _filling(server: ServerFacts, asked: Asked, names: tuple[str, ...]) -> Callable[[str], str]:
    values = {
        **_urls(server.address, asked),
        "{address}": server.address,
        "{host}": server.address.rpartition(":")[0].strip("[]"),
        "{user}": server.user or asked.user or "default",
        "{database}": str(asked.database),
        "{names}": f" ({', '.join(names)})" if names else "",
    }

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    return fill


def _urls(address: str, asked: Asked) -> dict[str, str]:
    """What a fix writes in place of the URL that was asked."""
    found = {
        "{server}": asked.server_url(address), "{cluster}": asked.cluster_url(address),
        "{scheme}": "rediss" if asked.tls else "redis", "{place}": address,
        "{plain}": f"redis://{address}", "{secure}": f"rediss://{address}",
        "{option}": "rediss://…?",
    }  # fmt: skip
    if asked.kind in ("cluster", "sentinel"):
        scheme = f"redis+{asked.kind}"
        found |= {
            "{scheme}": scheme, "{place}": "…", "{plain}": f"{scheme}://… without ssl=true",
            "{secure}": f"{scheme}://…?ssl=true", "{option}": f"{scheme}://…?ssl=true&",
        }  # fmt: skip
    return found


RULES = (failed_servers,)
