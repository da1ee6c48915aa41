"""Writes tests/local_line/line_rules.json from LINE's descriptions of its API.

The file has the rules alone, in a form of this project: which fields an object has, which of them
are required, and the limits of their values. No texts of the descriptions are in it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ORIGIN = "https://github.com/line/line-openapi"
TARGET = Path(__file__).parents[1] / "tests" / "local_line" / "line_rules.json"
ROOTS = {
    "messaging-api.yml": ("Message", "RichMenuRequest"),
    "webhook.yml": ("CallbackRequest",),
}
LIMITS = (
    "type", "format", "enum", "pattern", "nullable", "minimum", "maximum",
    "minLength", "maxLength", "minItems", "maxItems",
)  # fmt: skip
METHODS = ("get", "post", "put", "delete")
Json = dict[str, Any]


class Reader:
    """One description: the objects that can be reached from its roots."""

    def __init__(self, document: Json) -> None:
        self._schemas: Json = document["components"]["schemas"]
        self.objects: Json = {}
        self.kinds: Json = {}

    def read(self, name: str) -> None:
        """That object, and all in it."""
        if name in self.objects:
            return
        schema = self._merged(self._schemas[name])
        fields: Json = {}
        self.objects[name] = {"required": sorted(set(schema["required"])), "fields": fields}
        self._read_kinds(name, schema)
        for field, rule in schema["properties"].items():
            fields[field] = self._rule(rule)

    def _read_kinds(self, name: str, schema: Json) -> None:
        chosen = self._schemas[name].get("discriminator")
        if chosen is None or not chosen.get("mapping"):
            return
        mapping = {kind: _name(ref) for kind, ref in chosen["mapping"].items()}
        self.kinds[name] = {"by": chosen["propertyName"], "kinds": mapping}
        for each in mapping.values():
            self.read(each)

    def _merged(self, schema: Json) -> Json:
        """An object with the fields of all that it is composed of."""
        if "$ref" in schema:
            schema = self._schemas[_name(schema["$ref"])]
        parts = [self._merged(part) for part in schema.get("allOf", [])]
        properties: Json = {}
        for part in [*parts, schema]:
            properties |= part.get("properties", {})
        required = [name for part in [*parts, schema] for name in part.get("required", [])]
        return schema | {"properties": properties, "required": required}

    def _rule(self, schema: Json) -> Json:
        if "$ref" in schema and self._is_object(self._schemas[_name(schema["$ref"])]):
            self.read(_name(schema["$ref"]))
            return {"object": _name(schema["$ref"])}
        if "$ref" in schema:
            return self._rule(self._schemas[_name(schema["$ref"])])
        rule = {name: schema[name] for name in LIMITS if name in schema}
        if "items" in schema:
            rule["items"] = self._rule(schema["items"])
        if isinstance(schema.get("additionalProperties"), dict):
            rule["values"] = self._rule(schema["additionalProperties"])
        return rule

    @staticmethod
    def _is_object(schema: Json) -> bool:
        return any(word in schema for word in ("properties", "allOf", "discriminator"))


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]


def rules(folder: Path, commit: str) -> Json:
    """All that the tests need of the descriptions in *folder*."""
    found: Json = {"source": f"line/line-openapi {commit}", "operations": _operations(folder)}
    for file, roots in ROOTS.items():
        reader = Reader(yaml.safe_load((folder / file).read_text()))
        for root in roots:
            reader.read(root)
        found[Path(file).stem] = {"objects": reader.objects, "kinds": reader.kinds}
    return found


def _operations(folder: Path) -> list[str]:
    files = [yaml.safe_load(file.read_text()) for file in folder.glob("*.yml")]
    return sorted(
        f"{method.upper()} {path}"
        for each in files
        for path, methods in each.get("paths", {}).items()
        for method in methods
        if method in METHODS and path != "/callback"  # the bot's own
    )


def main(origin: str = ORIGIN) -> None:
    """*origin*: what `git clone` takes, the newest descriptions if nothing is given."""
    with tempfile.TemporaryDirectory() as name:
        subprocess.run(["git", "clone", "-q", "--depth", "1", origin, name], check=True)
        head = ["git", "-C", name, "rev-parse", "--short=7", "HEAD"]
        commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
        text = json.dumps(rules(Path(name), commit), sort_keys=True, indent=0)
    TARGET.write_text(text + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
