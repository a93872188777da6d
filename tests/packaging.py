#!/usr/bin/env python3
"""What lies in packaging/ fits the binary: every setting, port, path and limit that it names exists. Closes with `N passed, N failed`.

Linters of the formats are used where they are (systemd-analyze); a node runs under the seccomp profile as a container's would. Not run here, as it
needs an engine or a cluster: docker build, docker compose up, kubectl apply.
"""
import argparse, ctypes, ctypes.util, glob, json, os, re, subprocess, sys, tempfile
sys.dont_write_bytecode = True
import yaml
import node

PACKAGING = os.path.join(node.ROOT, "packaging")
DRAIN_S = 15


def text_of(*parts):
    with open(os.path.join(PACKAGING, *parts)) as f:
        return f.read()


def check_settings(binary):
    """Every variable and flag is one of `mayfly serve`."""
    help_text = subprocess.run([binary, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    wrong = []
    for path in glob.glob(os.path.join(PACKAGING, "**", "*"), recursive=True):
        if not os.path.isfile(path):
            continue
        with open(path) as f:
            text = f.read()
        names = set(re.findall(r"MAYFLY_[A-Z_]*[A-Z]", text))
        flags = set(re.findall(r"mayfly serve ([^'\"\n`]*)", text))
        names |= {flag for line in flags for flag in re.findall(r"--[a-z-]+", line) if flag != "--help"}
        wrong += ["%s: %s" % (os.path.relpath(path, PACKAGING), name) for name in sorted(names) if name not in help_text]
    assert not wrong, wrong


def check_compose(_):
    """Three nodes, each by its id and name among the peers, with the profile, time to drain, and its own volume."""
    compose = yaml.safe_load(text_of("compose", "compose.yaml"))
    services = compose["services"]
    assert len(services) == 3
    peers = "1=node1:6633,2=node2:6633,3=node3:6633"
    for number, (name, service) in enumerate(services.items(), 1):
        environment = service["environment"]
        assert (name, environment["MAYFLY_NODE_ID"], environment["MAYFLY_PEERS"]) == ("node%d" % number, str(number), peers)
        assert int(service["stop_grace_period"].rstrip("s")) > DRAIN_S
        assert service["volumes"] == ["data%d:/var/lib/mayfly" % number] and "data%d" % number in compose["volumes"]
        profile = next(o.split(":", 1)[1] for o in service["security_opt"] if o.startswith("seccomp:"))
        assert os.path.exists(os.path.join(PACKAGING, "compose", profile)), profile
        assert os.path.exists(os.path.join(PACKAGING, "compose", service["build"]["context"], service["build"]["dockerfile"]))


def check_kubernetes(binary):
    """One selector, probes that the node answers, time to drain behind the pause, votes that stay."""
    documents = {d["kind"] if d["kind"] != "Service" else d["metadata"]["name"]: d for d in yaml.safe_load_all(text_of("kubernetes", "mayfly.yaml"))}
    stateful = documents["StatefulSet"]["spec"]
    pod = stateful["template"]["spec"]
    container = pod["containers"][0]
    label = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == label == documents["mayfly"]["spec"]["selector"] == documents["mayfly-nodes"]["spec"]["selector"]
    assert documents["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == documents["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == label
    assert documents["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1 and stateful["replicas"] == 3
    assert stateful["serviceName"] == "mayfly-nodes" and documents["mayfly-nodes"]["spec"]["publishNotReadyAddresses"] is True
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S + pause
    ports = {p["name"]: p["containerPort"] for p in container["ports"]}
    assert ports == {"http": 6632, "peers": 6633}
    environment = {e["name"]: e["value"] for e in container["env"]}
    assert environment["MAYFLY_PEERS"] == ",".join("%d=mayfly-%d.mayfly-nodes:6633" % (n + 1, n) for n in range(3))
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    assert environment["MAYFLY_DATA_DIR"] in mounts and os.path.dirname(environment["MAYFLY_CLUSTER_SECRET_FILE"]) in mounts
    # The shell's arithmetic, as a pod named mayfly-2 would do it.
    shown = subprocess.run(["sh", "-c", container["command"][2].replace("exec /usr/bin/mayfly", "echo")], env={"HOSTNAME": "mayfly-2"}, capture_output=True, text=True)
    assert shown.stdout == "serve --node-id 3\n", shown
    with node.Node(binary, os.path.join(node.TARGET, "test-logs", "node-probes.log")) as server:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert node.get(server.url + path)[0] == 200, path


def check_systemd(binary):
    """The unit is one that systemd reads, and its filter lets io_uring through."""
    unit = text_of("systemd", "mayfly.service")
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit)[1]) > DRAIN_S
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mayfly.service")
        with open(path, "w") as f:
            f.write(unit.replace("/usr/bin/mayfly", os.path.abspath(binary)).replace("Documentation=man:mayfly(1)\n", ""))
        verified = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True)
        assert verified.returncode == 0 and not verified.stderr.strip(), verified
    allowed = subprocess.run(["systemd-analyze", "syscall-filter", "@system-service"], capture_output=True, text=True).stdout
    nested = "".join(subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True).stdout for name in re.findall(r"^\s+(@\S+)", allowed, re.M))
    for call in ("io_uring_setup", "io_uring_enter", "io_uring_register"):
        assert re.search(r"^\s+%s$" % call, allowed + nested, re.M), call


