#!/bin/sh
# mpi_agent.sh HOST COMMAND.. - mpirun's way to a host that is a network namespace: MPI_NET is the prefix, HOST an address
host=w$((${1##*.} - 1))
shift
exec ip netns exec "$MPI_NET-$host" unshare --uts sh -c "hostname $host; $*"
