"""Run folders, checkpoints, accounts and new devices that somebody damaged: it works, or one line.

A bounded, seeded fuzz. Whatever a file says, either the command works or an error of ours says in
one line what is wrong; a refusal leaves all files as they were; nobody asks for a gigabyte.
"""

import json
import resource
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runs.running import QUICK
from tests.runs.test_resume import Pulled, contents, until
from tests.strict.linking import town

import lumos
from lumos import InputError, LumosError
from lumos.cli.main import run as command
from lumos.runs.predict import predict_new_devices, read_new_devices
from lumos.storage import read_arrays

pytestmark = pytest.mark.usefixtures("drawn_once")

STRICT: dict[str, Any] = {"encoder_epochs": 2, "epochs": 64, "floor": False}
KINDS: dict[str, dict[str, Any]] = {
    "strict": {**STRICT, "checkpoint_every": 30},
    "paper": {**QUICK, "epochs": 4, "checkpoint_every": 2},
    "links": {"task": "link", "protect": "none", "floor": False, "checkpoint_every": 4},
}
STOP = {"strict": 63, "paper": 3, "links": 6}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    whole = town(200)
    path = tmp_path_factory.mktemp("graph") / "town.npz"
    np.savez(path, edges=whole.edge_list(), features=np.asarray(whole.features))
    return {"strict": "demo:60", "paper": "demo:60", "links": path}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, graphs: dict[str, Any]) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("finished")
    for kind, settings in KINDS.items():
        run = lumos.train(graphs[kind], out=out / kind, **settings)
        if kind == "links":
            assert run.ask_links(ids=[(0, 1), (2, 3)]).answered.all()
    return {kind: out / kind for kind in KINDS}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, graphs: dict[str, Any]) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("stopped")
    for kind, settings in KINDS.items():
        with pytest.raises(Pulled):
            lumos.train(graphs[kind], out=out / kind, on_epoch=until("run", STOP[kind]), **settings)
        assert (out / kind / "checkpoint.npz").exists()
    return {kind: out / kind for kind in KINDS}


def survives(action: Callable[[], object], folder: Path) -> bool:
    """Whether it worked; otherwise one line of ours, and no file is another."""
    before, said = contents(folder), None
    try:
        action()
    except LumosError as error:
        said = str(error)
    if said is None:
        return True
    assert said
    assert "\n" not in said
    assert {name: text for name, text in contents(folder).items() if name in before} == before
    return False


def use(folder: Path) -> None:
    """Everything that a finished run is for."""
    run = lumos.load_run(folder)
    run.summary()
    run.report(folder.parent / "page.html")
    if run.class_names:
        run.predict()
        file = folder.parent / "new.json"
        file.write_text(json.dumps([{"features": {"3": 1}, "neighbours": [1, 2]}]))
        predict_new_devices(run, read_new_devices(file, run.about.features))
    else:
        run.ask_links(ids=[(0, 1), (4, 5)])


WRONG: list[Any] = [
    None, True, -1, 0, 10**30, 1.5, float("nan"), "", "x", "../../x", "\n", [], [1], {}, {"a": 1},
    [[]], "inf",
]  # fmt: skip


def mutated(content: Any, rng: np.random.Generator) -> Any:
    """The same JSON with one value, key or item changed somewhere."""
    if isinstance(content, dict) and content and rng.random() < 0.85:
        key = list(content)[rng.integers(len(content))]
        rest = {name: value for name, value in content.items() if name != key}
        chance = rng.random()
        if chance < 0.15:
            return rest
        if chance < 0.2:
            return {**rest, f"{key}?": content[key]}
        return {**content, key: mutated(content[key], rng)}
    if isinstance(content, list) and content and rng.random() < 0.5:
        place = int(rng.integers(len(content)))
        return [*content[:place], mutated(content[place], rng), *content[place + 1 :]]
    return WRONG[rng.integers(len(WRONG))]


