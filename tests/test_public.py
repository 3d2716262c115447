"""The flat public namespace: complete, lazy, and light to import."""

import subprocess
import sys

import lumos


def test_every_public_name_resolves() -> None:
    for name in lumos.__all__:
        assert getattr(lumos, name).__module__.startswith("lumos.")
    assert lumos.__all__ == sorted(lumos.__all__)
    assert set(lumos.__all__) == set(lumos._HOMES)
    assert set(lumos.__all__) <= set(dir(lumos))


def test_importing_lumos_is_light() -> None:
    code = "import sys, lumos; print([m for m in ('torch', 'scipy', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_trees_need_no_torch() -> None:
    code = (
        "import sys, lumos; "
        "lumos.balance(lumos.load('demo:20'), lumos.TreeSettings(compare='ideal')); "
        "print([m for m in ('torch', 'torch_geometric', 'networkx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
