"""The README stays true: its quick start runs as printed."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_quick_start(tmp_path: Path) -> None:
    match = re.search(r"<!-- quick start.*?-->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert match
    script = tmp_path / "quick_start.py"
    script.write_text(match[1])
    environment = {"PYTHONPATH": str(README.parent), "PATH": "", "HOME": str(tmp_path), "PYTHONWARNINGS": "error"}
    subprocess.run([sys.executable, script.name], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert sorted(p.name for p in (tmp_path / "my-model").iterdir()) == ["config.json", "model.safetensors"]