def changed_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Another shape, another kind, or other values."""
    ways: list[Callable[[], np.ndarray]] = [
        lambda: array[..., None],
        lambda: np.empty(0, array.dtype),
        lambda: np.concatenate([np.atleast_1d(array)] * 2),
        lambda: np.atleast_1d(array)[:-1],
        lambda: array.astype(np.str_),
        lambda: np.zeros(array.shape, np.complex64),
        lambda: np.zeros(array.shape, np.uint16),
        lambda: np.full(array.shape, 200, np.uint8).astype(
            array.dtype if array.dtype.kind in "iuf" else np.int64
        ),
        lambda: np.full(array.shape, -7, np.int64),
        lambda: np.full(array.shape, np.nan),
        lambda: np.array("{}"),
    ]
    return ways[rng.integers(len(ways))]()


def damage(path: Path, rng: np.random.Generator) -> None:
    """Change one array of an npz, or leave it out."""
    arrays: dict[str, Any] = read_arrays(path)
    name = list(arrays)[rng.integers(len(arrays))]
    if rng.random() < 0.2:
        del arrays[name]
    else:
        arrays[name] = changed_array(arrays[name], rng)
    np.savez(path, **arrays)


# What the findings name.


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("settings", "x"),
        ("settings", []),
        ("settings", {"profile": "lax"}),
        ("settings", {"profile": ["strict"]}),
        ("classes", ["art"]),
        ("classes", []),
        ("devices", 61),
        ("devices", -1),
        ("devices", 10**30),
        ("format", "5"),
    ],
)
@pytest.mark.parametrize("kind", ["strict", "paper"])
def test_run_json(
    kind: str, key: str, value: Any, finished: dict[str, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = Path(shutil.copytree(finished[kind], tmp_path / "run"))
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, key: value}))
    assert command(["predict", str(folder)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(folder) in said


def test_deep_json(finished: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished["strict"], tmp_path / "run"))
    for name in ("run.json", "result.json", "metrics.jsonl"):
        before = (folder / name).read_bytes()
        (folder / name).write_text("[" * 100_000)
        assert not survives(lambda: use(folder), folder)
        (folder / name).write_bytes(before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_without_its_ledger(
    kind: str, stopped: dict[str, Path], graphs: dict[str, Any], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(stopped[kind], tmp_path / "run"))
    state: dict[str, Any] = read_arrays(folder / "checkpoint.npz")
    np.savez(
        folder / "checkpoint.npz",
        **{name: array for name, array in state.items() if not name.startswith("ledger/")},
    )
    before = contents(folder)
    with pytest.raises(InputError, match=r"checkpoint\.npz"):
        lumos.train(graphs[kind], out=folder, resume=True, **KINDS[kind])
    assert contents(folder) == before


# Headers that announce more than there is.


def forged(path: Path, header: str, body: bytes = b"", size: int | None = None) -> None:
    """An npz with one array under a header of one's own; `size`: what the directory says."""
    text = header.encode().ljust(118) + b"\n"
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ids.npy", member)
    if size is not None:
        content = bytearray(path.read_bytes())
        place = content.index(b"PK\x01\x02")
        content[place + 24 : place + 28] = size.to_bytes(4, "little")
        path.write_bytes(bytes(content))


HEADERS = {
    "a trillion": ("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }", None),
    "many sides": ("{'descr': '<f8', 'fortran_order': False, 'shape': (99999, 99999, 9), }", None),
    "negative": ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -8), }", None),
    "objects": ("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", None),
    "wide text": ("{'descr': '<U999999999', 'fortran_order': False, 'shape': (9,), }", None),
    "fields": ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }", None),
    "no header": ("[" * 100, None),
    "directory": ("{'descr': '<f8', 'fortran_order': False, 'shape': (500000000,), }", 4 * 10**9),
}


