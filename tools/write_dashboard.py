"""Write deploy/dashboard.json, a Grafana dashboard of the metrics of PrometheusListener.

    python tools/write_dashboard.py            write it: `make generate`
    python tools/write_dashboard.py --check    exit 1 if it is not as written

The panels are declared here. A metric or label that the listener does not have is an error of the
tests, and so is a metric that no panel shows.
"""

import json
import sys
from logging import WARNING
from pathlib import Path
from typing import Any, NamedTuple

from dibs.events import MEASURES

FILE = Path(__file__).parents[1] / "deploy/dashboard.json"
COLUMNS = 24
HEIGHT = 8
CHOSEN = 'job=~"$job", name=~"$name"'
"""What the variables at the top of the dashboard choose; of metrics that have a name."""
OF_JOB = 'job=~"$job"'
SPAN = "$__rate_interval"
WARNINGS = "|".join(kind for kind, measure in MEASURES.items() if measure.level == WARNING)
"""Events that need attention."""


class Query(NamedTuple):
    """One expression of PromQL, and what its series are called."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """One graph. *width*: of 24 columns."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    width: int = 8
    kind: str = "timeseries"


class Row(NamedTuple):
    """A heading, and the panels below it."""

    title: str
    panels: tuple[Panel, ...]


def rate(metric: str, by: str, matchers: str = CHOSEN) -> str:
    """How often per second, for each value of the labels *by*."""
    return f"sum by ({by}) (rate({metric}{{{matchers}}}[{SPAN}]))"


def share(metric: str, part: str) -> str:
    """Which part of all, by name: *part* is a matcher."""
    return f"{rate(metric, 'name', f'{CHOSEN}, {part}')} / {rate(metric, 'name')}"


def quantiles(metric: str) -> tuple[Query, ...]:
    """Median and 95th percentile of a histogram, by name."""
    inner = rate(f"{metric}_bucket", "le, name")
    return tuple(
        [
            Query(f"histogram_quantile({part}, {inner})", f"{{{{name}}}} {title}")
            for part, title in (("0.5", "p50"), ("0.95", "p95"))
        ]
    )


