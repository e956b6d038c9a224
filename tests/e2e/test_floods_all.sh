#!/usr/bin/env bash
# release: ten seconds for each of fifteen floods
# late: it measures
export FLOODS="pings secured wrong halves huge starts connects joins strangers passphrases handshakes empty newcomers http probes" FLOOD_SECONDS=6
exec "$(dirname "$0")/test_floods.sh"
