"""What each of two processes does in test_ranks.py: rank 1 copies twice as much without asking."""

import torch
from torch import distributed

distributed.init_process_group("gloo")
x = torch.zeros(64 * (distributed.get_rank() + 1), 96)
for _ in range(3):
    y = x.t().reshape(-1)
    distributed.all_reduce(torch.ones(1))
distributed.destroy_process_group()
