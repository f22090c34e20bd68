"""What the site adds to Markdown: files of the repository that pages link to, code from the source, and equations."""

import ast
import posixpath
import re
import textwrap
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()((?:\.\./)+)([^)#\s]+)")  # to a path above the page: the folders up, and the path
SOURCE = re.compile(r'^``` *\{?\.?python source="([^"]+)"\}?\n```$', re.MULTILINE)
INDEX = re.compile(
    r"(?<!\w)([A-Za-zλθνγ])_(?:\{(k[-+]\d)\}|(k|h|i|r|z|max|min|log)(?![A-Za-z0-9_]))"
)  # x_k, x_{k-1}, r_max, θ_log
CODE = re.compile(r"<(pre|code|math|script|style|svg)\b.*?</\1>|<[^>]*>", re.DOTALL)
MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the files outside of docs/ that pages link to, at the same path as in the repository."""
    for page in list(files.documentation_pages()):
        if page.abs_src_path is None:
            continue
        for up, path in LINK.findall(Path(page.abs_src_path).read_text(encoding="utf-8")):
            if not leaves_docs(page.src_uri, up, path):
                continue
            if not (ROOT / path).is_file():
                raise PluginError(f"{page.src_uri}: there is no file {path}")
            if files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the added files, and put the code in the place of its name."""

    def link(match: re.Match[str]) -> str:
        up, path = match.groups()
        return up[3:] + path if leaves_docs(page.file.src_uri, up, path) else match[0]

    markdown = LINK.sub(link, markdown)
    return SOURCE.sub(lambda match: f"```python\n{source(match[1])}\n```", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Equations as MathML, which browsers draw without a script."""

    def draw(match: re.Match[str]) -> str:
        if match[2] == "(":
            return convert(unescape(match[3]), display="inline")
        parts = [convert(part.strip(), display="block") for part in unescape(match[3]).split(r"\qquad")]
        return f'<div class="equations">{"".join(parts)}</div>'  # side by side, or one below the other on a phone

    return lower(MATH.sub(draw, html))


def lower(html: str) -> str:
    """The indices of symbols in running text as subscripts; code, equations and tags stay as they are."""
    parts, end = [], 0
    for kept in CODE.finditer(html):
        parts += [subscripts(html[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*parts, subscripts(html[end:])])


def subscripts(text: str) -> str:
    return INDEX.sub(lambda match: f"{match[1]}<sub>{match[2] or match[3]}</sub>", text)


def leaves_docs(page: str, up: str, path: str) -> bool:
    """Whether a link on a page leads out of docs/."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), up, path)).startswith("../")


def source(name: str) -> str:
    """The code of an object without its docstring, by name: `linrnn/cores/lru.py LRU.system`."""
    path, _, qualified = name.partition(" ")
    text = (ROOT / path).read_text(encoding="utf-8")
    node: Any = ast.parse(text)
    for part in qualified.split("."):
        found = [n for n in node.body if part in names(n)]
        if not found:
            raise PluginError(f"there is no {qualified} in {path}")
        node = found[0]
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    body = getattr(node, "body", None)
    if body and ast.get_docstring(node) is not None:
        doc = body[0]
        del lines[doc.lineno - node.lineno : doc.end_lineno - node.lineno + 1]
    return textwrap.dedent("\n".join(lines))


def names(node: ast.stmt) -> list[str]:
    """What a statement defines."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [node.name] if isinstance(node, ast.FunctionDef | ast.ClassDef) else []


def unescape(html: str) -> str:
    return html.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").strip()
