# A worker: Debian's PyTorch, the package winnow, and a training that runs until it is stopped (docker/train.py).
#   docker build -f docker/worker.Dockerfile -t winnow-worker .
#   docker run -e WINNOW_AGGREGATORS=agg:5555 -e WINNOW_KEY_FILE=/etc/winnow/keys -e RANK=0 -e WORLD_SIZE=4 -e MASTER_ADDR=.. winnow-worker
# A training of your own: the package, installed in the image that you have, is all that Winnow needs.
# With --platform linux/amd64,linux/arm64 it is for both: the build runs only the builder's programs, and unpacks the image's.
# The stage `build` is the same, line by line, in winnowd.Dockerfile: built once.
ARG DEBIAN=bookworm
FROM --platform=$BUILDPLATFORM debian:$DEBIAN-slim AS build
COPY docker/packages.txt docker/install-packages.sh /src/docker/
RUN /src/docker/install-packages.sh build deb
ARG TARGETARCH
COPY docker/debian.sh docker/arm64-root.sh docker/image.sh /src/docker/
RUN /src/docker/image.sh packages
COPY . /src
RUN /src/docker/image.sh deb

FROM build AS ours
RUN dpkg -x /src/winnow_*.deb /ours

# What takes long comes first: it is built once, whatever changes here.
FROM --platform=$BUILDPLATFORM debian:$DEBIAN-slim AS system
COPY docker/packages.txt docker/install-packages.sh /src/docker/
RUN /src/docker/install-packages.sh worker-build
ARG TARGETARCH
COPY docker/debian.sh docker/image.sh /src/docker/
RUN /src/docker/image.sh debian /image worker

FROM system AS demo
COPY client/python/demo/corpus.py client/python/demo/models.py client/python/demo/processes.py docker/train.py /demo/
RUN PYTHONDONTWRITEBYTECODE=1 python3 /demo/train.py --prepare

FROM scratch
COPY --from=system /image /
COPY --from=ours /ours /
COPY --from=demo /demo /usr/share/winnow/demo
USER 65532:65532
# One thread for PyTorch: what is to be seen here is the network. Debian 13's PyTorch is built without libuv, which it asks for by default.
# Python looks for libraries in the linker's cache, which only a program of the image's own processor could write.
ENV OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 USE_LIBUV=0 WINNOW_LIBRARY=libwinnow.so
ENTRYPOINT ["/usr/bin/python3", "/usr/share/winnow/demo/train.py"]
