"""The site builds without a warning, links and pictures exist, pages are short, and no public name is missing."""

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
if not DOCS.exists():
    pytest.skip("only a checkout has the docs", allow_module_level=True)
WORDS = 1_500
PUBLIC = (
    "linrnn",
    "linrnn.fast",
    "linrnn.nn",
    "linrnn.objectives",
    "linrnn.onnx",
    "linrnn.paper.figures",
    "linrnn.paper.presets",
    "linrnn.recipes",
    "linrnn.tasks",
    "linrnn.tasks.files",
    "linrnn.training",
)
# helpers of the package itself, and tables of data
INTERNAL = {
    "linrnn.objectives": {"average_precision", "balanced"},
    "linrnn.recipes": {"core_defaults", "core_options", "describe", "fits"},
}
PAGES = sorted(path for path in DOCS.rglob("*.md"))


class Page(HTMLParser):
    """The targets of links and pictures of a page, and the anchors on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src") and value is not None:
                self.targets.append(value)
            if name in ("id", "name") and value is not None:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_link_and_picture_of_the_built_site_exists(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 40
    for path, page in pages.items():
        for target in page.targets if path.name != "404.html" else ():
            parts = urlsplit(target)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            found = path if not parts.path else path.parent / unquote(parts.path)
            found = found.resolve() / "index.html" if found.is_dir() else found.resolve()
            assert found.is_file(), f"{path.relative_to(site)}: {target}"
            if parts.fragment and found in pages and not parts.fragment.startswith("__"):
                assert unquote(parts.fragment) in pages[found].anchors, f"{path.relative_to(site)}: {target}"


def test_the_site_asks_no_other_server_for_anything(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img|link)[^>]* (?:src|href)="https?:', path.read_text(encoding="utf-8")), (
            path
        )


def test_equations_and_code_are_in_the_built_page(site: Path) -> None:
    text = (site / "paper/model/index.html").read_text(encoding="utf-8")
    assert text.count('display="block"') >= 6
    assert "source=" not in text
    assert "multiply" in text  # of LRU._step


def test_code_is_found_by_its_name_and_a_wrong_name_stops_the_build() -> None:
    pytest.importorskip("mkdocs")
    specification = importlib.util.spec_from_file_location("hooks", DOCS / "site" / "hooks.py")
    assert specification is not None
    assert specification.loader is not None
    hooks = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(hooks)
    code = hooks.source("linrnn/spectrum.py gamma")
    assert code == "def gamma(nu: Tensor) -> Tensor:\n    return torch.sqrt(-torch.expm1(-2 * nu))"
    with pytest.raises(Exception, match=r"LRU\._leap"):
        hooks.source("linrnn/cores/lru.py LRU._leap")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_is_short(page: Path) -> None:
    assert len(page.read_text().split()) <= WORDS


def test_the_reference_has_every_public_name_once() -> None:
    pages = [line for path in (DOCS / "reference").glob("*.md") for line in path.read_text().splitlines()]
    listed = [line.removeprefix("::: ") for line in pages if line.startswith("::: ")]
    assert len(listed) == len(set(listed))
    objects = {id(resolve(name)) for name in listed}
    missing = [name for module in PUBLIC for name in public(module) if id(resolve(name)) not in objects]
    assert missing == []


def public(module: str) -> list[str]:
    """The functions and classes that a module offers."""
    found = importlib.import_module(module)
    names = getattr(found, "__all__", None)
    if names is None:
        names = [name for name, value in vars(found).items() if getattr(value, "__module__", "") == module]
    skipped = INTERNAL.get(module, set())
    chosen = [name for name in names if not name.startswith("_") and name not in skipped]
    return [f"{module}.{name}" for name in chosen if is_documented(getattr(found, name))]


def is_documented(value: object) -> bool:
    return not isinstance(value, ModuleType) and (inspect.isclass(value) or inspect.isfunction(value))


def resolve(name: str) -> object:
    """The object of a dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
