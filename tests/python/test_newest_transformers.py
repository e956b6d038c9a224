# SPDX-License-Identifier: BSD-3-Clause
"""A model of Hugging Face's transformers with attach(): a GPT-2 of random weights has the gradients that it has over Gloo."""

import os

import harness
import torch
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch


def gradients(rank, attach):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1)
    config = GPT2Config(vocab_size=80, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    ddp = DistributedDataParallel(GPT2LMHeadModel(config).eval())  # without dropout
    attach(ddp)
    words = torch.randint(0, 80, (4, 16), generator=torch.Generator().manual_seed(rank))
    loss = ddp(words, labels=words).loss
    loss.backward()
    return loss.item(), [parameter.grad for parameter in ddp.parameters()]


def both(rank, world, job):
    os.environ["HF_HUB_OFFLINE"] = "1"
    with winnow.Comm(job=job, rank=rank, world=world) as comm:
        ours = gradients(rank, lambda ddp: winnow.torch.attach(ddp, comm))
    gloo = gradients(rank, lambda ddp: None)
    assert ours[0] == gloo[0], (ours[0], gloo[0])
    assert len(ours[1]) > 20
    for mine, its in zip(ours[1], gloo[1]):
        torch.testing.assert_close(mine, its, rtol=1e-5, atol=1e-7)


class Transformers(harness.TeamCase):
    def test_gpt2(self):
        self.team.run(both, harness.fresh_job())
