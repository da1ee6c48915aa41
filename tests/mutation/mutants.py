"""Mutants: small changes to a function or a Lua script that a test should notice."""

import ast
import copy
import re
import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_OTHER_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OTHER_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_OTHER_FUNCTIONS = {"min": "max", "max": "min", "all": "any", "any": "all"}
_TEXT = (ast.JoinedStr, ast.List, ast.ListComp)
_UNTESTED = ("__repr__", "__str__")
_LOG = "_log"
_LUA_CHANGES = [
    (r"==", "~="),
    (r"~=", "=="),
    (r"<=", "<"),
    (r">=", ">"),
    (r"(?<![<>=~])<(?!=)", "<="),
    (r"(?<![<>=~])>(?!=)", ">="),
    (r"\band\b", "or"),
    (r"\bor\b", "and"),
    (r"\bnot ", ""),
    (r"\bmax\b", "min"),
    (r" \+ 1\b", ""),
    (r"\* 1000000", "* 1000"),
    (r"\breturn 1$", "return 0"),
    (r"\breturn 0$", "return 1"),
    (r", 0\}$", ", 1}"),
    (r", 1\}$", ", 0}"),
    (r"'NX', ", ""),
    (r"(ARGV\[\d\]) \+ ARGV\[\d\]", r"\1"),
    (r"(KEYS\[1\]), KEYS\[2\]", r"\1"),
]


@dataclass(frozen=True)
class Mutant:
    """One change."""

    file: str
    """From the root of the repository."""
    function: str
    """Its qualified name; of a script, its name."""
    line: int
    before: str
    after: str
    number: int
    """Which of the changes to this file it is."""

    @property
    def name(self) -> str:
        """How it is listed; without the line, which moves."""
        return f"{self.file} {self.function}: {self.before} -> {self.after}"


def mutants_of(file: str) -> list[Mutant]:
    """All changes to a Python module or a Lua script."""
    make = _of_script if file.endswith(".lua") else _of_module
    seen: Counter[str] = Counter()
    found: list[Mutant] = []
    for mutant in make(file):
        seen[mutant.name] += 1
        count = seen[mutant.name]
        found.append(mutant if count == 1 else replace(mutant, after=f"{mutant.after} ({count})"))
    return found


# ---- Python


def mutated_code(mutant: Mutant) -> dict[tuple[str, int], types.CodeType]:
    """The code of each function of the changed module, by its name and first line."""
    source = Path(mutant.file).read_text("utf-8")
    tree, node, other = _site(source, mutant.number)
    changed = ast.fix_missing_locations(_Replace(node, other).visit(tree))
    codes: dict[tuple[str, int], types.CodeType] = {}
    _collect(compile(changed, mutant.file, "exec"), codes)
    return codes


def _collect(code: types.CodeType, codes: dict[tuple[str, int], types.CodeType]) -> None:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            codes[inner.co_qualname, inner.co_firstlineno] = inner
            _collect(inner, codes)


def _site(source: str, number: int) -> tuple[ast.AST, ast.AST, ast.AST]:
    tree = ast.parse(source)
    for index, (_, node, other) in enumerate(_sites(tree, "", None)):
        if index == number:
            return tree, node, other
    raise LookupError(number)


def _of_module(file: str) -> Iterator[Mutant]:
    tree = ast.parse(Path(file).read_text("utf-8"))
    for number, (function, node, other) in enumerate(_sites(tree, "", None)):
        assert function is not None
        name, definition = function
        before = ast.unparse(definition).splitlines()
        own = copy.deepcopy(definition, {id(node): node})
        after = ast.unparse(_Replace(node, other).visit(own))
        pair = _first_difference(before, after.splitlines())
        if pair is not None:
            yield Mutant(file, name, _line_of(node), *pair, number)


def _line_of(node: ast.AST) -> int:
    located: Any = node.target if isinstance(node, ast.comprehension) else node
    return located.lineno


def _first_difference(before: list[str], after: list[str]) -> tuple[str, str] | None:
    for old, new in zip(before, after, strict=False):
        if old != new:
            return old.strip(), "(removed)" if new.strip() == "pass" else new.strip()
    return (before[len(after)].strip(), "(removed)") if len(after) < len(before) else None


