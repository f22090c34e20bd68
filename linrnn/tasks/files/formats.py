"""The formats of files, and the format of a file or folder."""

from pathlib import Path
from types import ModuleType

from linrnn.tasks.files import audio, npz, table, text
from linrnn.tasks.files.packed import OPEN, plain_name
from linrnn.util.errors import wrong_value
from linrnn.util.files import plain
from linrnn.util.types import check_path

FORMATS: dict[str, ModuleType] = {"npz": npz, "table": table, "audio": audio, "text": text}
COMPRESSED = (*OPEN, ".zip")
WHAT = {
    "npz": "NumPy's files (.npz, .npy, a folder of .npy)",
    "table": "tables (.csv, .tsv, .parquet, .csv.gz)",
    "audio": "folders of audio",
    "text": "texts (.txt, .text, .md, .txt.gz)",
}


def format_of(path: str | Path) -> str:
    """The format of an existing file or folder."""
    check_path("path", path)
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a file or a folder, got neither")
    if path.is_dir():
        if any(path.glob("*.npy")):
            return "npz"
        if audio.holds_audio(path):
            return "audio"
        raise wrong_value(str(path), "a folder of .npy files, or of a folder of audio for each class", "neither")
    plain(path)
    suffix = path.suffix.lower()
    if suffix in COMPRESSED:
        suffix = plain_name(path).suffix.lower()
        if suffix not in (".csv", ".tsv", *text.SUFFIXES):
            raise wrong_value(str(path), "a compressed .csv, .tsv or .txt file", f"a compressed {suffix!r} file")
    for name in ("npz", "table", "text"):
        if suffix in FORMATS[name].SUFFIXES:
            return name
    raise wrong_value(str(path), " or ".join(WHAT.values()), f"a file with the suffix {suffix!r}")
