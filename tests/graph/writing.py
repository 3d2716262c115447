"""Small graph files that tests write and then damage."""

import json
import zipfile
from pathlib import Path

EDGES = "id_1,id_2\n0,1\n1,2\n2,2\n0,2\n2,0\n"
TARGET = "id,facebook_id,page_name,page_type\n0,9,a,tvshow\n1,8,b,company\n2,7,c,\n3,6,d,company\n"
WORDS: dict[str, list[int]] = {"0": [1, 3, 3], "1": [], "2": [4713], "3": [0]}


def write_snap(
    data_dir: Path, *, edges: str = EDGES, target: str = TARGET, words: str | None = ""
) -> Path:
    """Write a tiny graph in the form of SNAP's facebook; words=None leaves them out."""
    folder = data_dir / "facebook_large"
    folder.mkdir(parents=True)
    (folder / "musae_facebook_edges.csv").write_text(edges)
    (folder / "musae_facebook_target.csv").write_text(target)
    if words is not None:
        (folder / "musae_facebook_features.json").write_text(words or json.dumps(WORDS))
    return folder


def zip_folder(folder: Path, archive: Path, inside: str) -> Path:
    """Pack the files of a folder into a zip, under the name `inside`."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for file in sorted(folder.iterdir()):
            target.write(file, f"{inside}/{file.name}" if inside else file.name)
    return archive


def write_list(folder: Path, edges: str, **beside: str | bytes) -> Path:
    """Write graph.csv, and e.g. labels_csv="…" as graph.labels.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.csv").write_text(edges)
    for name, content in beside.items():
        file = folder / f"graph.{name.replace('_', '.')}"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "graph.csv"
