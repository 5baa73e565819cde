"""The walls of the house, held by parsing every module (ARCHITECTURE.md has the table for people)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ADAPTERS = sorted(path.name for path in (ROOT / "adapters").iterdir() if (path / "__init__.py").exists())
HARD_LINES = 350

# What the pure core may use of the standard library: data types, text and typing. No clock, file, process.
CORE_STDLIB = frozenset(
    {
        "__future__",
        "collections",
        "collections.abc",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "itertools",
        "json",
        "math",
        "re",
        "string",
        "types",
        "typing",
        "unicodedata",
    }
)
STORE_THIRD = frozenset({"tomli_w", "yaml"})
ADAPTER_MAY = (
    "loopsup.ports",
    "loopsup.process",
    "loopsup.terminal",
    "loopsup.wire.jsonl",
    "loopsup.wire.events",
    "loopsup.errors",
)

# layer -> what of loopsup it may import, at the top of a module or inside a function.
MAY: dict[str, tuple[str, ...]] = {
    "loopsup.core": ("loopsup.core",),
    "loopsup.errors": (),
    "loopsup.wire": ("loopsup.wire", "loopsup.core", "loopsup.errors"),
    "loopsup.clock": ("loopsup.core",),
    "loopsup.ports": ("loopsup.core", "loopsup.errors", "loopsup.ports_values"),
    "loopsup.ports_values": ("loopsup.core",),
    "loopsup.registry": ("loopsup.ports", "loopsup.errors"),
    "loopsup.process": ("loopsup.process", "loopsup.wire.jsonl"),
    "loopsup.terminal": ("loopsup.terminal", "loopsup.process", "loopsup.clock"),
    "loopsup.store": ("loopsup.store", "loopsup.core", "loopsup.wire", "loopsup.errors", "loopsup.clock"),
    "loopsup.client": ("loopsup.core", "loopsup.wire", "loopsup.store", "loopsup.errors", "loopsup.clock"),
    "loopsup.shell": (
        "loopsup.shell",
        "loopsup.core",
        "loopsup.wire",
        "loopsup.store",
        "loopsup.clock",
        "loopsup.ports",
        "loopsup.registry",
        "loopsup.process",
        "loopsup.terminal.contract",
        "loopsup.matching",
        "loopsup.in_force",
        "loopsup.errors",
        "loopsup.__init__",  # the version
    ),
    "loopsup.offline": (
        "loopsup.core",
        "loopsup.wire",
        "loopsup.store",
        "loopsup.clock",
        "loopsup.ports",
        "loopsup.registry",
        "loopsup.errors",
        "loopsup.cli",  # one layer: what a verb does where no supervisor lives
        "loopsup.shell.hook",
        "loopsup.shell.leftover",
    ),
    "loopsup.cli": (
        "loopsup",
        "loopsup.cli",
        "loopsup.core",
        "loopsup.wire",
        "loopsup.store",
        "loopsup.clock",
        "loopsup.ports",
        "loopsup.registry",
        "loopsup.client",
        "loopsup.offline",
        "loopsup.matching",
        "loopsup.in_force",
        "loopsup.errors",
        "loopsup.shell",
    ),
    "loopsup.in_force": ("loopsup.matching", "loopsup.store", "loopsup.core", "loopsup.errors"),
    "loopsup.matching": ("loopsup.matching", "loopsup.core", "loopsup.clock", "loopsup.errors"),
    "loopsup.shipped": (),
    "loopsup.testing": ("loopsup",),
    "loopsup.mcp_server": (),
    "loopsup.__main__": ("loopsup.cli", "loopsup.shell.hook_run", "loopsup.mcp_server"),
    "loopsup.__init__": (),
    **{name: (name, *ADAPTER_MAY) for name in ADAPTERS},
}


@dataclass(frozen=True)
class Import:
    """One import of a module: what, and whether it happens when the module is imported."""

    target: str
    line: int
    lazy: bool


@dataclass(frozen=True)
class Module:
    """One source file."""

    name: str
    path: Path
    tree: ast.Module
    imports: tuple[Import, ...]

    @property
    def where(self) -> str:
        return str(self.path.relative_to(ROOT))


def _imports(tree: ast.Module, package: str, known: frozenset[str]) -> Iterator[Import]:
    lazy_nodes: set[int] = set()
    for node in ast.walk(tree):
        inside_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        type_checking = isinstance(node, ast.If) and dotted(node.test) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        )
        if inside_function or type_checking:
            lazy_nodes.update(id(child) for child in ast.walk(node))
    for node in ast.walk(tree):
        lazy = id(node) in lazy_nodes
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [base])]
                )
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield Import(full if full in known else base, node.lineno, lazy)


@cache
def modules() -> tuple[Module, ...]:
    files: dict[str, Path] = {}
    for source_root in (ROOT, ROOT / "adapters"):
        for top in ["loopsup"] if source_root == ROOT else ADAPTERS:
            for path in sorted((source_root / top).rglob("*.py")):
                parts = path.relative_to(source_root).with_suffix("").parts
                files[".".join(parts)] = path
    known = frozenset(name.removesuffix(".__init__") for name in files)
    found = []
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found.append(Module(name, path, tree, tuple(_imports(tree, name.rpartition(".")[0], known))))
    return tuple(found)


def layer_of(name: str) -> str | None:
    """The row of MAY a module belongs to; the longest one wins."""
    rows = [row for row in MAY if name == row or name.startswith(row + ".")]
    return max(rows, key=len, default=None)


def within(target: str, allowed: tuple[str, ...]) -> bool:
    return any(target == part or target.startswith(part + ".") for part in allowed)


def of(*layers: str) -> list[Module]:
    return [module for module in modules() if within(module.name, layers)]


def test_there_is_something_to_check() -> None:
    names = {module.name for module in modules()}
    assert {"loopsup.core.model", "loopsup.wire.events", "loopsup.ports"} <= names
    assert ADAPTERS == ["loopsup_acp", "loopsup_copilot", "loopsup_demo", "loopsup_pi", "loopsup_pty"]


def test_every_module_belongs_to_a_layer_and_imports_only_what_its_layer_may() -> None:
    faults = []
    for module in modules():
        layer = layer_of(module.name)
        if layer is None:
            faults.append(f"{module.where}: belongs to no layer; add it to the table")
            continue
        for item in module.imports:
            ours = item.target.split(".")[0] in ("loopsup", *ADAPTERS)
            target = "loopsup.__init__" if item.target == "loopsup" else item.target
            if ours and not within(target, MAY[layer]):
                faults.append(f"{module.where}:{item.line}: {layer} may not import {item.target}")
    assert faults == []


def test_no_module_but_an_adapter_itself_names_an_adapter() -> None:
    for module in of("loopsup"):
        assert not [item for item in module.imports if item.target.split(".")[0] in ADAPTERS], module.where


def test_the_core_is_pure() -> None:
    faults = [
        f"{module.where}:{item.line}: {item.target}"
        for module in of("loopsup.core")
        for item in module.imports
        if not item.target.startswith("loopsup.core") and item.target not in CORE_STDLIB
    ]
    assert faults == []


@pytest.mark.parametrize(
    "layer", ["loopsup.core", "loopsup.wire", "loopsup.store", "loopsup.errors", "loopsup.clock"]
)
def test_the_blocking_layers_use_the_standard_library_and_no_event_loop(layer: str) -> None:
    third = STORE_THIRD if layer == "loopsup.store" else frozenset()
    for module in of(layer):
        for item in module.imports:
            top = item.target.split(".")[0]
            where = f"{module.where}:{item.line}: {item.target}"
            assert top in sys.stdlib_module_names or top == "loopsup" or top in third, where
            assert top != "asyncio", where


HEAVY = ("asyncio", "psutil", "rich", "prompt_toolkit")
LIVE_VIEWS = ("loopsup.cli.attach_live", "loopsup.cli.top_view")  # all heavy: imported only where they are shown


def test_commands_load_the_supervisor_only_when_they_need_it() -> None:
    for module in of("loopsup.cli", "loopsup.client", "loopsup.offline", "loopsup.registry"):
        for item in module.imports:
            heavy = item.target.split(".")[0] in HEAVY or within(item.target, ("loopsup.shell", *LIVE_VIEWS))
            excused = item.lazy or module.name in LIVE_VIEWS
            assert excused or not heavy, f"{module.where}:{item.line}: {item.target} at import time"


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of names; `.b.c` where it hangs on something else."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls() -> Iterator[tuple[Module, ast.Call]]:
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call):
                yield module, node


def test_no_shell_is_ever_run() -> None:
    banned = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
    for module, call in calls():
        where = f"{module.where}:{call.lineno}"
        name = dotted(call.func)
        assert name not in banned, where
        assert not name.endswith("create_subprocess_shell"), where
        assert not any(keyword.arg == "shell" for keyword in call.keywords), where


def test_only_the_clock_reads_a_clock() -> None:
    banned = {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "localtime",
        "gmtime",
    }
    for module, call in calls():
        if module.name == "loopsup.clock":
            continue
        name = dotted(call.func)
        where = f"{module.where}:{call.lineno}: {name}"
        assert not (name.startswith("time.") and name.removeprefix("time.") in banned), where
        assert name not in {"datetime.now", "datetime.utcnow", "datetime.datetime.now", "date.today"}, where


def test_files_are_short_enough_to_be_one_idea() -> None:
    long = {}
    for module in modules():
        lines = module.path.read_text(encoding="utf-8").count("\n")
        if lines > HARD_LINES:
            long[module.where] = lines
    assert long == {}


SILENCED = re.compile(r"# (?:noqa|type: ignore)\b(?:: [A-Z]+\d+(?:, [A-Z]+\d+)*|\[[a-z,-]+\])?(.*)")


def test_a_silenced_check_has_its_reason_beside_it() -> None:
    without = []
    for module in modules():
        for number, line in enumerate(module.path.read_text(encoding="utf-8").splitlines(), 1):
            found = SILENCED.search(line)
            if found is not None and len(re.findall(r"[A-Za-z]{2,}", found[1])) < 2:
                without.append(f"{module.where}:{number}: {line.strip()}")
    assert without == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [module.where for module in modules() if module.tree.body and not ast.get_docstring(module.tree)]
    assert silent == []


def test_importing_loopsup_gives_a_version_and_nothing_else() -> None:
    (top,) = [module for module in modules() if module.name == "loopsup.__init__"]
    assert top.imports in ((), tuple(item for item in top.imports if item.target == "__future__"))
