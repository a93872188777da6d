"""A built node as a child process on a free loopback port, for the process-level suites. Standard library only."""
import json, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time, urllib.error, urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHARED = os.environ.get("MAYFLY_SHARED") or os.path.join(ROOT, "..", "shared")
CONFORMANCE = os.path.realpath(os.path.join(SHARED, "conformance"))
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR") or os.path.join(ROOT, "target"))
START_S = 10
STOP_S = 20


class Node:
    """`with Node(binary, log, ["--shards", "1"], {"MAYFLY_…": "…"}) as node:` serves on node.url; ends by its own pid. `before` is called
    in the child before it becomes the node."""

    def __init__(self, binary, log_path, arguments=(), environment=None, before=None):
        self.before = before
        self.url = None
        self.log_path = log_path
        os.makedirs(os.path.dirname(os.path.abspath(log_path)), exist_ok=True)
        self.log = open(log_path, "wb")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("MAYFLY_", "QUEEN_", "PG_", "JWT_")) and k != "PORT"}
        self.command = [binary, "serve", *arguments, "--listen"]
        self.data = None
        if "MAYFLY_DATA_DIR" not in (environment or {}):
            self.data = clean["MAYFLY_DATA_DIR"] = tempfile.mkdtemp(prefix="mayfly-test-")
        self.environment = {**clean, **(environment or {})}
        self.restarts = None
        self._start("127.0.0.1:0")

    def _start(self, address):
        self.process = subprocess.Popen([*self.command, address], env=self.environment, stdout=self.log, stderr=self.log, preexec_fn=self.before)

    def restart_command(self):
        """A shell command that restarts the node on its address and data folder, and returns when it serves again."""
        self.restarts = socket.socket(socket.AF_UNIX)
        path = os.path.join(self.data, "..", os.path.basename(self.data) + ".restart")
        self.restarts.bind(path)
        self.restarts.listen()
        threading.Thread(target=self._follow_restarts, daemon=True).start()
        return "%s %s restart %s" % (sys.executable, os.path.abspath(__file__), os.path.abspath(path))

    def _follow_restarts(self):
        while True:
            try:
                asking, _ = self.restarts.accept()
            except OSError:
                return
            with asking:
                try:
                    self._end()
                    self._start(self.url.removeprefix("http://"))
                    self._wait_for_health()
                    asking.sendall(b"serves")
                except RuntimeError as error:
                    print("restart: %s" % error)

    def __enter__(self):
        try:
            self._wait_for_health()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        code = self.stop()
        if code != 0 and sys.exc_info()[0] is None:
            raise RuntimeError("the node ended with exit code %s\n%s" % (code, self.log_tail()))

    def _wait_for_health(self):
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError("the node did not start: exit code %s\n%s" % (self.process.returncode, self.log_tail()))
            if self.url is None:
                self.url = self._served_url()
            elif self._is_healthy():
                return
            time.sleep(0.05)
        raise RuntimeError("no /health within %d s\n%s" % (START_S, self.log_tail()))

    def _served_url(self):
        """From the banner; None until it is there."""
        with open(self.log_path, errors="replace") as f:
            found = re.search(r"mayfly serves.*\baddress=(\S+)", f.read())
        return "http://" + found[1] if found else None

    def _is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def stop(self):
        """Ends the node and what belongs to it; its exit code."""
        if self.restarts:
            path = self.restarts.getsockname()
            self.restarts.close()
            os.unlink(path)
        self._end()
        self.log.close()
        if self.data:
            shutil.rmtree(self.data, ignore_errors=True)
        return self.process.returncode

    def _end(self):
        """SIGTERM, and SIGKILL to one that does not drain in time."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def log_tail(self, lines=20):
        with open(self.log_path, errors="replace") as f:
            return "".join(f.readlines()[-lines:])


class Cluster:
    """Nodes of one cluster: `with Cluster(binary, folder_of_logs, 3) as cluster:` serves on cluster.url, which is its first node's."""

    def __init__(self, binary, logs, count):
        self.secret = tempfile.NamedTemporaryFile("w", prefix="mayfly-test-", suffix=".secret")
        self.secret.write("a secret of the suites\n")
        self.secret.flush()
        held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
        peers = ",".join("%d=127.0.0.1:%d" % (i + 1, s.getsockname()[1]) for i, s in enumerate(held))
        for s in held:
            s.close()
        self.nodes = []
        try:
            for i in range(count):
                arguments = ["--shards", "2", "--node-id", str(i + 1), "--peers", peers, "--cluster-secret-file", self.secret.name]
                self.nodes.append(Node(binary, os.path.join(logs, "node-%d-of-%d.log" % (i + 1, count)), arguments))
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        try:
            for one in self.nodes:
                one._wait_for_health()
            self.url = self.nodes[0].url
            deadline = time.monotonic() + START_S
            while not all(self._lives(one) for one in self.nodes):
                if time.monotonic() > deadline:
                    raise RuntimeError("the nodes do not find each other\n%s" % self.nodes[0].log_tail())
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise
        return self

    def _lives(self, one):
        with urllib.request.urlopen(one.url + "/api/v1/system/cluster", timeout=START_S) as answer:
            members = json.loads(answer.read())["members"]
        return [m["standing"] for m in members] == ["live"] * len(self.nodes)

    def stop(self):
        for one in self.nodes:
            one.stop()

    def __exit__(self, *_):
        self.stop()


def get(url):
    """Status and, where the answer is JSON, what it says."""
    return _answer(urllib.request.Request(url))


def post(url, body):
    """The same of a POST of JSON."""
    return _answer(urllib.request.Request(url, data=json.dumps(body).encode()))


def _answer(request):
    try:
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            status, text, kind = answer.status, answer.read(), answer.headers.get_content_type()
    except urllib.error.HTTPError as error:
        status, text, kind = error.code, error.read(), error.headers.get_content_type()
    return status, json.loads(text) if kind == "application/json" else text


def counts(text):
    """The last `N passed, N failed` of a suite's output, or None."""
    found = re.findall(r"^(\d+) passed, (\d+) failed$", text, re.M)
    return (int(found[-1][0]), int(found[-1][1])) if found else None


def run_suite(command, environment=None, timeout=900):
    """Runs a suite, shows what failed, and gives its counts; a suite that says none counts as one failure."""
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    said = counts(done.stdout)
    if said is None or (done.returncode and not said[1]):
        print(done.stdout[-4000:])
        return (said[0] if said else 0), 1
    showing = False
    for line in done.stdout.splitlines():
        showing = line.startswith("FAIL") or (showing and line.startswith("       "))
        if showing:
            print(line)
    return said


if __name__ == "__main__" and sys.argv[1:2] == ["restart"]:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(sys.argv[2])
        sys.exit(0 if asking.recv(16) == b"serves" else "the node does not serve again")
