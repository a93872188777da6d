#!/usr/bin/env python3
"""The node's own description of its routes is one, and is true: a validator reads it, and schemathesis asks what it says may be asked.
Closes with `N passed, N failed`.

Asked of a description whose longest wait is 30 ms, where what waits says for how long. Not asked: `subscribe`, a stream without an end; `switch`, which would
turn everything else into 503; and the peers' `changeCluster`. Nor what it says may not be asked: a parameter that cannot be read is its default and unknown
keys are ignored, by the contract; what is refused has tests of its own.
"""
import argparse, json, os, subprocess, sys, urllib.request
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import node

LONGEST_MS = 30
EXAMPLES = 20
SEED = 1
NOT_ASKED = ["subscribe", "switch", "changeCluster"]
# Each check of schemathesis that is left out, with why.
LEFT_OUT = {
    "not_a_server_error": "503 and 504 are answers that the description has; any other 5xx is found as a status that it has not",
    "unsupported_method": "HEAD is answered where GET is, which a description need not say",
    "use_after_free": "a queue comes into being again with its next use",
}


def shorten(described):
    """No wait is longer than LONGEST_MS, and none is left to the default."""
    if isinstance(described, dict):
        if described.get("maximum") == 300000:
            described["maximum"] = described["default"] = LONGEST_MS
        if described.get("in") == "query" and described.get("name") == "timeout":
            described["required"] = True
        properties = described.get("properties", {})
        if "timeout" in properties and "wait" in properties:
            properties["wait"] = {"const": False}
        elif "timeout" in properties:
            described["required"] = [*described.get("required", []), "timeout"]
            properties["timeout"]["type"] = "integer"
        for part in described.values():
            shorten(part)
    elif isinstance(described, list):
        for part in described:
            shorten(part)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    a = p.parse_args()
    bin_folder = os.path.dirname(sys.executable)
    logs = os.path.join(node.TARGET, "test-logs")
    failed = 0
    with node.Node(a.binary, os.path.join(logs, "node-openapi.log")) as server:
        with urllib.request.urlopen(server.url + "/openapi.json") as answer:
            described = json.load(answer)
        path = os.path.join(logs, "openapi.json")
        with open(path, "w") as f:
            json.dump(described, f)
        valid = subprocess.run([sys.executable, "-m", "openapi_spec_validator", path], capture_output=True, text=True)
        failed += valid.returncode != 0
        print("%s it is OpenAPI 3.1%s" % ("FAIL" if valid.returncode else "ok  ", "\n       " + valid.stdout + valid.stderr if valid.returncode else ""))
        shorten(described)
        with open(path, "w") as f:
            json.dump(described, f)
        command = [os.path.join(bin_folder, "st"), "run", path, "--url", server.url, "--phases", "coverage,fuzzing", "--mode", "positive", "--no-shrink", "--seed", str(SEED)]
        command += ["-n", str(EXAMPLES), "--request-timeout", "5", "--continue-on-failure", "--exclude-checks", ",".join(LEFT_OUT)]
        for name in NOT_ASKED:
            command += ["--exclude-operation-id", name]
        hooks = {**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}
        asked = subprocess.run(command, capture_output=True, text=True, cwd=logs, env=hooks)
        failed += asked.returncode != 0
        print("%s what it says may be asked is answered as it says%s" % ("FAIL" if asked.returncode else "ok  ", "\n" + asked.stdout[-6000:] if asked.returncode else ""))
        alive = node.get(server.url + "/health")[0] == 200
        failed += not alive
        print("%s the node has stood it" % ("ok  " if alive else "FAIL"))
    print("%d passed, %d failed" % (3 - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
