# SPDX-License-Identifier: BSD-3-Clause
"""OuterOptimizer where an optimizer of torch is wanted: schedulers, GradScaler, Accelerate, Lightning, the Trainer. With each,
the weights are those of a plain loop."""

import logging
import os
import tempfile
import unittest
import warnings

import harness
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

STEPS, BATCH = 12, 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, labels):
        return {"loss": (self.layers(x) - labels).square().mean()}


def data_of(rank):
    x = torch.randn(STEPS * BATCH, 6, generator=torch.Generator().manual_seed(rank))
    return [{"x": row, "labels": row.sum(0, keepdim=True)} for row in x]


def batches(rank):
    return torch.utils.data.DataLoader(data_of(rank), batch_size=BATCH)


def outer_of(net, comm):
    """With a learning rate that halves after each five steps, which it does in its inner optimizer."""
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    outer = winnow.torch.OuterOptimizer(net, inner, H=4, warm_up=4, comm=comm)
    return outer, torch.optim.lr_scheduler.StepLR(outer, 5, gamma=0.5)


def plain(rank, comm):
    net = Net()
    outer, scheduler = outer_of(net, comm)
    assert isinstance(outer, torch.optim.Optimizer)
    for batch in batches(rank):
        net(**batch)["loss"].backward()
        outer.step()
        scheduler.step()
        outer.zero_grad()
    assert outer.inner.param_groups[0]["lr"] == 0.1 * 0.5 ** (STEPS // 5), outer.param_groups
    return net


def scaled(rank, comm):
    net, scaler = Net(), torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    outer, scheduler = outer_of(net, comm)
    for batch in batches(rank):
        scaler.scale(net(**batch)["loss"]).backward()
        scaler.step(outer)
        scaler.update()
        scheduler.step()
        outer.zero_grad()
    assert scaler.get_scale() > 8
    return net


def accelerated(rank, comm):
    from accelerate import Accelerator

    accelerator, net = Accelerator(cpu=True), Net()
    outer, scheduler = outer_of(net, comm)
    optimizer, scheduler, loader = accelerator.prepare(outer, scheduler, batches(rank))
    for batch in loader:
        accelerator.backward(net(**batch)["loss"])
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return net


def lit(rank, comm):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            outer, scheduler = outer_of(self.net, comm)
            return {"optimizer": outer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    logging.getLogger("lightning").setLevel(logging.ERROR)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    module = Module()
    lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, **quiet).fit(module, batches(rank))
    return module.net


def trained(rank, comm):
    from transformers import Trainer, TrainingArguments

    class InOrder(Trainer):
        def _get_train_sampler(self, *arguments):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    net = Net()
    outer, scheduler = outer_of(net, comm)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, use_cpu=True, max_steps=STEPS, per_device_train_batch_size=BATCH, save_strategy="no", report_to="none",
            disable_tqdm=True, max_grad_norm=0, logging_strategy="no",
        )  # fmt: skip
        InOrder(net, arguments, train_dataset=data_of(rank), optimizers=(outer, scheduler)).train()
    return net


def hooked(rank, comm):
    """Hooks of steps are those of inner; a group cannot be added; the state goes out and in."""
    net, seen = Net(), []
    outer, _ = outer_of(net, comm)
    outer.register_step_post_hook(lambda optimizer, *more: seen.append(optimizer))
    net(**next(iter(batches(rank))))["loss"].backward()
    outer.step()
    assert seen == [outer.inner], seen
    try:
        outer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        raise AssertionError("a group was added")
    except ValueError as error:
        assert "give all groups to the inner optimizer" in str(error)
    outer.load_state_dict(outer.state_dict())
    assert outer.state is outer.inner.state and outer.param_groups is outer.inner.param_groups
    return net


def weights(rank, world, store, job, pipe):
    """By way, or what went wrong."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    found = {}
    try:
        for way in (plain, scaled, accelerated, lit, trained, hooked):
            with winnow.Comm(job=f"{job}-{way.__name__}", rank=rank, world=world) as comm:
                net = way(rank, comm)
            found[way.__name__] = torch.cat([parameter.detach().flatten() for parameter in net.parameters()]).tolist()
        pipe.send(found)
    except Exception as error:
        pipe.send(f"{way.__name__}: {type(error).__name__}: {error}")


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


class Taken(unittest.TestCase):
    def test_by_all(self):
        found = harness.spawned(weights, 2, harness.fresh_job())
        for each in found:
            self.assertIsInstance(each, dict, each)
        want = torch.tensor(found[0]["plain"])
        for way in ("plain", "scaled", "accelerated", "lit", "trained"):
            for each in found:
                torch.testing.assert_close(torch.tensor(each[way]), want, rtol=1e-4, atol=1e-5, msg=lambda text: f"{way}: {text}")


class Transformers(harness.TeamCase):
    """attach(): a GPT-2 of random weights has the gradients that it has over Gloo."""

    def test_gpt2(self):
        self.team.run(both, harness.fresh_job())
