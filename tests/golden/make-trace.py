#!/usr/bin/env python3
"""Makes the small trace that the tests of report, export and diff read: tests/golden/tasks.fxt.

  tests/golden/make-trace.py tests/golden/tasks.fxt

Written from docs/trace-format.md with no code of the project's, so that it checks the reader as well.
Two vCPUs for 100 ms at 1000 Hz: startup code, then two processes with kernel and user stacks, one that
changes its name, names made to break formats, partial records, ticks that were lost. `slower` as a
second argument makes the function "compute" take twice the ticks, for diff: tests/golden/slower.fxt.
"""
import struct
import sys

out = open(sys.argv[1], "wb")
slower = len(sys.argv) > 2 and sys.argv[2] == "slower"
PERIOD = 1_000_000
KERNEL = 0xFFFFFFFF81000000
MODULE = 0xFFFFFFFFC0000000


def words(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def padded(data):
    return data + bytes(-len(data) % 8)


def record(kind, fields, body):
    out.write(words(kind | (1 + len(body) // 8) << 4 | fields) + body)


def text_ref(data):
    return (0x8000 | len(data)) if data else 0


def argument(name, value):
    if isinstance(value, str):
        head, body = 6 | text_ref(value.encode()) << 32, padded(value.encode())
    else:
        head, body = 4, words(value)
    body = padded(name.encode()) + body
    return words(head | (1 + len(body) // 8) << 4 | text_ref(name.encode()) << 16) + body


def event(kind, time, thread, category, name, arguments, extra=b""):
    body = words(time, 0x40000000, thread) + padded(category) + padded(name)
    body += b"".join(argument(*a) for a in arguments) + extra
    record(4, kind << 16 | len(arguments) << 20 | text_ref(category) << 32 | text_ref(name) << 48, body)


def task_name(kind, koid, name, process=None):
    body, count = words(koid) + padded(name), 0
    if process is not None:
        key, count = b"process", 1
        body += words(8 | 3 << 4 | text_ref(key) << 16) + padded(key) + words(process)
    record(7, kind << 16 | text_ref(name) << 24 | count << 40, body)


def blob(kind, name, payload):
    body = padded(name) + padded(payload)
    record(5, text_ref(name) << 16 | len(payload) << 32 | kind << 48, body)


def symbol(kind, start, size, name):
    return struct.pack("<QQII", start, size, kind, len(name)) + padded(name)


def sample(time, vcpu, mode, stack=None, task=None, kernel=None, part=None, completes=None):
    flags, body = 0x10 | 0x40 | 0x80, []
    if part is not None:
        flags |= 1
        body.append(part)
    if completes is not None:
        flags |= 2
        body.append(completes)
    if task:
        flags |= 0xC
        body += task
    body.append(time)
    if stack is not None:
        flags |= 0x20 | 0x100
        body += [len(stack)] + stack
    body += [vcpu, mode]
    if stack is not None:
        body.append(1)
    if kernel is not None:
        flags |= 0x800
        body.append(kernel)
    blob(4, b"guestprof.sample", words(flags, *body))


USER, SYSTEM, HALTED, VMM, NOT_STARTED = 1, 2, 3, 4, 5
FUNCTIONS = {  # name: (kind, start)
    "start_kernel": (0, KERNEL), "schedule": (0, KERNEL + 0x100), "do_syscall_64": (0, KERNEL + 0x200),
    "ext4_read": (1, MODULE), "main": (2, 0x401000), "compute": (2, 0x401100),
    "recurse": (2, 0x401200), 'odd;name "x"\n\x1b[31m|<b>': (2, 0x401300),
    "startup_64": (3, 0x1000000),
}


def at(name, offset=0x10):
    return FUNCTIONS[name][1] + offset


out.write(words(0x0016547846040010))
record(0, 1 << 16 | 1 << 20 | 9 << 52, padded(b"guestprof"))
record(1, 0, words(1_000_000_000))
event(0, 1, 0x40000000, b"guestprof", b"session", [
    ("version", "0.1.0"), ("period_ns", PERIOD), ("depth", 64), ("vcpus", 2), ("tick_source", "timer"),
    ("kernel", "vmlinuz"), ("command_line", "console=ttyS0 quiet")])
task_name(1, 100, b"sh")
task_name(2, 100, b"sh", 100)
task_name(1, 200, b"evil;\x1b]0;\n\"")
task_name(2, 201, b"worker |x|", 200)
task_name(1, 0, b"swapper")
task_name(2, 0, b"swapper", 0)
start = 1_000_000_000
for i in range(100):  # vCPU 0
    now = start + i * PERIOD
    if i < 10:
        sample(now, 0, SYSTEM, [at("startup_64"), at("startup_64", 0x20)])
    elif i < 20:
        sample(now, 0, SYSTEM, [at("schedule"), at("start_kernel")], [0, 0], 2)
    elif i == 20:
        task_name(1, 100, b"make")
        task_name(2, 100, b"make", 100)
        sample(now, 0, SYSTEM, part=7)
    elif i == 21:
        sample(now, 0, SYSTEM, part=7)
    elif i < 60:
        sample(now, 0, USER, [at("compute"), at("main")], [100, 100], 0, completes=7 if i == 22 else None)
    elif i < 80:
        sample(now, 0, SYSTEM, [at("ext4_read"), at("do_syscall_64"), at("recurse"), at("recurse"),
                                at("main")], [100, 100], 2)
    elif i < 90:
        sample(now, 0, VMM, [KERNEL + 0x5000, at("start_kernel")], [0, 0], 2)
    else:
        sample(now, 0, HALTED, task=[0, 0])
for i in range(95):  # vCPU 1
    now = start + i * PERIOD + 300_000
    if i < 20:
        sample(now, 1, NOT_STARTED)
    elif i < 50:
        sample(now, 1, USER, [at('odd;name "x"\n\x1b[31m|<b>'), at("main")], [200, 201], 0)
    elif i < 55:
        sample(now, 1, USER, [0x7F0000001234], [200, 201], 0)
    else:
        name = "compute" if slower else "recurse"
        sample(now, 1, USER, [at(name), at("main")], [200, 201], 0)
event(4, start + 95 * PERIOD, 0x40000002, b"kernel:meta", b"drop_stats",
      [("num_records", 5), ("num_bytes", 400)], words(start + 100 * PERIOD))
blob(1, b"guestprof.symbols", b"".join(
    symbol(kind, address, 0x100, name.encode()) for name, (kind, address) in FUNCTIONS.items()))
event(0, start + 100 * PERIOD, 0x40000000, b"guestprof", b"guest",
      [("banner", "Linux version 6.1.0 (gcc) `#1`"), ("text_base", KERNEL)])
event(0, start + 100 * PERIOD, 0x40000000, b"guestprof", b"session_end", [("reason", "powered off")])
