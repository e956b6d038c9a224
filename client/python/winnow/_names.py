# SPDX-License-Identifier: BSD-3-Clause
"""What people call the parameters in a bucket."""


class Names:
    def __init__(self):
        self._names = {}  # of parameters, by id

    def learn(self, module):
        for name, parameter in module.named_parameters():
            self._names[id(parameter)] = name

    def holding(self, parameters, wanted):
        """Those parameters of a bucket for whose slice of it wanted(slice) is true."""
        found, offset = [], 0
        for number, parameter in enumerate(parameters):
            end = offset + parameter.numel()
            if wanted(slice(offset, end)):
                found.append(self._names.get(id(parameter), f"({number})"))
            offset = end
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        return ", ".join(found[:3]) + more or "a bucket"
