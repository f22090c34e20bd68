"""Notebooks as pages of the site: their text, code and outputs, as stored in the file."""

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

NOTEBOOK = re.compile(r"(?<=\]\()(\w+)\.ipynb(?=\))")  # a link from one notebook to another
TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add a page, and a file for each picture, for every notebook. The notebook itself can be downloaded."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        path = Path(file.src_uri)
        cells = json.loads(Path(file.abs_src_path or "").read_text(encoding="utf-8"))["cells"]
        markdown, pictures = page(cells, path.stem)
        for name, content in ((f"{path.stem}.md", markdown), *pictures.items()):
            files.append(File.generated(config, str(path.with_name(name)), content=content))
    return files


def page(cells: list[dict[str, Any]], name: str) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, and its pictures by file name."""
    parts, pictures, title = [], {}, ""
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            title = (TITLE.findall(source) or [title])[-1]
            parts.append(NOTEBOOK.sub(r"\1.md", source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            picture = output.get("data", {}).get("image/png")
            if picture is not None:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode("".join(picture))
                parts.append(f"![{title}]({file})")
        printed = "".join(line for output in cell["outputs"] for line in output.get("text", []))
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    first, *rest = parts
    return "\n\n".join([first, f"[Download this notebook]({name}.ipynb)", *rest]), pictures
