"""Saved models that are not what they should be, for the tests of loading."""

import hashlib
import json
import struct

from tilewright.runtime.container import PAGE


def rewrite(path, change):
    """Change the manifest of a file and make its digests fit: what a faulty or hostile writer could do."""
    whole = path.read_bytes()
    (manifest_bytes,) = struct.unpack_from("<Q", whole, 16)
    changed = change(json.loads(whole[64 : 64 + manifest_bytes]))
    text = changed if isinstance(changed, bytes) else json.dumps(changed).encode()
    old_base, new_base = (-(-(64 + size) // PAGE) * PAGE for size in (manifest_bytes, len(text)))
    rest = whole[old_base:]
    digest = hashlib.sha256(text).digest()
    header = whole[:16] + struct.pack("<QQ", len(text), new_base + len(rest)) + digest
    path.write_bytes((header + text).ljust(new_base, b"\0") + rest)
