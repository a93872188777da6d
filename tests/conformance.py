#!/usr/bin/env python3
"""The shared conformance cases against a built node, at one shard and at four, and against one of three nodes. Closes with `N passed, N failed`.

The cases are run by their own runner from where they lie (../shared/conformance, or $MAYFLY_SHARED/conformance). A case that needs a
specially started server gets one; one that needs something not listed in SERVERS is a failure, so that none is skipped in silence.
"""
import argparse, os, re, sys
sys.dont_write_bytecode = True
import node

# `peer` cases (what the published broker was seen to do) that SPEC.md contradicts, each with what it says instead. None so far: every
# peer case was compared with SPEC.md and none differs.
EXCLUDED_PEER_CASES = {}

# What a case may need → the server's environment, and the runner's flags that say so.
SERVERS = {
    None: ({}, []),
    "idle_s": ({"QUEEN_EPHEMERAL_IMPLICIT_IDLE_S": "2"}, ["--idle-s", "2"]),
    "max_bytes": ({"QUEEN_EPHEMERAL_MAX_BYTES": "1000000"}, ["--max-bytes", "1000000"]),
    "restart_cmd": ({}, ["--restart-cmd"]),
    "rate": ({"QUEEN_EPHEMERAL_RATE": "5000", "QUEEN_EPHEMERAL_BURST": "10000"}, ["--rate", "10000"]),
}


# In the place of a number of shards.
CLUSTER = "three nodes"


def cases_by_need(case_files):
    """Need (or None) → names of the cases, read from the case files themselves."""
    sys.path.insert(0, node.CONFORMANCE)
    import conformance, kit
    for path in case_files:
        conformance.load(path)
    unknown = [name for name in EXCLUDED_PEER_CASES if name not in {c.name for c in kit.REGISTRY if c.level == "peer"}]
    if unknown:
        sys.exit("EXCLUDED_PEER_CASES names no peer case: %s" % ", ".join(unknown))
    by_need = {}
    for case in kit.REGISTRY:
        if case.name not in EXCLUDED_PEER_CASES:
            by_need.setdefault(case.needs, []).append(case.name)
    return by_need


def start(a, shards, need, environment):
    if shards == CLUSTER:
        return node.Cluster(a.binary, a.logs, 3)
    return node.Node(a.binary, os.path.join(a.logs, "node-%d-%s.log" % (shards, need)), ["--shards", str(shards)], environment)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    p.add_argument("--shards", type=int, action="append", help="default: 1 and 4")
    p.add_argument("--logs", help="folder for the nodes' logs", default=os.path.join(node.TARGET, "test-logs"))
    a = p.parse_args()
    folders = [node.CONFORMANCE, os.path.join(node.ROOT, "tests")]
    case_files = [os.path.join(d, f) for d in folders for f in sorted(os.listdir(d)) if f.endswith("_cases.py")]
    by_need = cases_by_need(case_files)
    passed = failed = 0
    for name, reason in EXCLUDED_PEER_CASES.items():
        print("excluded %s: %s" % (name, reason))
    # Of three nodes the cases' queues are mostly another one's than that which is asked.
    for shards in a.shards or [1, 4, CLUSTER]:
        for need, names in by_need.items():
            if shards == CLUSTER and need is not None:
                continue
            label = "%s, %s" % (shards if shards == CLUSTER else "%d shards" % shards, "as it comes" if need is None else need)
            if need not in SERVERS:
                print("FAIL %s: no server for cases that need it: %s" % (label, ", ".join(names)))
                failed += len(names)
                continue
            environment, flags = SERVERS[need]
            only = ".*" if need is None and not EXCLUDED_PEER_CASES else "^(?:%s)$" % "|".join(map(re.escape, names))
            files = [x for f in case_files for x in ("--cases", f)]
            runner = [sys.executable, os.path.join(node.CONFORMANCE, "conformance.py"), *files, "--only", only, *flags]
            try:
                with start(a, shards, need, environment) as server:
                    if need == "restart_cmd":
                        runner.append(server.restart_command())
                    good, bad = node.run_suite([*runner, "--base-url", server.url])
                    short = len(names) - good - bad
                    if short:
                        print("FAIL %s: %d of its %d cases did not run" % (label, short, len(names)))
                        bad += short
            except RuntimeError as error:
                print("FAIL %s: %s" % (label, error))
                good, bad = 0, len(names)
            print("%s: %d of %d" % (label, good, len(names)))
            sys.stdout.flush()
            passed, failed = passed + good, failed + bad
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
