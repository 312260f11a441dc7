"""The script of the published benchmark on a cluster of 12 GPUs: files, draws, and table."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

sys.path.insert(0, str(ROOT / "scripts" / "reproductions"))
import reproduce_placement as script

NODES = """sn,cpu_milli,memory_mib,gpu,model
a,32000,65536,4,T4
b,32000,65536,4,G2
c,64000,65536,4,G2
"""
TASKS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec
p,4000,1024,1,1000,T4
q,4000,1024,1,470,
r,8000,1024,2,1000,G2|T4
s,2000,1024,0,0,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("openb_node_list_gpu_node", NODES), ("openb_pod_list_tiny", TASKS)):
        with gzip.open(tmp_path / f"{name}.csv.gz", "wt", encoding="utf-8") as file:
            file.write(text)
    return tmp_path


def test_files_are_read_in_gpus_cpus_and_gigabytes(folder):
    nodes, types = script.read_nodes(folder)
    assert types == ["G2", "T4"]
    assert nodes.sizes.tolist() == [4, 4, 4]
    assert nodes.kind.tolist() == [1, 0, 0]
    assert nodes.memory_gb.tolist() == [64.0] * 3
    tasks = script.read_tasks(folder, "tiny", types)
    assert tasks.total_gpus.tolist() == [1.0, 0.47, 2.0, 0.0]
    assert tasks.allowed.tolist() == [[False, True], [True, True], [True, True], [True, True]]


def test_tasks_come_until_130_percent_are_asked_for(folder):
    nodes, types = script.read_nodes(folder)
    case = script.draw_case(nodes, script.read_tasks(folder, "tiny", types), 1)
    demand = case.classes.total_gpus[case.order]
    assert demand.sum() >= 1.3 * 12 > demand[:-1].sum()


def test_typical_tasks_are_the_most_frequent_ones(folder):
    nodes, types = script.read_nodes(folder)
    tasks = script.read_tasks(folder, "tiny", types)
    case = script.draw_case(nodes, tasks.take(np.array([0] * 95 + [1, 1, 1, 2, 3])), 1)
    classes, often = script.typical_tasks(case)
    assert often.tolist() == [95.0]
    assert classes.share.tolist() == [1.0]
    assert not classes.memory_gb.any()


def test_no_rule_exceeds_the_bound(folder):
    nodes, types = script.read_nodes(folder)
    tasks = script.read_tasks(folder, "tiny", types)
    for seed in range(3):
        case = script.draw_case(nodes, tasks, seed)
        most = script.bound(keeps=False)(case).allocated
        for name, run in script.RUNS.items():
            allocated = run(case).allocated
            assert (allocated <= most + 1e-6).all(), name
            assert allocated[1] >= allocated[0] or name.startswith("bound"), name
