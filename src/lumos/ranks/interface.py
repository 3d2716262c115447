"""The network interface by which ranks reach one another.

Gloo asks the name of the host for its address, which on many machines is that of the loopback:
ranks on other hosts then cannot connect. The interface that leads to rank 0 is the right one.
"""

import fcntl
import socket
import struct
import sys

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Environment variable: the interface that Gloo uses."""

_GET_ADDRESS = 0x8915  # SIOCGIFADDR of Linux
_NAME = 15


def interface_to(host: str) -> str:
    """The name of the interface that leads to a host; empty where it cannot be told."""
    if sys.platform != "linux" or not host:
        return ""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))  # nothing is sent
            address = probe.getsockname()[0]
            for _, name in socket.if_nameindex():
                if _address_of(name, probe) == address:
                    return name
    except OSError:
        return ""
    return "lo" if address.startswith("127.") else ""


def _address_of(name: str, probe: socket.socket) -> str:
    """The address of an interface; empty where it has none."""
    try:
        answer = fcntl.ioctl(probe, _GET_ADDRESS, struct.pack("256s", name.encode()[:_NAME]))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])
