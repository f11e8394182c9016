"""Makes an sdist one file wherever and whenever it is built: even times, owners and order in the archive.

SOURCE_DATE_EPOCH=1700000000 python .ci/even_sdist.py dist/*.tar.gz
"""

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path


def even(path: Path, moment: int) -> None:
    """Rewrite the archive at `path`: `moment` is the time of all members, and nobody their owner."""
    unpacked = io.BytesIO()
    with (
        tarfile.open(path) as old,
        tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            content = old.extractfile(member) if member.isfile() else None
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, moment
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, content)
    packed = gzip.compress(unpacked.getvalue(), mtime=moment)
    beside = path.with_suffix(".even")
    beside.write_bytes(packed)
    beside.replace(path)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        even(Path(name), int(os.environ["SOURCE_DATE_EPOCH"]))
