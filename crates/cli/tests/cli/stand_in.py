#!/usr/bin/env python3
"""Plays `kubectl` and `sky` for tests: pods and clusters are processes of this machine, and nodes come after a delay.

The folder STAND_IN has a file for each machine, and what the test wants: `delay` (seconds until a node is there), `room`
(machines for which there are nodes) and `garbage` (what is printed in place of an answer, once).
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["STAND_IN"])


def told(name, usual):
    """What the test wants of this name."""
    file = FOLDER / name
    return type(usual)(file.read_text()) if file.exists() else usual


def file_of(name):
    """The file of a machine."""
    return FOLDER / f"{name}.machine"


def start(name, script, environment, labels, waits=False):
    """Starts a machine, if need be once its secret is there; one that is there is not started twice."""
    if file_of(name).exists():
        return False
    taken = len(list(FOLDER.glob("*.machine")))
    has_room = taken < told("room", 100)
    delay = told("delay", 0.0)
    # A pod is there before its secret.
    secret = f"{FOLDER}/{name}.secret"
    ready = f"while [ ! -f {secret} ]; do sleep 0.05; done; . {secret}; " if waits else ""
    body = (f"sleep {delay}; {ready}touch {FOLDER}/{name}.runs; sh -c \"$SCRIPT\"; "
            f"echo $? > {FOLDER}/{name}.ended")
    process = None
    if has_room:
        variables = {**os.environ, **environment, "SCRIPT": script}
        child = subprocess.Popen(["sh", "-c", body], env=variables, start_new_session=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process = child.pid
    file_of(name).write_text(json.dumps({"name": name, "labels": labels, "process": process}))
    return True


def stop(name):
    """Ends a machine with all its processes, and forgets it."""
    if not file_of(name).exists():
        return False
    process = json.loads(file_of(name).read_text())["process"]
    if process:
        try:
            os.killpg(process, signal.SIGTERM)
            time.sleep(0.2)
            os.killpg(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for ending in ("machine", "runs", "ended"):
        (FOLDER / f"{name}.{ending}").unlink(missing_ok=True)
    return True


def machines():
    """All machines, each with how far it is."""
    for file in sorted(FOLDER.glob("*.machine")):
        machine = json.loads(file.read_text())
        name = machine["name"]
        state = "waits" if machine["process"] else "unscheduled"
        if (FOLDER / f"{name}.ended").exists():
            state = "ended"
        elif (FOLDER / f"{name}.runs").exists():
            state = "runs"
        yield machine, state


def pod(machine, state):
    """A machine as a pod."""
    status = {"waits": "Pending", "unscheduled": "Pending", "runs": "Running", "ended": "Failed"}
    conditions = []
    if state == "unscheduled":
        conditions = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]
    metadata = {"name": machine["name"], "labels": machine["labels"]}
    return {"metadata": metadata, "spec": {"nodeName": "node"},
            "status": {"phase": status[state], "conditions": conditions}}


def kubectl(words):
    """`kubectl create … -f -`, `get pods -l LABEL=VALUE -o json`, `get pod NAME …`, `delete pod,secret NAME …`."""
    if words[0] == "config":
        sys.exit("error: current-context is not set")
    words = [word for word in words if not word.startswith("--")]
    if words[0] == "create":
        thing = json.load(sys.stdin)
        name = thing["metadata"]["name"]
        if thing["kind"] == "Secret":
            lines = [f"export {variable}={shlex.quote(value)}\n" for variable, value in thing["stringData"].items()]
            whole = FOLDER / f"{name}.part"
            whole.write_text("".join(lines))
            whole.rename(FOLDER / f"{name}.secret")
            return
        script = thing["spec"]["containers"][0]["command"][2]
        if not start(name, script, {}, thing["metadata"]["labels"], waits=True):
            sys.exit(f'Error from server (AlreadyExists): pods "{name}" already exists')
        print(f"uid-of-{name}", end="")
    elif words[:2] == ["get", "pod"]:
        print(f"uid-of-{words[2]}", end="")
    elif words[0] == "get":
        key, value = words[3].split("=")
        items = [pod(*one) for one in machines() if one[0]["labels"][key] == value]
        print(json.dumps({"items": items}))
    else:
        stop(words[2])
        (FOLDER / f"{words[2]}.secret").unlink(missing_ok=True)


def sky(words):
    """`sky launch … -c NAME --secret VARIABLE FILE`, `status … -o json PATTERN`, `down … NAME`."""
    if words[0] == "launch":
        task = json.loads(Path(words[-1]).read_text())
        secrets = {name: os.environ[name] for name in task["secrets"]}
        start(words[words.index("-c") + 1], task["run"], secrets, {})
    elif words[0] == "status":
        states = {"waits": "INIT", "unscheduled": "INIT", "runs": "UP", "ended": "UP"}
        beginning = words[-1].rstrip("*")
        clusters = [{"name": machine["name"], "status": states[state], "cloud": "Here", "region": "there"}
                    for machine, state in machines() if machine["name"].startswith(beginning)]
        print(json.dumps(clusters))
    elif not stop(words[-1]):
        print(f"Cluster(s) not found: {words[-1]}")


if __name__ == "__main__":
    garbage = FOLDER / "garbage"
    if garbage.exists():
        sys.stdout.write(garbage.read_text())
        garbage.unlink()
        sys.exit(0)
    {"kubectl": kubectl, "sky": sky}[Path(sys.argv[0]).name](sys.argv[1:])
