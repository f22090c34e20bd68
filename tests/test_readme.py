"""The README stays true: its Python runs as printed, from top to bottom."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_python(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2, "the quick start and a stream"
    script = tmp_path / "readme.py"
    script.write_text("\n".join([*blocks, "assert torch.allclose(logits, model(tokens), atol=1e-5)"]))
    environment = {"PYTHONPATH": str(README.parent), "PATH": "", "HOME": str(tmp_path), "PYTHONWARNINGS": "error"}
    subprocess.run([sys.executable, script.name], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert sorted(p.name for p in (tmp_path / "my-model").iterdir()) == ["config.json", "model.safetensors"]
