"""Engines as servers of several ages have them."""

from dibs._core.capabilities import Engine

ENGINES = [
    Engine(set_nx_get=True, compare_delete="DELEX"),
    Engine(set_nx_get=True, compare_delete="DELIFEQ"),
    Engine(set_nx_get=True, compare_delete="LUA"),
    Engine(set_nx_get=False, compare_delete="LUA"),
]