ROWS = (
    Row("Redis", (
        Panel("Unavailable", "1 while Redis is unavailable to an instance.", "bool_yes_no", (
            Query(f"sum by (instance) (dibs_outage{{{OF_JOB}}})", "{{instance}}"),
        ), 6),
        Panel("Outage time", "Seconds of past outages, within an hour.", "s", (
            Query(f"sum by (instance) (increase(dibs_outage_seconds_total{{{OF_JOB}}}[1h]))",
                  "{{instance}}"),
        ), 6),
        Panel("Unguarded", "Granted although Redis was unavailable: it excludes none.", "ops", (
            Query(rate("dibs_unguarded_total", "name"), "{{name}}"),
        ), 6),
        Panel("Refused", "Refused while Redis was unavailable, as the policy says.", "ops", (
            Query(rate("dibs_refused_total", "name"), "{{name}}"),
        ), 6),
    )),
    Row("Leases", (
        Panel("Granted and refused", "", "ops", (
            Query(rate("dibs_events_total", "kind", f'{CHOSEN}, kind=~"acquired|busy"'),
                  "{{kind}}"),
        )),
        Panel("Need attention", "Each event that is logged as a warning.", "ops", (
            Query(rate("dibs_events_total", "name, kind", f'{CHOSEN}, kind=~"{WARNINGS}"'),
                  "{{name}} {{kind}}"),
        )),
        Panel("Time held", "Of leases and claims.", "s", quantiles("dibs_hold_seconds")),
        Panel("Time waited", "Of callers that waited for others.", "s",
              quantiles("dibs_wait_seconds"), 12),
        Panel("All events", "", "ops", (
            Query(rate("dibs_events_total", "kind"), "{{kind}}"),
        ), 12),
    )),
    Row("Claims", (
        Panel("Attempts", "ok, or why not.", "ops", (
            Query(rate("dibs_claims_set_total", "outcome"), "{{outcome}}"),
        )),
        Panel("Duplicates", "Share of all attempts.", "percentunit", (
            Query(share("dibs_claims_set_total", 'outcome="duplicate"'), "{{name}}"),
        )),
        Panel("Ended well", "Share of all claims that ended. Alert: below 95 %.", "percentunit", (
            Query(share("dibs_claims_deleted_total", 'outcome="ok"'), "{{name}}"),
        )),
        Panel("Open", "Alert: more than 1000.", "short", (
            Query(f"sum by (instance) (dibs_open_claims{{{OF_JOB}}})", "{{instance}}"),
        ), 12),
        Panel("Leaked", "By cause, within an hour. Alert: more than 1000.", "short", (
            Query(f"sum by (name, cause) (increase(dibs_claims_leaked_total{{{CHOSEN}}}[1h]))",
                  "{{name}} {{cause}}"),
        ), 12),
    )),
    Row("Cached values", (
        Panel("Hit rate", "", "percentunit", (
            Query(
                rate("dibs_events_total", "name",
                     f'{CHOSEN}, kind=~"hit|local_hit|stale|waited"')
                + " / "
                + rate("dibs_events_total", "name",
                       f'{CHOSEN}, kind=~"hit|local_hit|stale|waited|miss|reelected|degraded"'),
                "{{name}}",
            ),
        )),
        Panel("Loads", "", "ops", (
            Query(rate("dibs_load_seconds_count", "name"), "{{name}}"),
        )),
        Panel("Time of loads", "", "s", quantiles("dibs_load_seconds")),
    )),
    Row("Leaders and schedules", (
        Panel("Leaders", "1 for each election: more is a split.", "short", (
            Query(f"sum by (name) (dibs_leader{{{CHOSEN}}})", "{{name}}"),
        ), 12),
        Panel("Since the last success", "Of scheduled functions, on any machine.", "s", (
            Query(
                "time() - max by (job, name)"
                f" (dibs_scheduled_success_timestamp_seconds{{{CHOSEN}}})",
                "{{name}}",
            ),
        ), 12),
        Panel("Duration", "", "s", quantiles("dibs_scheduled_seconds")),
        Panel("Delay", "From the scheduled time to the run.", "s",
              quantiles("dibs_scheduled_delay_seconds")),
        Panel("Missed", "Within an hour.", "short", (
            Query(f"sum by (name) (increase(dibs_scheduled_missed_total{{{CHOSEN}}}[1h]))",
                  "{{name}}"),
        )),
    )),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    return {
        "uid": "dibs",
        "title": "dibs",
        "description": "Written by tools/write_dashboard.py from the metrics of dibs.",
        "tags": ["dibs"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": _placed(),
    }


def _variables() -> list[dict[str, Any]]:
    source = {
        "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
    }  # fmt: skip
    return [source, _variable("job", ""), _variable("name", '{job=~"$job"}')]


def _variable(label: str, matchers: str) -> dict[str, Any]:
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _source(),
        "query": f"label_values(dibs_events_total{matchers}, {label})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _source() -> dict[str, str]:
    return {"type": "prometheus", "uid": "${datasource}"}


def _placed() -> list[dict[str, Any]]:
    """Every row and panel, from left to right and from the top down."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"x": 0, "y": y, "w": COLUMNS, "h": 1}
        placed.append({
            "id": len(placed) + 1, "type": "row", "title": row.title, "collapsed": False,
            "gridPos": place, "panels": [],
        })  # fmt: skip
        x, y = 0, y + 1
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + HEIGHT
            place = {"x": x, "y": y, "w": panel.width, "h": HEIGHT}
            placed.append(_drawn(len(placed) + 1, panel, place))
            x += panel.width
        y += HEIGHT
    return placed


def _drawn(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": _source(), "expr": query.expression,
         "legendFormat": query.legend, "range": True}
        for at, query in enumerate(panel.queries)
    ]  # fmt: skip
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _source(),
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": targets,
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> int:
    """Write the file, or say that it is not fresh."""
    if arguments[:1] != ["--check"]:
        FILE.write_text(text(), "utf-8")
        return 0
    if FILE.exists() and FILE.read_text("utf-8") == text():
        return 0
    print("deploy/dashboard.json is not fresh: make generate")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
