#!/usr/bin/env python3
"""The official clients, unmodified, against a built node: runs sdk_check.py of the conformance folder. Closes with `N passed, N failed`."""
import argparse, os, sys
sys.dont_write_bytecode = True
import node


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--binary", required=True)
    a = p.parse_args()
    logs = os.path.join(node.TARGET, "test-logs")
    # The Rust client is built in a folder below target/: its own build folder keeps it apart from this workspace's.
    build = {"CARGO_TARGET_DIR": os.path.join(node.TARGET, "sdk-rust-build")}
    with node.Node(a.binary, os.path.join(logs, "node-clients.log")) as server:
        passed, failed = node.run_suite([sys.executable, os.path.join(node.CONFORMANCE, "sdk_check.py"), "--base-url", server.url], build)
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