def test_headers_ask_for_no_memory(finished: dict[str, Path], tmp_path: Path) -> None:
    """Every file of a folder and a graph with every such header, with little memory to ask for."""
    folder = Path(shutil.copytree(finished["strict"], tmp_path / "run"))
    places = []
    for number, (header, size) in enumerate(HEADERS.values()):
        forged(tmp_path / f"{number}.npz", header, bytes(24), size)
        places.append(str(tmp_path / f"{number}.npz"))
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as bomb:
        zeros = bytes(1 << 20)
        with bomb.open("edges.npy", "w", force_zip64=True) as member:
            member.write(b"\x93NUMPY\x01\x00\x76\x00")
            text = "{'descr': '|i1', 'fortran_order': False, 'shape': (524288000, 2), }"
            member.write(text.encode().ljust(117) + b"\n")
            for _ in range(1000):
                member.write(zeros)
    places.append(str(tmp_path / "bomb.npz"))
    program = """
import resource, shutil, sys
from pathlib import Path
import lumos, lumos.runs.load
from lumos.storage import read_arrays
now = int(open('/proc/self/statm').read().split()[5]) * 4096
resource.setrlimit(resource.RLIMIT_DATA, (now + (1 << 30), now + (1 << 30)))
folder, *places = map(Path, sys.argv[1:])
for place in places:
    for read in (read_arrays, lumos.load):
        try:
            read(place)
            print('read', place)
        except lumos.LumosError as error:
            assert '\\n' not in str(error) and 'MemoryError' not in str(error), error
            assert 'too large for the memory' not in str(error), error
    for name in ('devices', 'model', 'trees', 'ledger'):
        file = folder / f'{name}.npz'
        before = file.read_bytes()
        shutil.copy(place, file)
        try:
            lumos.load_run(folder)
            print('loaded', place)
        except lumos.LumosError as error:
            assert '\\n' not in str(error) and name in str(error), error
        file.write_bytes(before)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), *places],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


# The fuzz.


@pytest.mark.parametrize("kind", KINDS)
def test_fuzzed_json(kind: str, finished: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    folder = Path(shutil.copytree(finished[kind], tmp_path / "run"))
    refusals = 0
    for name, times in (("run.json", 24), ("result.json", 12)):
        before = (folder / name).read_bytes()
        for _ in range(times):
            (folder / name).write_text(json.dumps(mutated(json.loads(before), rng)))
            refusals += not survives(lambda: use(folder), folder)
        (folder / name).write_bytes(before)
    assert refusals > 8


@pytest.mark.parametrize("kind", KINDS)
def test_fuzzed_arrays(kind: str, finished: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    folder = Path(shutil.copytree(finished[kind], tmp_path / "run"))
    refusals = 0
    for path in sorted(folder.glob("*.npz")):
        before = path.read_bytes()
        for _ in range(6):
            path.write_bytes(before)
            damage(path, rng)
            refusals += not survives(lambda: use(folder), folder)
            if rng.random() < 0.2:
                path.write_bytes(before[: int(rng.integers(len(before)))])
                refusals += not survives(lambda: use(folder), folder)
        path.write_bytes(before)
    assert refusals > 8


@pytest.mark.parametrize("kind", KINDS)
def test_fuzzed_checkpoints(
    kind: str, stopped: dict[str, Path], graphs: dict[str, Any], tmp_path: Path
) -> None:
    rng = np.random.default_rng(2)
    refusals = 0
    for number in range(6):
        folder = Path(shutil.copytree(stopped[kind], tmp_path / str(number)))
        damage(folder / "checkpoint.npz", rng)

        def resume(place: Path = folder) -> None:
            lumos.train(graphs[kind], out=place, resume=True, **KINDS[kind])

        refusals += not survives(resume, folder)
    assert refusals > 1


@pytest.mark.parametrize("kind", ["strict", "paper"])
def test_fuzzed_new_devices(kind: str, finished: dict[str, Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    run = lumos.load_run(finished[kind])
    good = [{"id": "me", "features": {"3": 1.0, "599": 0.5}, "neighbours": [17, "4"]}]
    dense = [{"features": [0.0] * 600, "neighbours": []}]
    file = tmp_path / "new.json"
    refusals = 0
    for number in range(30):
        file.write_text(json.dumps(mutated([good, dense][number % 2], rng)))
        refusals += not survives(
            lambda: predict_new_devices(run, read_new_devices(file, run.about.features)), tmp_path
        )
    file.write_text("[" * 100_000)
    assert not survives(lambda: read_new_devices(file, 600), tmp_path)
    assert refusals > 5


def test_fuzzed_accounts(tmp_path: Path) -> None:
    """Through the public command only: what an account must hold is its own module's to say."""
    rng = np.random.default_rng(4)
    file = tmp_path / "account.npz"
    lumos.train("demo:60", account=tmp_path, **STRICT)
    before = file.read_bytes()
    refusals = 0
    for _ in range(5):
        file.write_bytes(before)
        damage(file, rng)
        refusals += not survives(lambda: lumos.train("demo:60", account=tmp_path, **STRICT), file)
    assert refusals > 0
