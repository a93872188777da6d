#!/usr/bin/env python3
"""Runs the README and docs/ as printed against a built node and compares what they show. Closes with `N passed, N failed`.

A fenced block that begins with `console` is a terminal: lines after `$ ` are typed, the others are what comes out, where `…` stands for
anything. `console first` starts in the background and is read when the `console second` after it has ended. A block that begins with
`python examples/NAME` must be that file, verbatim. Blocks marked `sh` are for the reader's machine (building, testing) and are not run.
"""
import argparse, glob, os, re, subprocess, sys, time
sys.dont_write_bytecode = True
import node

ADDRESS = "127.0.0.1:6632"
PARK_S = 0.5
BLOCK_S = 30


def blocks(text):
    """(line number, info string, content) of every fenced block."""
    for m in re.finditer(r"^```([^\n]+)\n(.*?)^```$", text, re.M | re.S):
        yield text.count("\n", 0, m.start()) + 1, m.group(1).strip(), m.group(2)


def split_console(content):
    """What is typed, as one script, and what comes out."""
    typed, shown, continued = [], [], False
    for line in content.splitlines():
        if continued or line.startswith("$ "):
            typed.append(line if continued else line[2:])
            continued = line.endswith("\\")
        else:
            shown.append(line)
    return "\n".join(typed), "\n".join(shown)


def matches(shown, came):
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(pattern, came.strip(), re.S) is not None


class Terminal:
    def __init__(self, content, address, python_bin):
        script, self.shown = split_console(content)
        path = python_bin + os.pathsep + os.environ["PATH"]
        command = ["bash", "-eu", "-c", script.replace(ADDRESS, address)]
        environment = {**os.environ, "PATH": path, "MAYFLY_URL": "http://" + address}
        self.process = subprocess.Popen(command, cwd=node.ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def check(self):
        """None when what came out is what is shown, else the difference."""
        try:
            came, _ = self.process.communicate(timeout=BLOCK_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            came = self.process.communicate()[0] + "\n(did not end within %d s)" % BLOCK_S
        if matches(self.shown, came):
            return None
        return "       shown:\n%s\n       came:\n%s" % (self.shown, came)


def check_python(info, content):
    path = info.split()[1]
    with open(os.path.join(node.ROOT, path)) as f:
        return None if f.read() == content else "       differs from %s" % path


def run(name, text, address, python_bin):
    passed = failed = 0
    first = None

    def report(at, difference):
        nonlocal passed, failed
        passed, failed = passed + (difference is None), failed + (difference is not None)
        print("%s %s:%d%s" % ("ok  " if difference is None else "FAIL", name, at, "" if difference is None else "\n" + difference))

    for at, info, content in blocks(text):
        if info.startswith("python "):
            report(at, check_python(info, content))
        elif info == "console first":
            first = at, Terminal(content, address, python_bin)
            time.sleep(PARK_S)
        elif info.startswith("console"):
            report(at, Terminal(content, address, python_bin).check())
            if first:
                report(first[0], first[1].check())
                first = None
    return passed, failed


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--python", default=sys.executable, help="a Python that has queen-mq")
    a = p.parse_args()
    passed = failed = 0
    for path in [os.path.join(node.ROOT, "README.md"), *sorted(glob.glob(os.path.join(node.ROOT, "docs", "*.md")))]:
        name = os.path.relpath(path, node.ROOT)
        with open(path) as f:
            text = f.read()
        with node.Node(a.binary, os.path.join(node.TARGET, "test-logs", "node-readme.log")) as server:
            held, broken = run(name, text, server.url.removeprefix("http://"), os.path.dirname(os.path.abspath(a.python)))
        if not held and not broken:
            print("FAIL %s has no block that runs" % name)
            broken = 1
        passed, failed = passed + held, failed + broken
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
