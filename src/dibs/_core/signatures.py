"""What a function takes and returns, though names in its annotations may not exist.

Some exist for type checkers only, some are defined below the function. Python 3.14 evaluates
annotations when somebody asks for them, older ones where they are quoted.
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    signature_of = functools.partial(inspect.signature, annotation_format=Format.FORWARDREF)
    annotations_of = functools.partial(get_annotations, format=Format.FORWARDREF)
else:
    signature_of = inspect.signature
    """The signature of a function or class. A name that does not exist stays a reference to it."""
    annotations_of = inspect.get_annotations
    """The annotations of a function or class, without those that it inherits; as `signature_of`."""


def return_annotation(function: Callable[..., Any]) -> Any:
    """Return the type that *function* says it returns; None: it says nothing, or None.

    NameError, or another error: the name of this type does not exist, whatever the others do.
    """
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    annotated: Any = types.SimpleNamespace(__annotations__={})
    if "return" in (known := annotations_of(function)):
        annotated.__annotations__["return"] = known["return"]
    annotated.__type_params__ = getattr(function, "__type_params__", ())
    names = getattr(function, "__globals__", {})
    return typing.get_type_hints(annotated, names).get("return")
