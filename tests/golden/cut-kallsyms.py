#!/usr/bin/env python3
"""Cuts the first symbols out of a memory image's kallsyms tables, for floor-1 tests.

  tests/golden/cut-kallsyms.py build/images/6.1-nokaslr 1024 tests/golden/kallsyms-6.1

Names, tokens, offsets and base are the kernel's own bytes; the count is set to what is left
and the markers end there. Offsets from where they stand themselves are made anew, for tables that
begin at START. Writes OUT.bin and OUT.txt ("address kind name", the guest's words).
"""
import mmap
import struct
import sys

START = 0xFFFFFFFF81E00000  # as in tests/unit/kallsyms.c
image, keep, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
lines = [l.rstrip("\n") for l in open(f"{image}/kallsyms") if "[" not in l]
total = len(lines)
file = open(f"{image}/memory", "rb")
memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def align(value):
    return (value + unit - 1) & -unit


def find_tables():
    """Offsets of num_syms, token table and token index: by the true number of symbols."""
    digits = b"".join(b"%d\0" % d for d in range(10))
    at = -1
    while (at := memory.find(digits, at + 1)) >= 0:
        number = struct.pack("<I", total) + bytes(unit - 4)
        count = memory.rfind(number, max(0, at - (8 << 20)), at)
        if count < 0 or count % unit:
            continue
        for table in range(align(at - 1024), at, unit):
            tokens = bytes(memory[table:table + 65536]).split(b"\0")[:256]
            index, sum_ = [], 0
            for token in tokens:
                index.append(sum_)
                sum_ += len(token) + 1
            place = table + align(sum_)
            if memory[place:place + 512] == struct.pack("<256H", *index):
                return count, table, place
    return None


for unit in 8, 4:  # bytes to which tables are aligned
    if found := find_tables():
        break
else:
    sys.exit("no tables found")
count, table, index = found
names = count + unit
at, markers = names, []
for i in range(keep):
    if i % 256 == 0:
        markers.append(at - names)
    length = memory[at]
    at += 1
    if length & 0x80:
        length = (length & 0x7F) | memory[at] << 7
        at += 1
    at += length


def padded(data):
    return bytes(data) + bytes(align(len(data)) - len(data))


old_size = align(4 * total)
text = int(next(l for l in lines if l.endswith(" _text")).split()[0], 16)
before = count - 8 - old_size
name_part = struct.pack("<I", keep) + bytes(unit - 4) + padded(memory[names:at])
name_part += padded(struct.pack(f"<{len(markers)}I", *markers))
token_part = padded(memory[table:index]) + bytes(memory[index:index + 512])


def base_at(place):
    return struct.unpack("<Q", memory[place:place + 8])[0]


if base_at(count - 8) == text:  # offsets before the names
    data = padded(memory[before:before + 4 * keep]) + bytes(memory[count - 8:count])
    data += name_part + bytes(range(1, 241)) + token_part
elif base_at(index + 512 + old_size) == text:
    offsets = index + 512
    data = name_part + token_part + padded(memory[offsets:offsets + 4 * keep])
    data += bytes(memory[offsets + old_size:offsets + old_size + 8]) + bytes(range(1, 241))
elif unit == 4:  # each from its own place; no base
    data = name_part + token_part
    place = START + 64 + len(data)
    for i, line in enumerate(lines[:keep]):
        data += struct.pack("<i", int(line.split()[0], 16) - (place + 4 * i))
    data += bytes(range(1, 241))
else:
    sys.exit("no base found")
open(out + ".bin", "wb").write(bytes(64) + data + bytes(64))
open(out + ".txt", "w").write("".join(l + "\n" for l in lines[:keep]))
print(f"{out}: {keep} of {total} symbols, _text {text:#x}, {len(data)} bytes")
