# A worker: Debian's PyTorch, the package winnow, and a training that runs until it is stopped (docker/train.py).
#   docker build -f docker/worker.Dockerfile -t winnow-worker .
#   docker run -e WINNOW_AGGREGATORS=agg:5555 -e WINNOW_KEY_FILE=/etc/winnow/keys -e RANK=0 -e WORLD_SIZE=4 -e MASTER_ADDR=.. winnow-worker
# A training of your own: the package, installed in the image that you have, is all that Winnow needs.
ARG DEBIAN=bookworm
FROM --platform=$BUILDPLATFORM debian:$DEBIAN-slim AS build
COPY docker/packages.txt docker/install-packages.sh /src/docker/
RUN /src/docker/install-packages.sh build deb
ARG TARGETARCH
COPY docker/debian.sh docker/arm64-root.sh docker/image.sh /src/docker/
RUN /src/docker/image.sh packages
COPY . /src
RUN /src/docker/image.sh deb

FROM debian:$DEBIAN-slim
# What takes long comes first: it is built once, whatever changes here.
COPY docker/packages.txt docker/install-packages.sh /tmp/packages/
RUN /tmp/packages/install-packages.sh worker && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/winnow_*.deb /tmp/packages/
RUN apt-get update -q && apt-get install -qy --no-install-recommends /tmp/packages/winnow_*.deb && rm -rf /tmp/packages /var/lib/apt/lists/*
COPY client/python/demo/corpus.py client/python/demo/models.py client/python/demo/processes.py docker/train.py /usr/share/winnow/demo/
RUN python3 /usr/share/winnow/demo/train.py --prepare
USER 65532:65532
# One thread for PyTorch: what is to be seen here is the network. Debian 13's PyTorch is built without libuv, which it asks for by default.
ENV OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 USE_LIBUV=0
ENTRYPOINT ["python3", "/usr/share/winnow/demo/train.py"]
