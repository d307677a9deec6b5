import os
import subprocess
import sys
from dataclasses import replace

import pytest

from tilewright.codegen.llvm import cache as module
from tilewright.codegen.llvm.cache import ObjectCache, open_cache
from tilewright.support import read_settings

KEY = "ab" + "0" * 38


def stored(cache):
    return sorted(path.name for path in cache.folder.rglob("*") if path.is_file())


def test_round_trip(tmp_path):
    cache = ObjectCache(tmp_path / "new" / "folder")
    assert cache.get(KEY) is None
    cache.put(KEY, b"object")
    assert ObjectCache(cache.folder).get(KEY) == b"object"
    cache.put(KEY, b"another")
    assert cache.get(KEY) == b"another"
    assert stored(cache) == [f"{KEY}.o"]
    assert cache.folder.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: b"",
        lambda raw: raw[:10],
        lambda raw: raw[:-1],
        lambda raw: raw + b"x",
        lambda raw: raw[:-1] + b"?",
        lambda raw: b"X" + raw[1:],
        lambda raw: raw[:6] + b"\xff\xff" + raw[8:],
    ],
    ids=["empty", "header cut", "content cut", "longer", "content changed", "magic", "version"],
)
def test_a_damaged_file_counts_as_absent_and_is_rebuilt(tmp_path, damage):
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"object")
    path = tmp_path / "ab" / f"{KEY}.o"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, b"object")
    assert cache.get(KEY) == b"object"


def test_the_longest_unused_go_first(tmp_path):
    cache = ObjectCache(tmp_path, size_bound=10_000)
    keys = [f"{n:02x}" + "0" * 37 + "1" for n in range(20)]  # none of them asks to look
    for age, key in enumerate(keys):
        cache.put(key, bytes(1000))
        os.utime(tmp_path / key[:2] / f"{key}.o", (1000 + age, 1000 + age))
    assert cache.get(keys[0]) is not None  # used now: the newest
    cache.evict()
    kept = [key for key in keys if (tmp_path / key[:2] / f"{key}.o").exists()]
    assert kept == [keys[0], *keys[-6:]]  # 7,500 bytes hold seven files of 1,036
    before = stored(cache)
    cache.evict()
    assert stored(cache) == before


def test_one_write_of_many_looks_at_the_size(tmp_path):
    cache = ObjectCache(tmp_path, size_bound=1000)
    for n in range(1, module.WRITES_BETWEEN_CHECKS):
        cache.put(f"{n:040x}", bytes(100))
    assert len(stored(cache)) == module.WRITES_BETWEEN_CHECKS - 1
    cache.put(f"{module.WRITES_BETWEEN_CHECKS:040x}", bytes(100))
    assert len(stored(cache)) == 5  # 750 bytes hold five files of 136


def test_temporaries_of_dead_processes_go(tmp_path):
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"object")
    for name, age in (("old", 10_000.0), ("young", 10.0)):
        path = tmp_path / "ab" / f"{module.TEMPORARY_PREFIX}{name}"
        path.write_bytes(b"half")
        now = (tmp_path / "ab" / f"{KEY}.o").stat().st_mtime
        os.utime(path, (now - age, now - age))
    cache.evict()
    assert stored(cache) == [".new-young", f"{KEY}.o"]


def test_a_folder_that_others_can_write_is_not_used(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    cache = ObjectCache(tmp_path / "shared")
    cache.put(KEY, b"object")
    assert cache.get(KEY) is None
    assert stored(cache) == []


def test_an_unusable_folder_costs_nothing_but_time(tmp_path):
    (tmp_path / "file").write_text("no folder")
    cache = ObjectCache(tmp_path / "file" / "objects")
    cache.put(KEY, b"object")
    assert cache.get(KEY) is None


def test_concurrent_writers_and_readers_see_whole_files(tmp_path):
    code = f"""
import pathlib
from tilewright.codegen.llvm.cache import ObjectCache
cache = ObjectCache(pathlib.Path({str(tmp_path)!r}), size_bound=200_000)
for n in range(300):
    key = f"{{n % 7:02x}}" + "0" * 38
    found = cache.get(key)
    assert found is None or (len(found) == 20_000 + n % 7 and len(set(found)) == 1), len(found)
    cache.put(key, bytes([n % 251]) * (20_000 + n % 7))
"""
    runs = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(3)]
    for run in runs:
        errors = run.communicate()[1]
        assert (run.returncode, errors) == (0, b"")
    assert not [name for name in stored(ObjectCache(tmp_path)) if name.startswith(".new")]


def test_settings_decide(tmp_path):
    settings = replace(read_settings({"HOME": str(tmp_path)}), cache_dir=tmp_path)
    cache = open_cache(settings)
    assert cache is not None
    assert cache.folder == tmp_path / "objects" / "v1"
    assert open_cache(replace(settings, cache=False)) is None