def seccomp_filter():
    """Applies the profile to this process, as a container's engine does; for the child before it becomes the node."""
    profile = json.loads(text_of("docker", "seccomp.json"))
    lib = ctypes.CDLL(ctypes.util.find_library("seccomp"), use_errno=True)
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_rule_add.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint]
    lib.seccomp_load.argtypes = [ctypes.c_void_p]
    allow, refuse = 0x7FFF0000, 0x00050000 | profile["defaultErrnoRet"]
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    context = lib.seccomp_init(refuse)
    for rule in profile["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW" and not rule.get("args")
        for name in rule["names"]:
            number = lib.seccomp_syscall_resolve_name(name.encode())
            # Of another architecture.
            if number >= 0:
                assert lib.seccomp_rule_add(context, allow, number, 0) == 0, name
    assert lib.seccomp_load(context) == 0


def check_seccomp(binary):
    """A node serves under the profile, keeps what is declared over a restart, and ends when it is told to."""
    profile = json.loads(text_of("docker", "seccomp.json"))
    names = [name for rule in profile["syscalls"] for name in rule["names"]]
    assert len(names) == len(set(names)) and "ptrace" not in names and "mount" not in names and "bpf" not in names
    with tempfile.TemporaryDirectory() as data:
        for _ in range(2):
            log = os.path.join(node.TARGET, "test-logs", "node-seccomp.log")
            with node.Node(binary, log, environment={"MAYFLY_DATA_DIR": data}, before=seccomp_filter) as server:
                base = server.url + "/api/v1/ephemeral/"
                assert node.post(base + "configure", {"queue": "declared", "options": {"maxLength": 5}})[0] == 201
                assert node.post(base + "push", {"queue": "q", "messages": [{"payload": 1}]})[0] == 201
                status, body = node.get(base + "pop?queue=q&wait=true&timeout=1000&autoAck=true")
                assert status == 200 and body["messages"][0]["payload"] == 1, body
                queues = node.get(base + "queues")[1]["queues"]
                assert "declared" in [q["queue"] for q in queues]


CHECKS = [check_settings, check_compose, check_kubernetes, check_systemd, check_seccomp]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--binary", required=True)
    a = p.parse_args()
    failed = 0
    for check in CHECKS:
        try:
            check(a.binary)
            print("ok   %s" % check.__doc__.splitlines()[0])
        except (AssertionError, KeyError, OSError, subprocess.SubprocessError) as error:
            failed += 1
            print("FAIL %s\n       %s: %s" % (check.__doc__.splitlines()[0], type(error).__name__, error))
    print("%d passed, %d failed" % (len(CHECKS) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
