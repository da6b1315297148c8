"""Zip archives, looked at before anything is unpacked: where each member lies, and whether it can be so.

The standard library reads the directory. What torch and numpy would take on trust is checked here:
that members lie inside the file, beside each other, once each, and are as large as they say.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from dataclasses import dataclass

from truecopy.errors import CannotRead
from truecopy.files.opening import Source, refusing

_LOCAL_HEADER = struct.Struct("<4s22xHH")
_MOST_DEFLATED = 1032
"""Deflate cannot make more bytes from one: https://zlib.net/zlib_tech.html"""
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One file in an archive."""

    name: str
    offset: int  # of its first byte in the archive
    stored: int
    size: int
    deflated: bool
    crc: int


def members_of(source: Source) -> dict[str, Member]:
    """The members by name, in the order of the directory."""
    with refusing(source, "zip archive"), zipfile.ZipFile(source.file) as archive:
        infos = archive.infolist()
    found: dict[str, Member] = {}
    for info in infos:
        if info.filename in found:
            raise _refusal(source, info.filename, "is there twice", "every name once")
        found[info.filename] = _member(source, info)
    _refuse_overlap(source, found)
    return found


def _refusal(
    source: Source, name: str, what: str, expected: str, got: str | None = None
) -> CannotRead:
    return CannotRead(
        f"is no sound archive: its member {name!r} {what}",
        where=str(source.path),
        expected=expected,
        got=got,
        way_out="Copy or download the file again; if it stays so, do not trust it",
    )


def _member(source: Source, info: zipfile.ZipInfo) -> Member:
    if info.flag_bits & 0x1:
        raise _refusal(source, info.filename, "is encrypted", "plain members")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise _refusal(
            source, info.filename, "is compressed in an unusual way", "stored or deflated members"
        )
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    most = info.compress_size * _MOST_DEFLATED + 64 if deflated else info.compress_size
    if info.file_size > most or (not deflated and info.file_size != info.compress_size):
        raise _refusal(
            source, info.filename, "cannot be as large as it says",
            f"at most {most:,} bytes from the {info.compress_size:,} that are stored",
            f"{info.file_size:,}",
        )  # fmt: skip
    header = source.read_at(info.header_offset, _LOCAL_HEADER.size)
    mark, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    offset = info.header_offset + _LOCAL_HEADER.size + name_length + extra_length
    if mark != b"PK\x03\x04" or offset + info.compress_size > source.size:
        raise _refusal(source, info.filename, "lies beyond the end of the file", "a whole archive")
    return Member(
        info.filename, offset, info.compress_size, info.file_size, deflated, info.CRC
    )  # fmt: skip


def _refuse_overlap(source: Source, members: dict[str, Member]) -> None:
    end = 0
    for member in sorted(members.values(), key=lambda m: (m.offset, m.stored)):
        if member.offset < end:
            raise _refusal(source, member.name, "overlaps another", "members beside each other")
        end = member.offset + member.stored


def refuse_bomb(source: Source, members: dict[str, Member]) -> None:
    """Refuse archives that unpack to more than this machine has."""
    total = sum(member.size for member in members.values() if member.deflated)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if total > memory:
        raise CannotRead(
            "unpacks to more than fits into memory",
            where=str(source.path),
            expected=f"at most the {memory:,} bytes of this machine",
            got=f"{total:,} bytes from a file of {source.size:,}",
        )


def check_sums(source: Source, members: dict[str, Member]) -> None:
    """Read every stored member once and compare its checksum.

    torch can be told to write no checksums (torch.serialization.set_crc32_options); then none is
    right, and there is nothing to compare.
    """
    wrong = [
        m for m in members.values() if m.stored and not m.deflated and _sum(source, m) != m.crc
    ]
    if wrong and len(wrong) < sum(1 for m in members.values() if m.stored):
        raise CannotRead(
            f"is damaged: the bytes of its member {wrong[0].name!r} are not those that "
            "were written",
            where=str(source.path),
            expected=f"checksum {wrong[0].crc:08x}",
            got=f"{_sum(source, wrong[0]):08x}",
            way_out="Copy or download the file again",
        )


def _sum(source: Source, member: Member) -> int:
    source.file.seek(member.offset)
    left, found = member.stored, 0
    while left:
        chunk = source.file.read(min(left, _CHUNK))
        if not chunk:
            break
        found = zlib.crc32(chunk, found)
        left -= len(chunk)
    return found
