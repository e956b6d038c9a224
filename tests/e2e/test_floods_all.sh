#!/usr/bin/env bash
# release: thirteen floods
# late: it measures
export FLOODS="pings secured wrong halves huge starts connects joins strangers handshakes empty newcomers probes"
exec "$(dirname "$0")/test_floods.sh"
