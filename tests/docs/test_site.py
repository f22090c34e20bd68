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
    "linrnn.agents",
    "linrnn.export",
    "linrnn.fast",
    "linrnn.nn",
    "linrnn.objectives",
    "linrnn.online",
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
    listed = [name for name in reference() if not name.startswith("linrnn.agents.torchrl")]  # needs torchrl
    assert len(listed) == len(set(listed))
    objects = {id(resolve(name)) for name in listed}
    assert id(None) not in objects
    missing = [name for module in PUBLIC for name in public(module) if id(resolve(name)) not in objects]
    assert missing == []


def test_the_reference_has_every_name_that_the_docs_use() -> None:
    """A function or class that a page names by its full name is public, and its public attributes are with it."""
    documented = {id(resolve(name)) for name in reference()}
    for page in [ROOT / "README.md", *PAGES]:
        for name in set(re.findall(r"\blinrnn(?:\.[A-Za-z_]\w*)+", page.read_text())):
            found = [resolve(part) for part in prefixes(name)]
            things = [value for value in found if value is not None and is_documented(value)]
            assert not things or any(id(value) in documented for value in things), f"{page.name}: {name}"


def test_the_reference_names_all_of_linrnn_on_its_first_page() -> None:
    listed = (DOCS / "reference" / "index.md").read_text()
    for name in importlib.import_module("linrnn").__all__:
        assert re.search(rf"`{name}[`.]", listed) or f"`linrnn.{name}" in listed, name


def test_every_page_of_the_guide_is_one_click_from_the_front_pages() -> None:
    """The README may leave out examples; the first page of the site links all pages."""
    navigation = (ROOT / "mkdocs.yml").read_text()
    titles = {path: title for title, path in re.findall(r"- (.*): (guide/\S+\.md)$", navigation, re.MULTILINE)}
    assert len(titles) >= 10
    readme, index = (ROOT / "README.md").read_text(), (DOCS / "index.md").read_text()
    assert [path for path in titles if f"]({path}" not in index] == []
    questions = [path for path, title in titles.items() if not title.startswith('"Example')]
    assert [path for path in questions if f"](docs/{path}" not in readme] == []


def reference() -> list[str]:
    """The names on the pages of the reference."""
    lines = [line for path in (DOCS / "reference").glob("*.md") for line in path.read_text().splitlines()]
    return [line.removeprefix("::: ") for line in lines if line.startswith("::: ")]


def prefixes(name: str) -> list[str]:
    """`linrnn.Run`, `linrnn.Run.open` for the second name."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(2, len(parts) + 1)]


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
    """The object of a dotted name; None if there is none."""
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None
