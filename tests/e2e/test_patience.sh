#!/usr/bin/env bash
# Workers that differ in how long they are patient: the shortest times hold for the job, and everybody keeps to them. Where all stand
# still for longer, as on a virtual machine that is paused, nobody takes the others for dead.
# waits: for a silence that nobody must notice
. "$(dirname "$0")/lib.sh"
winnowd --insecure-no-key

caller idle 0 2 WINNOW_SILENCE_MS=10000
caller idle 1 2 WINNOW_SILENCE_MS=1000
for rank in 0 1; do calls idle $rank 100000; done
for rank in 0 1; do called idle $rank 1; done
sleep 4 # rank 0 would ping every 2.5 s by its own time
for rank in 0 1; do calls idle $rank 100000; done
for rank in 0 1; do called idle $rank 2; done
all=("$(pid_of idle0)" "$DAEMON" "$(pid_of idle1)")
kill -STOP "${all[@]}"
sleep 3
for pid in "${all[@]}"; do
	kill -CONT "$pid"
	sleep 0.2 # the first finds that nobody has said anything yet
done
for rank in 0 1; do calls idle $rank 100000; done
for rank in 0 1; do called idle $rank 3; done
for rank in 0 1; do calls idle $rank leave; done
for rank in 0 1; do expect idle$rank 10 0; done
echo "idle for four times the shortest silence, and stopped for three times"
