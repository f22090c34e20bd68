"""The shape of the package: in which direction modules import each other, and how large a folder and a file may be."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "linrnn"
LAYERS = (  # from below to above: a module imports from its own layer and from those before it
    ("util",),
    ("tasks",),
    ("recurrence",),
    ("spectrum",),
    ("cores",),
    ("norm", "config", "parts", "model"),
    ("nn",),
    ("fast",),
    ("objectives",),
    ("recipes", "paper.presets"),
    ("streaming", "training", "online", "agents"),
    ("paper", "bench", "export"),
    ("cli",),
    ("__init__", "__main__"),
)
LINES, FILES = 450, 10
# What is not as it should be yet. Each entry goes when its reason goes, and the tests fail if one is left over.
UPWARD: set[tuple[str, str]] = set()
CYCLES: set[frozenset[str]] = set()
LONG: set[str] = set()

FILE_OF = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imports(module: str) -> Iterator[str]:
    """The modules of the package that a module imports anywhere in its text, but for those that only name types."""
    tree = ast.parse(FILE_OF[module].read_text())
    for branch in [node for node in ast.walk(tree) if isinstance(node, ast.If)]:
        if isinstance(branch.test, ast.Name) and branch.test.id == "TYPE_CHECKING":
            branch.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            package, _, inside = name.partition(".")
            if package == "linrnn":  # `from linrnn.cores import LRU` is an import of linrnn.cores
                parts = inside.split(".")
                found = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
                yield next((part for part in found if part in FILE_OF), "__init__")


GRAPH = {module: set(imports(module)) - {module} for module in FILE_OF}


def layer(module: str) -> int:
    """That of its longest prefix which has one."""
    ranks = {name: rank for rank, names in enumerate(LAYERS) for name in names}
    parts = module.split(".")
    return next(ranks[name] for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in ranks)


def test_every_module_has_a_layer() -> None:
    assert len(GRAPH) > 100
    for module in GRAPH:
        layer(module)


def test_imports_point_downward() -> None:
    upward = {(a, b) for a, targets in GRAPH.items() for b in targets if layer(b) > layer(a)}
    assert upward == UPWARD


def test_tasks_know_nothing_of_models() -> None:
    allowed = {layer("tasks"), layer("util")}
    assert not {(a, b) for a in GRAPH if a.split(".")[0] == "tasks" for b in GRAPH[a] if layer(b) not in allowed}


def reachable(start: str) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = GRAPH[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def test_no_modules_import_each_other_in_a_circle() -> None:
    after = {module: reachable(module) for module in GRAPH}
    circles = {frozenset(b for b in after[a] if a in after[b]) for a in GRAPH if a in after[a]}
    assert circles == CYCLES


def test_the_top_of_the_package_is_small() -> None:
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= FILES


def test_no_file_is_long() -> None:
    long = {p.relative_to(PACKAGE).as_posix() for p in FILE_OF.values() if len(p.read_text().splitlines()) > LINES}
    assert long == LONG


def test_only_the_backend_asks_what_a_device_is() -> None:
    """Not definitions, fast code, streams or training; the choice of a process's device is another question."""
    asks = re.compile(r"\.is_cuda|type [!=]= \"(cuda|mps|xpu)\"|get_device_(name|capability|properties)|version\.hip")
    rooms = {name for layer in LAYERS for name in layer} - {"util", "tasks", "paper", "bench", "export", "cli"}
    asking = {module for module, path in FILE_OF.items() if asks.search(path.read_text())}
    assert {module for module in asking if module.split(".")[0] in rooms} == {
        "recurrence.backend",
        "streaming.gpu",
        "training.processes",
    }


@pytest.mark.parametrize("name", ["FEW", "CHUNK", "ALIGNED", "Row", "Weights", "Settings", "System"])
def test_a_name_stands_for_one_thing(name: str) -> None:
    definition = re.compile(rf"^(class {name}\b|{name}(: .*)? = )", re.MULTILINE)
    assert len([module for module, path in FILE_OF.items() if definition.search(path.read_text())]) <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import linrnn.cores.lru", {"cores.lru"}),
        ("from linrnn.cores import LRU, rnn", {"cores", "cores.rnn"}),
        ("def f():\n    from linrnn import model", {"model"}),
        ("if TYPE_CHECKING:\n    from linrnn import model", set()),
        ("import torch\nimport linrnn", {"__init__"}),
    ],
)
def test_what_counts_as_an_import(
    text: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.py").write_text(text)
    monkeypatch.setitem(FILE_OF, "some", tmp_path / "some.py")
    assert set(imports("some")) == expected
