# SPDX-License-Identifier: BSD-3-Clause
"""The part of Helm's template language that docker/kubernetes/chart uses, and nothing more: whatever else is there is an error.

    {{ .Values.a.b }}  {{ .Release.Name }}  {{- if .Values.a.b }} .. {{- else }} .. {{- end }}   (an if stands alone on its line)
"""
import pathlib
import re

import yaml

ACTION = re.compile(r"\{\{(-?) *(.*?) *(-?)\}\}")


def lookup(path, values, release):
    if path == ".Release.Name":
        return release
    if not re.fullmatch(r"\.Values(\.[A-Za-z]+)+", path):
        raise ValueError(f"not in this test's part of the language: {path}")
    for name in path.split(".")[2:]:
        values = values[name]
    return values


def text_of(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int)):
        raise ValueError(f"no text: {value!r}")
    return str(value)


def render(text, values, release):
    lines, taken = [], [True]
    for number, line in enumerate(text.splitlines(), 1):
        words = re.fullmatch(r"\{\{- (?:(if) (\S+)|(else)|(end)) \}\}", line)
        if words and words[1]:
            taken.append(taken[-1] and bool(lookup(words[2], values, release)))
        elif words and words[3]:
            taken[-1] = taken[-2] and not taken[-1]
        elif words:
            taken.pop()
        elif taken[-1]:
            for left, _, right in ACTION.findall(line):
                if left or right:
                    raise ValueError(f"line {number}: {line}")
            lines.append(ACTION.sub(lambda m: text_of(lookup(m[2], values, release)), line))
        if not taken:
            raise ValueError(f"line {number}: end without if")
    if len(taken) != 1:
        raise ValueError("if without end")
    return "\n".join(lines).strip() + "\n" if lines else ""


def merged(values, changes):
    result = dict(values)
    for name, value in changes.items():
        if name not in values:
            raise KeyError(name)
        result[name] = merged(values[name], value) if isinstance(value, dict) else value
    return result


def chart(folder, release="winnow", **changes):
    """All documents of the chart, as one text; templates in the order of their names."""
    folder = pathlib.Path(folder)
    values = merged(yaml.safe_load((folder / "values.yaml").read_text()), changes)
    parts = [render(path.read_text(), values, release) for path in sorted((folder / "templates").glob("*.yaml"))]
    return "---\n".join(part for part in parts if part.strip())


def workers(folder):
    """The workers of the chart, alone."""
    folder = pathlib.Path(folder)
    values = merged(yaml.safe_load((folder / "values.yaml").read_text()), {"workers": {"enabled": True}})
    head = "# The chart's workers with its values as they are: kubectl apply -f worker-deployment.yaml\n"
    return head + render((folder / "templates" / "workers.yaml").read_text(), values, "winnow")


if __name__ == "__main__":
    import sys

    if sys.argv[2:] == ["workers"]:
        sys.stdout.write(workers(sys.argv[1]))
    else:
        sys.stdout.write("# The chart with its values as they are: kubectl apply -f winnow.yaml\n" + chart(sys.argv[1]))
