"""Every command on an emulated node: what it says, and its exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated import Emulated

from koordlite import __version__, cli, config
from koordlite.cli import machine
from koordlite.numa.nrt import fingerprint

Ask = Callable[..., Any]
SANDBOX = ("--sandbox", "small", "--cluster")


# ── help ──


def test_help_names_every_command(ask: Ask) -> None:
    answer = ask("--help")
    assert answer.code == 0
    for command in ("run", "status", "explain", "restore", "check-config", "check-node", "default-config"):
        assert f"\n    {command}" in answer.out


def test_version(ask: Ask) -> None:
    assert ask("--version").out == f"koordlite {__version__}\n"


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    """Budget: 0.15 s. What is imported is checked, since a clock in a test tells more about the neighbours."""
    code = (
        "import sys\n"
        "from koordlite import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('yaml', 'rich', 'msgspec', 'prometheus_client', 'kubernetes', 'http', 'asyncio')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "[]"


# ── looking ──


def test_status_is_one_screen(ask: Ask, manifests: Path) -> None:
    answer = ask("status", *SANDBOX, manifests)
    assert answer.code == 0
    assert "node-a: observing" in answer.out
    assert "CPU of BE" in answer.out
    assert len(answer.out.splitlines()) <= 60


def test_status_as_json_is_json(ask: Ask, manifests: Path) -> None:
    answer = ask("status", *SANDBOX, manifests, "-o", "json")
    assert json.loads(answer.out)["status"] == "observing"


def test_explain_shows_the_terms_of_the_formula(ask: Ask, manifests: Path) -> None:
    answer = ask("explain", "cpuSuppress", *SANDBOX, manifests)
    assert answer.code == 0
    assert "BECPUBudget" in answer.out


def test_explain_pod_gathers_what_was_decided_about_it(ask: Ask, manifests: Path) -> None:
    answer = ask("explain", "pod", "crunch", *SANDBOX, manifests)
    assert answer.code == 0
    assert answer.out.startswith("pod crunch\n")
    assert "no eviction rule is switched on [memoryEvict]" in answer.out


@pytest.mark.parametrize("output", ["text", "json"])
def test_explain_of_a_pod_that_is_not_there_lists_those_that_are(ask: Ask, manifests: Path, output: str) -> None:
    answer = ask("explain", "pod", "crunsh", *SANDBOX, manifests, "-o", output)
    assert (answer.code, answer.out) == (2, "")
    assert "there is no pod 'crunsh' on this node, and none is remembered; its pods: ns/crunch, ns/web" in answer.err


def test_explain_of_nothing_known_lists_what_is_known(ask: Ask, manifests: Path) -> None:
    answer = ask("explain", "nonsense", *SANDBOX, manifests)
    assert answer.code == 2
    assert "'nonsense'" in answer.err
    assert "besteffort" in answer.err


def test_a_look_without_a_node_says_which_there_are(ask: Ask, manifests: Path) -> None:
    answer = ask("explain", "besteffort", *SANDBOX, str(manifests), "--node", "elsewhere")
    assert answer.code == 2
    assert "elsewhere" in answer.err


@pytest.mark.parametrize("shape", ["small", "arm", "intel-2s-ht", "amd-ccd"])
def test_check_node_answers_every_question(ask: Ask, manifests: Path, shape: str) -> None:
    answer = ask("check-node", "--sandbox", shape, "--cluster", manifests)
    assert answer.code == 0
    for word in ("cgroups", "processors", "NUMA nodes", "resctrl", "pressure", "writable cgroups", "Node object"):
        assert word in answer.out


def test_check_node_without_a_node_says_no(ask: Ask, manifests: Path) -> None:
    answer = ask("check-node", *SANDBOX, manifests, "--node", "other")
    assert answer.code == 1
    assert "NO   Node object" in answer.out


# ── checking ──


def test_default_config_is_a_file_without_mistakes(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "koordlite.yaml"
    path.write_text(ask("default-config").out)
    assert config.load(path) == config.default()
    assert ask("check-config", path).out == "no problems\n"


def test_settings_without_effect_are_told_wherever_settings_are(ask: Ask, manifests: Path) -> None:
    documents = {"colocation-config": json.dumps({"metricMemoryCollectPolicy": "usageWithPageCache"})}
    names = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": names, "data": documents}
    for path in manifests.glob("*"):
        if "slo-controller-config" in path.read_text():
            path.unlink()
    (manifests / "config.json").write_text(json.dumps(made))
    field = "colocation-config.metricMemoryCollectPolicy"
    assert field in ask("check-config", "--cluster", manifests).out
    explained = ask("explain", "config.colocation-config.metricMemoryCollectPolicy", *SANDBOX, manifests).out
    assert "cluster; no effect here" in explained
    assert field in explained
    assert field in ask("status", *SANDBOX, manifests).out


def test_check_node_names_pods_with_devices(ask: Ask, manifests: Path) -> None:
    notes = {"scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":0}]}'}
    metadata = {"name": "train", "namespace": "ml", "uid": "u-train", "annotations": notes}
    spec = {"nodeName": "node-a", "containers": [{"name": "main"}]}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}
    (manifests / "train.json").write_text(json.dumps(made))
    answer = ask("check-node", *SANDBOX, manifests)
    assert "ml/train" in answer.out
    assert "keep koordlet on this node" in answer.out


def test_check_config_warns_of_modes_that_are_left_to_koordinators_manager(ask: Ask, tmp_path: Path) -> None:
    path = tmp_path / "koordlite.yaml"
    path.write_text("publish: {nodeResources: manager}\nstrategies:\n  beAllocatable: {mode: enforce}\n")
    answer = ask("check-config", path)
    assert answer.code == 0
    assert "strategies.beAllocatable.mode = 'enforce': it observes" in answer.out
    assert "set publish.nodeMetric to on" in answer.out


def test_check_config_lists_every_mistake_of_both(ask: Ask, tmp_path: Path, manifests: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("agent:\n  intervalSecond: 1\nhttp:\n  port: x\n")
    (manifests / "config.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: slo-controller-config, namespace: koordinator-system}\n"
        'data: {resource-threshold-config: "{"}\n'
    )
    answer = ask("check-config", path, "--cluster", manifests)
    assert answer.code == 1
    assert f"{path}:2:3" in answer.out
    assert f"{path}:4:9" in answer.out
    assert "resource-threshold-config" in answer.out
    assert answer.out.splitlines()[-1] == "3 problems"


def test_check_config_reads_annotations_too(ask: Ask, manifests: Path) -> None:
    text = (manifests / "node.yaml").read_text()
    (manifests / "node.yaml").write_text(text.replace('{"reservedCPUs":"0"}', '{"reservedCPUs":"zero"}'))
    answer = ask("check-config", "--cluster", manifests)
    assert answer.code == 1
    assert "node.koordinator.sh/reservation" in answer.out
    assert "'zero'" in answer.out


def test_check_config_of_one_node_among_several(ask: Ask, manifests: Path) -> None:
    (manifests / "other.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: node-b}\n")
    assert ask("check-config", "--cluster", manifests).code == 1
    assert ask("check-config", "--cluster", manifests, "--node", "node-a").out.splitlines()[-1] == "no problems"


# ── options that do not fit ──


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("status", "--sandbox", "huge"), "'huge'", id="an unknown machine"),
        pytest.param(("check-config",), "nothing to check", id="nothing to check"),
        pytest.param(("check-config", "missing.yaml"), "missing.yaml", id="a file that is not there"),
        pytest.param(("restore", "--sandbox", "small"), "restore works on this machine", id="restoring an emulation"),
        pytest.param(("adopt", "koordlet", "--sandbox", "small"), "add --dry-run", id="adopting an emulation"),
        pytest.param(("status", "--url", "http://127.0.0.1:1"), "no agent answers", id="nobody answers"),
        pytest.param(("frobnicate",), "there is no 'frobnicate'", id="an unknown command"),
        pytest.param((), "required", id="no command"),
        pytest.param(("status", "--sandbox", "small", "--recorded", "x"), "not allowed with", id="two machines"),
    ],
)
def test_bad_words_say_what_to_do(ask: Ask, words: tuple[str, ...], said: str) -> None:
    answer = ask(*words)
    assert answer.code in ((1,) if "missing.yaml" in words else (2,))
    assert said in answer.out + answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("text", ["cpuSupress=enforce", "cpuSuppress=on", "cpuSuppress", "=enforce"])
def test_a_bad_strategy_option_lists_the_good_ones(run: Ask, manifests: Path, text: str) -> None:
    answer = run("run", *SANDBOX, manifests, "--once", "--strategy", text)
    assert answer.code == 2
    assert repr(text) in answer.err
    assert "NAME=off|observe|enforce with NAME one of batchResource, beAllocatable, " in answer.err
    assert ", cpuSuppress, " in answer.err


def test_the_former_name_of_a_strategy_is_refused_with_the_present_one(run: Ask, manifests: Path) -> None:
    answer = run("run", *SANDBOX, manifests, "--once", "--strategy", "nodeReservation=observe")
    assert answer.code == 2
    assert "nodeReservation has been renamed: write reservationReport=observe" in answer.err


@pytest.mark.parametrize(
    ("option", "value", "do"),
    [
        ("--interval", "nan", "write a number 0.05 to 60"),
        ("--interval", "0", "write a number 0.05 to 60"),
        ("--interval", "-1", "write a number 0.05 to 60"),
        ("--port", "65536", "write a number 0 to 65535"),
        ("--port", "-1", "write a number 0 to 65535"),
        ("--for", "nan", "write a number more than 0"),
        ("--for", "-5", "write a number more than 0"),
        ("--speed", "0", "write a number more than 0"),
        ("--speed", "inf", "write a number more than 0"),
    ],
)
def test_a_number_no_run_could_work_with_is_refused(
    ask: Ask, manifests: Path, option: str, value: str, do: str
) -> None:
    answer = ask("run", *SANDBOX, manifests, "--once", option, value)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(f"koordlite: command line: {option} = ")
    assert answer.err.endswith(f"out of range; {do}\n")


def test_a_terminal_that_lacks_a_character_shows_another(
    own_process: Ask, manifests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    answer = own_process("run", *SANDBOX, manifests, "--for", "2", "--no-http")
    assert (answer.code, "Error" in answer.err) == (0, False)
    assert "BE may use" in answer.out


def test_a_full_disk_below_the_live_view_ends_no_run(manifests: Path) -> None:
    words = ["run", *SANDBOX, str(manifests), "--for", "3", "--no-http"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "koordlite", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("lines of the live view are lost: [Errno 28] No space left on device") == 1


# ── running ──


def test_run_once_prints_what_would_be_done_and_writes_nothing(run: Ask, manifests: Path) -> None:
    before = sorted(path.name for path in manifests.iterdir())
    answer = run("run", *SANDBOX, manifests, "--once")
    assert answer.code == 0, answer.err
    assert "node-a: observing" in answer.out
    assert sorted(path.name for path in manifests.iterdir()) == before


def test_run_once_keeps_a_record_and_writes_a_report_where_they_are_asked_for(
    ask: Ask, run: Ask, manifests: Path, tmp_path: Path
) -> None:
    folders = ("--record", tmp_path / "record", "--report", tmp_path / "report")
    answer = run("run", *SANDBOX, manifests, "--once", "--mode", "enforce", *folders)
    assert answer.code == 0, answer.err
    assert "node-a: enforcing" in answer.out
    assert str(tmp_path / "report" / "run.html") in answer.out
    assert json.loads((tmp_path / "report" / "run.json").read_text())["summary"]["ticks"] == 2
    assert ask("replay", tmp_path / "record").out.splitlines()[1].startswith("2 rounds from ")


def test_a_quiet_run_logs_what_is_wrong_with_the_input_once(own_process: Ask, manifests: Path) -> None:
    (manifests / "torn.yaml").write_text("kind: Pod\nmetadata: [\n")
    answer = own_process("run", *SANDBOX, manifests, "--for", "5", "--no-http", "--quiet")
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.count("torn.yaml:3:1: not YAML: ") == 1
    assert " WARNING " in answer.err
    assert "the last good objects of this file stay" in answer.err


def test_run_enforces_publishes_and_reports(run: Ask, manifests: Path, tmp_path: Path) -> None:
    words = ("--mode", "enforce", "--for", "20", "--quiet", "--no-http")
    folders = ("--report", tmp_path / "report", "--published", tmp_path / "published", "--state-dir", tmp_path / "s")
    answer = run("run", *SANDBOX, manifests, *words, *folders)
    assert answer.code == 0, answer.err
    assert {path.name for path in (tmp_path / "report").iterdir()} == {"run.json", "run.html"}
    node = json.loads((tmp_path / "published" / "node-node-a.json").read_text())
    assert "kubernetes.io/batch-cpu" in node["status"]["allocatable"]
    assert json.loads((tmp_path / "s" / "journal.json").read_text())["entries"]
    assert str(tmp_path / "report" / "run.html") in answer.out


def test_run_with_on_stop_restore_leaves_an_empty_journal(run: Ask, manifests: Path, tmp_path: Path) -> None:
    words = ("--mode", "enforce", "--on-stop", "restore", "--state-dir", tmp_path / "s", "--no-http", "--quiet")
    for how in (("--for", "5"), ("--once",)):
        answer = run("run", *SANDBOX, manifests, *words, *how)
        assert answer.code == 0, answer.err
        assert json.loads((tmp_path / "s" / "journal.json").read_text())["entries"] == []


def test_a_running_agent_answers_and_stops_when_told(ask: Ask, running: tuple[subprocess.Popen[str], str]) -> None:
    process, url = running
    answer = ask("status", "--url", url)
    deadline = time.monotonic() + 20
    while "CPU of BE" not in answer.out and time.monotonic() < deadline:
        answer = ask("status", "--url", url)
    assert answer.code == 0, answer.err
    assert "node-a: enforcing" in answer.out
    assert json.loads(ask("status", "--url", url, "-o", "json").out)["status"] == "enforcing"
    assert "besteffort" in ask("explain", "besteffort", "--url", url).out
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_a_reader_who_has_seen_enough_is_no_error(manifests: Path) -> None:
    command = [sys.executable, "-m", "koordlite", "default-config"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(20) == 0


def test_an_emulated_node_that_is_scraped_keeps_to_the_time_of_this_machine(manifests: Path) -> None:
    """Else its counters would grow by thousands of CPUs: a scrape divides them by seconds of this machine."""
    args = cli.parser().parse_args(["numa-exporter", "--sandbox", "small", "--cluster", str(manifests), "--for", "9s"])
    opened = machine.machine(args, machine.settings(args))
    try:
        assert opened.sandbox is not None
        assert opened.sandbox.clock.pace == 1.0
    finally:
        opened.close()


def test_the_report_in_a_folder_has_attributes_and_the_fingerprint_of_its_pods(
    run: Ask, manifests: Path, tmp_path: Path
) -> None:
    """Also over a manifest of v1alpha1, which has no place for attributes."""
    node = Emulated("small", manifests.parent)
    node.node(cpu_manager="static")
    node.pod("alone", "LS", "1", request="1", memory="1Gi", guaranteed=True)
    old = {"apiVersion": "topology.node.k8s.io/v1alpha1", "kind": "NodeResourceTopology"}
    old |= {"metadata": {"name": "node-a"}, "topologyPolicies": ["None"], "zones": []}
    (node.folder / "report.yaml").write_text(json.dumps(old))
    folders = ("--published", tmp_path / "published", "--state-dir", tmp_path / "state")
    enforced = ("--strategy", "topologyReport=enforce")
    answer = run("run", *SANDBOX, node.folder, *enforced, "--for", "5", "-q", "--no-http", *folders)
    assert answer.code == 0, answer.err
    found = json.loads((tmp_path / "published" / "noderesourcetopology-node-a.json").read_text())
    attributes = {each["name"]: each["value"] for each in found["attributes"]}
    assert found["apiVersion"] == "topology.node.k8s.io/v1alpha2"
    assert attributes["topologyManagerScope"] == "container"
    assert attributes["nodeTopologyPodsFingerprintMethod"] == "with-exclusive-resources"
    assert attributes["nodeTopologyPodsFingerprint"] == fingerprint.sign([("ns", "alone")])


def test_what_an_agent_keeps_is_not_searched_for_garbage_while_a_runtime_waits(manifests: Path) -> None:
    code = """
import gc, sys
from koordlite import cli
cli.main(sys.argv[1:])
print(gc.get_freeze_count(), len(gc.get_objects()))
"""
    words = ("run", "--sandbox", "small", "--cluster", str(manifests), "--for", "20", "--no-http", "-q")
    ended = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    frozen, searched = map(int, ended.stdout.split()[-2:])
    assert frozen > 5 * searched
