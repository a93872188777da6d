#!/usr/bin/env python3
"""Runs a command whose io_uring system calls a seccomp filter refuses with EPERM, as container runtimes do: without_io_uring.py COMMAND…"""
import ctypes, os, struct, sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD_WORD, JUMP_IF_GREATER_OR_EQUAL, JUMP_IF_GREATER, RETURN = 0x20, 0x35, 0x25, 0x06
ALLOW, REFUSE_EPERM = 0x7FFF0000, 0x00050001
IO_URING_SETUP, IO_URING_REGISTER = 425, 427  # the same numbers on every architecture


def instruction(code, jump_true, jump_false, operand):
    return struct.pack("HBBI", code, jump_true, jump_false, operand)


program = b"".join([
    instruction(LOAD_WORD, 0, 0, 0),  # the system call's number
    instruction(JUMP_IF_GREATER_OR_EQUAL, 0, 2, IO_URING_SETUP),
    instruction(JUMP_IF_GREATER, 1, 0, IO_URING_REGISTER),
    instruction(RETURN, 0, 0, REFUSE_EPERM),
    instruction(RETURN, 0, 0, ALLOW),
])


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


libc = ctypes.CDLL(None, use_errno=True)
for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Program(len(program) // 8, program)), 0, 0)):
    if libc.prctl(*arguments) != 0:
        sys.exit("prctl: %s" % os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
