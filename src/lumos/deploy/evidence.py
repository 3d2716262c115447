"""Evidence against devices on disk: files of the coordinator that anybody can check.

A file is public, and checked with public files: the certificate of the authority, the directory of
certificates and the signed plan of the run. All three lie in the folder of every participant. The
contents of a file are `lumos.secagg.evidence.EvidenceFile`.
"""

import shutil
from contextlib import suppress
from pathlib import Path

from lumos.deploy.identity import (
    AUTHORITY,
    DIRECTORY,
    CertifiedSignatures,
    Directory,
    described,
    read_authority,
    read_small,
)
from lumos.deploy.plan import NAME, read_plan
from lumos.deploy.state import EVIDENCE, evidence_name
from lumos.errors import InputError
from lumos.secagg import signing
from lumos.secagg.evidence import MAX_FILE, EvidenceFile
from lumos.storage import private_folder


def kept_evidence(folder: Path, devices: list[int], plan: bytes) -> dict[str, str]:
    """Return the files of evidence of a run in the coordinator's folder, by device."""
    found = {}
    for device in sorted(devices):
        path = folder / EVIDENCE / evidence_name(device)
        if path.is_file():
            with suppress(InputError):  # left by an earlier version of Lumos
                if EvidenceFile.read(path.read_bytes()).plan == plan:
                    found[str(device)] = f"{EVIDENCE}/{path.name}"
    return found


def copy_evidence(folder: Path, run: Path, files: dict[str, str]) -> None:
    """Copy files of evidence into a run folder, with the public files that check them."""
    if files:
        private_folder(run / EVIDENCE)
        for name in (*files.values(), AUTHORITY, DIRECTORY, NAME):
            shutil.copyfile(folder / name, run / EVIDENCE / Path(name).name)


def check_evidence(path: Path, folder: Path) -> EvidenceFile:
    """Check that a device has signed what a file of evidence shows.

    Args:
        path: the file.
        folder: with `authority.pem`, `directory.json` and `run.json` of the run, as every
            participant has them.

    Raises:
        InputError: a file cannot be read, is of another run, or proves no lie.
    """
    certificate, _ = read_authority(folder)
    directory, plan = Directory.load(folder / DIRECTORY, certificate), read_plan(folder)
    content = read_small(path, largest=MAX_FILE)
    try:
        found = EvidenceFile.read(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if found.plan != plan.tag:
        raise InputError(
            f"{path}: is of the run {found.plan.hex()[:12]}, and {folder} of {plan.tag.hex()[:12]}"
        )
    with signing.within(CertifiedSignatures(None, directory, plan.tag)):
        proves = found.proves()
    if not proves:
        raise InputError(
            f"{path}: proves nothing: {described(found.device)} has not signed this, or what it "
            "signed is no lie"
        )
    return found
