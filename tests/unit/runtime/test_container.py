"""The file of a saved model: damage of any kind is one clear error, and nothing is half-written."""

import struct

import pytest
from hypothesis import given, strategies as st

from saved_models import rewrite
from tilewright.runtime.container import FORMAT, PAGE, open_container, write_container
from tilewright.support import ArtefactError

SECTIONS = {"code": [b"some", b"thing"], "weights": [memoryview(bytes(range(256)) * 40)], "nothing": []}


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "m.tw"
    write_container(file, {"schema": 1, "name": "x\ny\u00e9"}, SECTIONS)
    return file


def _refused(path, **options):
    with pytest.raises(ArtefactError) as caught:
        open_container(path, **options)
    assert path.name in str(caught.value)
    return str(caught.value)


def test_what_is_written_is_read(path):
    container = open_container(path)
    assert container.manifest["name"] == "x\ny\u00e9"
    assert {name: bytes(content) for name, content in container.sections.items()} == {
        name: b"".join(pieces) for name, pieces in SECTIONS.items()
    }


def test_sections_begin_at_pages(path):
    sections = open_container(path).manifest["sections"]
    assert all(entry["offset"] % PAGE == 0 for entry in sections.values())
    assert path.stat().st_size % PAGE == 0


def test_every_truncation_is_refused(path):
    whole = path.read_bytes()
    for size in (0, 1, 8, 20, 63, 64, 100, 200, PAGE, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert any(word in _refused(path) for word in ("cut short", "not a saved model", "was written with"))
    path.write_bytes(whole + b"\0")
    assert "was written with" in _refused(path)


def test_a_changed_byte_anywhere_is_found(path):
    whole = path.read_bytes()
    sections = open_container(path).manifest["sections"]
    (manifest_bytes,) = struct.unpack_from("<Q", whole, 16)
    base = -(-(64 + manifest_bytes) // PAGE) * PAGE
    places = [*range(0, 64, 3), 64, 64 + manifest_bytes - 1]
    places += [base + sections[name]["offset"] + 5 for name in ("code", "weights")]
    for at in places:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        _refused(path)


@given(st.data())
def test_random_damage_is_found_or_harmless(tmp_path_factory, data):
    """What lies between the parts of a file is not read; all else is covered by a digest or a check."""
    file = tmp_path_factory.getbasetemp() / "random.tw"
    write_container(file, {"schema": 1, "name": "x"}, SECTIONS)
    whole = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(whole)
    try:
        container = open_container(file)
    except ArtefactError:
        return
    assert container.manifest["name"] == "x"
    for name, pieces in SECTIONS.items():
        assert bytes(container.sections[name]) == b"".join(pieces)


def test_sections_are_checked_only_if_wanted(path):
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"something", b"somethinG"))
    assert "'code' of" in _refused(path).replace('"', "'") and "altered" in _refused(path)
    assert bytes(open_container(path, verify=False).sections["code"]) == b"somethinG"


def test_other_versions_are_named(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:8] + struct.pack("<I", FORMAT + 1) + whole[12:])
    message = _refused(path)
    assert f"format {FORMAT + 1}" in message and "newer Tilewright" in message


def test_other_files_are_refused(tmp_path):
    other = tmp_path / "model.onnx"
    other.write_bytes(b"ONNX or something" * 10)
    assert "not a saved model" in _refused(other)
    assert "cannot read" in _refused(tmp_path / "nothing.tw")
    assert "cannot read" in _refused(tmp_path)


@pytest.mark.parametrize(
    "sections",
    [
        None,
        [],
        {"code": None},
        {"code": {"offset": 1, "bytes": 1, "sha256": ""}},
        {"code": {"offset": -PAGE, "bytes": 1, "sha256": ""}},
        {"code": {"offset": 0, "bytes": 1 << 60, "sha256": ""}},
        {"code": {"offset": True, "bytes": 0, "sha256": ""}},
    ],
)
def test_manifests_that_lie_are_refused(path, sections):
    rewrite(path, lambda manifest: manifest | {"sections": sections})
    _refused(path)


@pytest.mark.parametrize("text", [b"", b"[" * 100_000, b"[]", b"{", b"\xff"])
def test_manifests_that_are_no_object_are_refused(path, text):
    rewrite(path, lambda manifest: text)
    _refused(path)


def test_a_long_path_is_shown_to_its_end(tmp_path):
    deep = tmp_path.joinpath(*["folder" * 10] * 4)
    deep.mkdir(parents=True)
    assert "nothing.tw" in _refused(deep / "nothing.tw")


def test_nothing_is_left_where_writing_fails(tmp_path, path):
    before = path.read_bytes()
    folder = tmp_path / "folder"
    folder.mkdir()
    for target in (folder, tmp_path / "no" / "where.tw"):
        with pytest.raises(ArtefactError, match="cannot write"):
            write_container(target, {"schema": 1}, SECTIONS)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["folder", "m.tw"]
    write_container(path, {"schema": 1}, {})
    assert path.read_bytes() != before and path.stat().st_mode & 0o777 == 0o644


def test_a_file_in_use_can_be_replaced(path):
    container = open_container(path)
    write_container(path, {"schema": 1}, {"weights": [b"other"]})
    assert bytes(container.sections["code"]) == b"something"
