"""How hsub ends when it is asked to: at once, silently, with the shell's exit codes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from hbroker import sync
from hbroker.runtime.client.dispatcher import LEAVE_TIMEOUT
from tests.clients.programs import ENVIRONMENT, HBrokerPrograms, root_node
from tests.product.network import PATIENCE, PROJECT
from tests.product.node import node_up


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_hsub_ends_silently_on_a_signal_with_the_shells_exit_code(number: signal.Signals, code: int) -> None:
    with root_node() as (host, port), sync.connect((host, port)) as client:
        ours = HBrokerPrograms(port, client)
        with subprocess.Popen(
            ours.command("sub", "-t", "a"), stderr=subprocess.PIPE, env=ENVIRONMENT, cwd=PROJECT
        ) as process:
            ours.await_subscriber("", "a")
            process.send_signal(number)
            _, errors = process.communicate(timeout=PATIENCE)
    assert (process.returncode, errors) == (code, b"")


def test_a_dead_owner_delays_the_end_of_hsub_once_and_not_for_each_filter() -> None:
    filters = [f"a/{number}" for number in range(100)]
    flags = [flag for topic_filter in filters for flag in ("-t", topic_filter)]
    with node_up() as node, sync.connect(node.address) as client:
        ours = HBrokerPrograms(node.address[1], client)
        with subprocess.Popen(ours.command("sub", *flags), env=ENVIRONMENT, cwd=PROJECT) as process:
            try:
                ours.await_subscriber("", filters[-1])
                node.kill()
                process.send_signal(signal.SIGINT)
                assert process.wait(len(filters) * LEAVE_TIMEOUT / 2) == 130
            finally:
                process.kill()


def test_hsub_ends_when_its_output_is_closed() -> None:
    with root_node() as (host, port), sync.connect((host, port)) as client:
        ours = HBrokerPrograms(port, client)
        with subprocess.Popen(
            ours.command("sub", "-t", "a"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=ENVIRONMENT,
            cwd=PROJECT,
        ) as process:
            ours.await_subscriber("", "a")
            assert process.stdout is not None
            process.stdout.close()
            client.publish("a", b"x")
            assert process.stderr is not None
            errors = process.stderr.read()
            assert process.wait(PATIENCE) == 1
    assert errors == b""


def test_hsub_reports_an_unreachable_network_unless_quiet() -> None:
    command = [sys.executable, "-m", "hbroker.clients.hsub", "-h", "no.such.host.invalid", "-t", "a"]
    told = subprocess.run(command, capture_output=True, env=ENVIRONMENT, cwd=PROJECT, check=False)
    assert told.returncode == 1
    assert told.stderr.startswith(b"Error: ")
    quiet = subprocess.run(
        [*command, "--quiet"], capture_output=True, env=ENVIRONMENT, cwd=PROJECT, check=False
    )
    assert (quiet.returncode, quiet.stderr) == (1, b"")