class _Replace(ast.NodeTransformer):
    def __init__(self, node: ast.AST, other: ast.AST) -> None:
        self._node, self._other = node, other

    def visit(self, node: ast.AST) -> ast.AST:
        return self._other if node is self._node else super().generic_visit(node)


Function = tuple[str, ast.AST]


def _sites(
    node: ast.AST, path: str, function: Function | None
) -> Iterator[tuple[Function | None, ast.AST, ast.AST]]:
    """What can be changed inside of functions, and into what."""
    if isinstance(node, ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "strict"):
        return
    if _is_logged(node):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name in _UNTESTED:
            return
        path += node.name
        function = path, node
        path += ".<locals>."
    elif isinstance(node, ast.ClassDef):
        path += f"{node.name}."
    elif function is not None:
        for other in _changes(node):
            yield function, node, ast.copy_location(other, node)
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.arguments):
                    yield from _sites(child, path, function)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[operator]):
            for kind in _OTHER_COMPARISONS[type(operator)]:
                yield _with(node, ops=[kind()])
        case ast.BoolOp(op=operator, values=values):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
            for left_out in values:
                rest = [value for value in values if value is not left_out]
                yield _with(node, values=rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=operator, left=left, right=right):
            kind = _OTHER_ARITHMETIC.get(type(operator))
            if kind is not None and not any(map(_is_text, (left, right))):
                yield _with(node, op=kind())
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield ast.Constant(value + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _OTHER_FUNCTIONS:
            yield _with(node, func=ast.Name(_OTHER_FUNCTIONS[name], ast.Load()))
        case ast.If(test=test) | ast.IfExp(test=test) if not _is_changed_itself(test):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[_, *_]):
            yield _with(node, ifs=[])
        case ast.Return(value=ast.expr() as value) if not _is_none(value):
            yield ast.Return(ast.Constant(None))
        case _ if _can_be_removed(node):
            yield ast.Pass()


def _with(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _can_be_removed(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise(exc=ast.expr()):
            return True
        case ast.Assign(targets=targets):
            return any(isinstance(each, ast.Attribute | ast.Subscript) for each in targets)
        case ast.AugAssign(target=ast.Attribute() | ast.Subscript()):
            return True
        case _:
            return False


def _is_logged(node: ast.AST) -> bool:
    """A call of a logger: which lines a log has, and with which figures, is no promise."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            return name == _LOG
        case ast.Expr(value=ast.Call() as call):
            return _is_logged(call)
        case _:
            return False


def _is_changed_itself(test: ast.AST) -> bool:
    is_not = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return is_not or (isinstance(test, ast.Compare) and len(test.ops) == 1)


def _is_text(node: ast.AST) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(node, _TEXT) or isinstance(value, str | bytes)


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# ---- Lua


def mutated_script(mutant: Mutant) -> bytes:
    """The text of the changed script."""
    for number, (_, _, text) in enumerate(_script_changes(mutant.file)):
        if number == mutant.number:
            return text.encode()
    raise LookupError(mutant.number)


def _of_script(file: str) -> Iterator[Mutant]:
    lines = Path(file).read_text("utf-8").splitlines()
    for number, (index, new, _) in enumerate(_script_changes(file)):
        before, after = lines[index].strip(), new.strip() or "(removed)"
        yield Mutant(file, Path(file).stem, index + 1, before, after, number)


def _script_changes(file: str) -> Iterator[tuple[int, str, str]]:
    lines = Path(file).read_text("utf-8").splitlines()
    for index, line in enumerate(lines):
        for new in _line_changes(line):
            yield index, new, "\n".join([*lines[:index], new, *lines[index + 1 :]])


def _line_changes(line: str) -> Iterator[str]:
    if "redis.error_reply(" in line:
        return
    line = re.sub(r"\s*--.*", "", line)
    for pattern, replacement in _LUA_CHANGES:
        for found in re.finditer(pattern, line):
            yield line[: found.start()] + found.expand(replacement) + line[found.end() :]
    if re.fullmatch(r"\s*redis\.call\(.*\)", line):
        yield ""
    if found := re.fullmatch(r"(\s*(?:else)?if )(?!redis\.replicate)(.*)( then)", line):
        yield f"{found[1]}true{found[3]}"
        yield f"{found[1]}false{found[3]}"
