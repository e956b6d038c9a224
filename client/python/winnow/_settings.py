# SPDX-License-Identifier: BSD-3-Clause
"""The settings of a communicator and their types: struct winnow_config in client/winnow.h, as keyword arguments."""

import os
from typing import Optional, TypedDict, Union


class Founding(TypedDict, total=False):
    """The settings of Comm.enter_or_found(), which finds out the rank and the world itself."""

    aggregators: Optional[str]
    key_file: Optional[Union[str, os.PathLike]]
    key: Optional[Union[str, bytes]]
    insecure_no_key: Optional[bool]
    block: Optional[int]
    wire: Optional[str]
    threads: Optional[int]
    silence_ms: Optional[int]
    timeout_ms: Optional[int]
    multicast: Optional[bool]
    payload: Optional[int]
    datapath: Optional[str]
    eal: Optional[str]
    device: Optional[str]
    data_address: Optional[str]
    gateway: Optional[str]
    staging_mb: Optional[int]
    dscp: Optional[int]
    network: Optional[str]
    memory_mb: Optional[int]
    interface: Optional[str]
    debug: Optional[str]


class OfNode(Founding, total=False):
    """The settings of Node(), whose rank and world are those of nodes."""

    job: Optional[str]
    join_timeout_ms: Optional[int]


class OfComm(OfNode, total=False):
    """The settings of Comm()."""

    rank: Optional[int]
    world: Optional[int]
