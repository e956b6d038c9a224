#!/usr/bin/env bash
# release: fifteen floods
# late: it measures
export FLOODS="pings secured wrong halves huge starts connects joins strangers passphrases handshakes empty newcomers http probes" FLOOD_SECONDS=4
exec "$(dirname "$0")/test_floods.sh"
