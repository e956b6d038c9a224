# SPDX-License-Identifier: BSD-3-Clause
"""What topk() does, in torch's operations: for gradients on a GPU, whose stream does all of it, so that nobody waits.

The choice is topk()'s, to the bit: which blocks are among the largest says the k-th largest magnitude, and not in
which order a GPU sorts equal ones.
"""

import math

import torch


def topk(gradient, memory, k, chunk, decay, block):
    """As winnow.topk(), of flat tensors that are on one device; chunk is a multiple of block."""
    memory.mul_(decay).add_(gradient)
    whole = len(memory) // chunk * chunk
    taken = torch.empty_like(memory, dtype=torch.bool)
    for first, last, share in ((0, whole, k), (whole, len(memory), _share(k, chunk, block, len(memory) - whole))):
        if first < last:
            taken[first:last] = _taken(memory[first:last], min(chunk, last - first), block, share)
    chosen = torch.where(taken, memory, memory.new_zeros(()))
    most = torch.finfo(gradient.dtype).max
    if most < torch.finfo(torch.float32).max:  # what is finite stays so
        chosen = torch.where(chosen.isfinite(), chosen.clamp(-most, most), chosen)
    gradient.copy_(chosen)
    sent = gradient.float()
    memory.copy_(torch.where(sent.isfinite(), memory - sent, memory.new_zeros(())))


def _share(k, chunk, block, count):
    """Of a last chunk, which is shorter."""
    return math.ceil(k * math.ceil(count / block) / (chunk // block))


def _taken(values, chunk, block, k):
    """Which elements of chunks of equal length are sent: a flat mask."""
    size = torch.where(values.isfinite(), values.abs(), values.new_full((), torch.inf)).view(-1, chunk)
    size = torch.nn.functional.pad(size, (0, -chunk % block)).view(len(size), -1, block).amax(2)
    infinite = size == torch.inf
    size = size.masked_fill(infinite, 0)
    least = size.topk(min(k, size.shape[1])).values[:, -1:]
    above, ties = size > least, (size == least) & (size > 0)
    taken = above | ties & (ties.cumsum(1, dtype=torch.int32) <= k - above.sum(1, keepdim=True))
    taken = (taken | infinite).unsqueeze(2).expand(-1, -1, block).reshape(len(size), -1)
    return taken[:, :chunk].reshape(-1)
