import dataclasses
import os
import re
from pathlib import Path

import pytest

from tilewright.support import (
    Settings,
    SettingsError,
    WaitPolicy,
    available_cpus,
    cpu_quota,
    read_settings,
    settings as settings_module,
)


def test_defaults():
    settings = read_settings({"HOME": "/home/u"})
    assert settings == Settings(cache_dir=Path("/home/u/.cache/tilewright"))
    assert settings.thread_count == available_cpus() >= 1


def test_xdg_cache_home_counts_when_absolute():
    given = {"HOME": "/home/u", "XDG_CACHE_HOME": "/c"}
    assert read_settings(given).cache_dir == Path("/c/tilewright")
    assert read_settings(given | {"XDG_CACHE_HOME": "c"}).cache_dir == Path("/home/u/.cache/tilewright")


def test_without_a_home_folder_the_cache_needs_a_place(monkeypatch):
    def nobody(_):
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    with pytest.raises(SettingsError, match=r"(?s)no home folder.*TILEWRIGHT_CACHE_DIR"):
        read_settings({})
    assert read_settings({"TILEWRIGHT_CACHE_DIR": "/x"}).cache_dir == Path("/x")
    assert read_settings({"XDG_CACHE_HOME": "/c"}).cache_dir == Path("/c/tilewright")


def test_every_field_has_a_variable():
    texts = {
        "cache_dir": ("/x", Path("/x")),
        "cache": ("off", False),
        "threads": ("3", 3),
        "wait_policy": ("passive", WaitPolicy.PASSIVE),
        "pin_threads": ("1", True),
        "compile_jobs": ("2", 2),
        "records": ("/r.db", "/r.db"),
        "log_level": ("debug", "DEBUG"),
    }
    assert set(texts) == {field.name for field in dataclasses.fields(Settings)}
    settings = read_settings({f"TILEWRIGHT_{name.upper()}": text for name, (text, _) in texts.items()})
    for name, (_, value) in texts.items():
        assert getattr(settings, name) == value


def test_unknown_variable_is_refused_with_a_suggestion():
    with pytest.raises(SettingsError, match=r"(?s)TILEWRIGHT_THREAD\b.*did you mean 'TILEWRIGHT_THREADS'"):
        read_settings({"TILEWRIGHT_THREAD": "2"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("THREADS", "0"),
        ("THREADS", "-1"),
        ("THREADS", "²"),
        ("CACHE", "maybe"),
        ("WAIT_POLICY", "always"),
        ("LOG_LEVEL", "x"),
        ("CACHE_DIR", "~nobody-of-that-name/x"),
        ("RECORDS", "~nobody-of-that-name/r.db"),
    ],
)
def test_bad_value_is_refused_by_name(name, text):
    with pytest.raises(SettingsError, match=f"TILEWRIGHT_{name}="):
        read_settings({f"TILEWRIGHT_{name}": text})


def test_reads_the_environment(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_THREADS", "17")
    assert read_settings().threads == 17
    assert available_cpus() == len(os.sched_getaffinity(0))


def test_the_tutorial_lists_every_variable():
    text = (Path(__file__).parents[3] / "docs" / "tutorials" / "deployment.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `TILEWRIGHT_(\w+)` \|", text, re.MULTILINE))
    assert named == {field.name.upper() for field in dataclasses.fields(Settings)}


def _group(root, line, **files):
    (root / "proc/self").mkdir(parents=True, exist_ok=True)
    with (root / "proc/self/cgroup").open("a") as groups:
        groups.write(line + "\n")
    for name, text in files.items():
        place = (
            root
            / "sys/fs/cgroup"
            / name.replace("__", "/").replace("cfs_", "cpu.cfs_").replace("MAX", "cpu.max")
        )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def test_quotas_of_control_groups(tmp_path):
    assert cpu_quota(tmp_path) is None
    for at, (files, wanted) in enumerate(
        [
            ({}, None),
            ({"a__b__MAX": "max 100000\n"}, None),
            ({"a__b__MAX": "150000 100000\n"}, 1.5),
            ({"a__b__MAX": "150000 100000\n", "a__MAX": "50000 100000\n"}, 0.5),
            ({"a__b__MAX": "max 100000\n", "MAX": "400000 100000\n"}, 4.0),
            ({"a__b__MAX": "nonsense\n"}, None),
        ]
    ):
        root = tmp_path / str(at)
        _group(root, "0::/a/b", **files)
        assert cpu_quota(root) == wanted, files


def test_quotas_of_control_groups_of_the_first_version(tmp_path):
    quota, period = "cpu__c__cfs_quota_us", "cpu__c__cfs_period_us"
    _group(tmp_path, "5:memory:/c")
    _group(tmp_path, "4:cpu,cpuacct:/c", **{quota: "250000\n", period: "100000\n"})
    assert cpu_quota(tmp_path) == 2.5
    _group(tmp_path, "", **{quota: "-1\n"})
    assert cpu_quota(tmp_path) is None


def test_available_cpus_are_no_more_than_the_quota(monkeypatch):
    for quota, cpus, wanted in ((None, 8, 8), (2.0, 8, 2), (1.5, 8, 2), (0.3, 8, 1), (20.0, 8, 8)):
        monkeypatch.setattr(settings_module, "cpu_quota", lambda quota=quota: quota)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cpus=cpus: set(range(cpus)))
        assert available_cpus() == wanted
