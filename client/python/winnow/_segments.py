# SPDX-License-Identifier: BSD-3-Clause
"""Where the blocks of a tensor begin that is several parameters one after the other."""

# A parameter counts as a table of rows, to which blocks are aligned, from so many bytes on, and if
# it is so many times as high as wide.
_TABLE_BYTES = 1 << 16
_TABLE_RATIO = 8


def segments_of_parameters(parameters, buffer, compress=None):
    """The segments of a bucket, for Comm.allreduce(); None if no parameter looks like a table.

    Of a parameter that is compressed, single elements travel.
    """
    segments, offset = [], 0
    for parameter in parameters:
        count, shape = parameter.numel(), parameter.shape
        if compress is not None and count > 0 and compress.takes(parameter):
            segments.append((offset, count, 1, 1, 1))
        elif (
            len(shape) == 2
            and shape[0] >= _TABLE_RATIO * shape[1]
            and count * buffer.element_size() >= _TABLE_BYTES
        ):
            segments.append((offset, count, shape[1]))
        offset += count
    return segments if segments and offset == buffer.numel() else None
