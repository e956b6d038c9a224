# The aggregator: winnowd and winnow with the libraries that they are linked with, and nothing else - no shell, no packages.
#   docker build -f docker/winnowd.Dockerfile -t winnowd .
#   docker run --read-only --cap-drop ALL --security-opt no-new-privileges -p 5555:5555 -p 5555:5555/udp \
#       -v "$PWD/keys:/etc/winnow:ro" winnowd --key-file /etc/winnow/keys
# docs/deploy.md says what XDP needs beyond that. --build-arg DATAPATH=dpdk adds that data path, DPDK and its drivers.
# With --platform linux/amd64,linux/arm64 it is for both: image.sh compiles across.
# The stage `build` is the same, line by line, in worker.Dockerfile: built once.
ARG DEBIAN=bookworm
FROM --platform=$BUILDPLATFORM debian:$DEBIAN-slim AS build
COPY docker/packages.txt docker/install-packages.sh /src/docker/
RUN /src/docker/install-packages.sh build deb
ARG TARGETARCH
COPY docker/debian.sh docker/arm64-root.sh docker/image.sh /src/docker/
RUN /src/docker/image.sh packages
COPY . /src
RUN /src/docker/image.sh deb

FROM build AS closure
ARG TARGETARCH DATAPATH=
RUN test -z "$DATAPATH" || { /src/docker/image.sh packages "$DATAPATH" && /src/docker/image.sh deb; }
RUN /src/docker/image.sh root /image /usr/bin/winnowd /usr/bin/winnow

FROM scratch
COPY --from=closure /image /
USER 65532:65532
# IPv6 and IPv4, or what of it there is.
ENV WINNOW_LISTEN=[::]:5555 WINNOW_METRICS=[::]:9555
EXPOSE 5555/tcp 5555/udp 9555/tcp
STOPSIGNAL SIGTERM
# Degraded is healthy here: restarting an aggregator does not bring a slow worker back.
HEALTHCHECK --interval=5s --timeout=4s --start-period=5s --retries=3 CMD ["/usr/bin/winnow", "status", "--alive", "--quiet"]
ENTRYPOINT ["/usr/bin/winnowd"]
