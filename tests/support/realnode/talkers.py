"""A process in a network namespace of its own with TCP connections that the kernel takes for established.

A kernel for tests may have no device that joins two namespaces. With TCP_REPAIR a socket is established without a
packet: in the kernel's tables the two ends, each in its own namespace, look like those of any connection.

Run as a program: FILE ADDRESS OTHERS…: says `ready` in FILE. OTHERS are OWN_PORT-ADDRESS:PORT.
"""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys
import threading
import time

TCP_REPAIR = 19


def main() -> None:
    """Open every connection, then keep four threads just busy enough to be run."""
    ready, address, *others = sys.argv[1:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "addr", "add", f"{address}/16", "dev", "lo"], check=True)
    held = [_connected(address, *other.split("-")) for other in others]
    for _ in range(3):
        threading.Thread(target=_beat, daemon=True).start()
    pathlib.Path(ready).write_text(f"ready {len(held)}")
    _beat()


def _connected(address: str, port: str, other: str) -> socket.socket:
    end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    end.bind((address, int(port)))
    host, _, number = other.partition(":")
    end.connect((host, int(number)))
    return end


def _beat() -> None:
    while True:
        time.sleep(0.05)


if __name__ == "__main__":
    main()
