"""The Grafana dashboard: every query asks for what is exported, and every metric is shown."""

from __future__ import annotations

import itertools
import json
import re
from logging import WARNING
from typing import Any

import pytest

from dibs.events import MEASURES
from tools import write_dashboard

from .promql import PromQL, Samples, scraped
from .samples import ROOT, Counted
from .test_alerts import everything_once

DASHBOARD = json.loads((ROOT / "deploy/dashboard.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]
QUERIES = [(panel["title"], query) for panel in GRAPHS for query in panel["targets"]]
EXPRESSIONS = {f"{title}: {query['legendFormat']}": query["expr"] for title, query in QUERIES}
NOT_SHOWN: set[str] = set()
"""Metrics that no panel shows on purpose."""


def understood(expression: str) -> str:
    """As our evaluator reads it: the variables chosen, functions around a sum taken off."""
    chosen = expression.replace("$__rate_interval", "5m")
    chosen = chosen.replace("$job", ".*").replace("$name", ".*")
    chosen = re.sub(r"^histogram_quantile\(0\.\d+, (.*)\)$", r"\1", chosen)
    return chosen.removeprefix("time() - ").replace("max by", "sum by")


def test_the_dashboard_is_as_the_tool_writes_it() -> None:
    """`make generate` must be run after every change of a panel."""
    assert (ROOT / "deploy/dashboard.json").read_text("utf-8") == write_dashboard.text()
    assert write_dashboard.main(["--check"]) == 0


@pytest.mark.parametrize("query", EXPRESSIONS)
def test_a_query_asks_for_metrics_and_labels_that_exist(query: str, counted: Counted) -> None:
    """It finds series; its legend names labels that they have."""
    everything_once(counted)
    scrape = scraped(counted.registry)
    found = PromQL(understood(EXPRESSIONS[query]), Samples(scrape, scrape))
    result = found.result()
    assert result, EXPRESSIONS[query]
    for labels in result:
        assert set(re.findall(r"{{(\w+)}}", query)) <= {name for name, _ in labels}


def test_every_metric_is_shown(counted: Counted) -> None:
    """A new metric needs a panel, or a reason."""
    everything_once(counted)
    families = {family.name for family in counted.registry.collect()}
    shown = {
        family
        for family in families
        if re.search(
            rf"\b{family}(?:_total|_bucket|_count|_sum)?\b", " ".join(EXPRESSIONS.values())
        )
    }
    assert families - shown == NOT_SHOWN


@pytest.mark.parametrize("kind", [kind for kind in MEASURES if MEASURES[kind].level >= WARNING])
def test_every_event_that_needs_attention_has_a_panel(kind: str) -> None:
    """`make generate` adds a new one; among all events it would not be seen."""
    assert any(re.search(rf"\b{kind}\b", each) for each in EXPRESSIONS.values())


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    """Within 24 columns, each below its heading."""
    ids = [panel["id"] for panel in PANELS]
    assert len(ids) == len(set(ids))
    cells = list(
        itertools.chain.from_iterable(
            itertools.product(
                range(place["x"], place["x"] + place["w"]),
                range(place["y"], place["y"] + place["h"]),
            )
            for place in (panel["gridPos"] for panel in PANELS)
        )
    )
    assert len(cells) == len(set(cells))
    assert all(0 <= x < write_dashboard.COLUMNS and y >= 0 for x, y in cells)


def test_a_panel_has_what_grafana_wants() -> None:
    """A title, a unit, queries with their own letters, and the chosen data source."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in GRAPHS:
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
        letters = [query["refId"] for query in panel["targets"]]
        assert letters and len(letters) == len(set(letters))
        assert all(query["datasource"] == source for query in (panel, *panel["targets"]))
    variables = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(PANELS)))
    assert used == variables
