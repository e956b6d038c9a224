# SPDX-License-Identifier: BSD-3-Clause
"""What Helm's own library makes of docker/kubernetes/chart.

render.py FOLDER [workers] - winnow.yaml, or worker-deployment.yaml, on stdout (Python as helm.sh has it)
"""
import pathlib
import sys

import helm_python

helm_python.disable_logging()
HELM_SAYS = (helm_python.HelmValuesError, helm_python.HelmRenderError)


def templates(folder, release="winnow", namespace="default", **values):
    """Each template's text, by its file's name."""
    with helm_python.Chart.load(str(folder)) as chart:
        chart.validate_schema(values)
        texts = chart.render(values, name=release, namespace=namespace)
    return {pathlib.PurePath(path).name: text.strip() + "\n" for path, text in texts.items() if text.strip()}


def chart(folder, **how):
    """All documents, as one text; templates in the order of their names."""
    return "---\n".join(text for name, text in sorted(templates(folder, **how).items()) if name.endswith(".yaml"))


def refused(folder, **values):
    """The one line by which Helm refuses these values; None: it takes them."""
    try:
        templates(folder, **values)
    except HELM_SAYS as error:
        (line,) = [line for line in str(error).splitlines() if line.startswith("- at") or "execution error" in line]
        return line
    return None


if __name__ == "__main__":
    if sys.argv[2:] == ["workers"]:
        sys.stdout.write("# The chart's workers with its values as they are: kubectl apply -f worker-deployment.yaml\n")
        sys.stdout.write(templates(sys.argv[1], workers={"enabled": True})["workers.yaml"])
    else:
        sys.stdout.write("# The chart with its values as they are, for namespace default: kubectl apply -f winnow.yaml\n")
        sys.stdout.write(chart(sys.argv[1]))
