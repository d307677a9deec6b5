"""Output files: regular ones only, links followed, the umask honoured, nothing lost where writing fails."""

import os
import stat
from pathlib import Path

import pytest

from tilewright.support import replaceable, replacing


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as file:
        file.write(content)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_files_get_the_permissions_of_the_umask(tmp_path: Path) -> None:
    for mask, wanted in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            write(tmp_path / f"{mask:o}")
        finally:
            os.umask(before)
        assert mode(tmp_path / f"{mask:o}") == wanted


def test_files_that_are_there_keep_their_permissions(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write(path)
    assert (path.read_bytes(), mode(path)) == (b"new", 0o640)


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link, dangling = tmp_path / "there" / "f", tmp_path / "link", tmp_path / "dangling"
    target.write_bytes(b"old")
    link.symlink_to(target)
    dangling.symlink_to(tmp_path / "there" / "g")
    write(link)
    write(dangling)
    assert link.is_symlink()
    assert dangling.is_symlink()
    assert target.read_bytes() == (tmp_path / "there" / "g").read_bytes() == b"new"


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    link = tmp_path / "link"
    link.symlink_to("/dev/full")
    for path in (tmp_path / "pipe", link, Path("/dev/full"), tmp_path):
        with pytest.raises(OSError, match=r"not a regular file|a directory"):
            replaceable(path)
        with pytest.raises(OSError, match=r"not a regular file|a directory"):
            write(path)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert Path("/dev/full").is_char_device()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_failures_leave_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]
    with pytest.raises(OSError, match="No such file"):
        write(tmp_path / "missing" / "f")
