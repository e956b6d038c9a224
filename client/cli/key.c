// SPDX-License-Identifier: BSD-3-Clause
/* key.c - winnow key: 32 random bytes in hex, a line that is a key file for all jobs */

#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/control/proof.h"
#include "client/cli/cli.h"

int cli_key(int argc, char **argv)
{
	uint8_t bytes[PROOF_BYTES];
	char text[2 * PROOF_BYTES + 1];
	struct stat out;

	(void)argv;
	if (argc > 1) {
		printf("usage: winnow key > FILE\n\nPrints a new job key. FILE then serves winnowd "
		       "and the workers as --key-file; keep it from other people's eyes: set "
		       "umask 077 before.\n");
		return argc == 2 ? cli_flush(2) : 2;
	}
	if (proof_init() != 0)
		return cli_error(1, "libsodium cannot start: no source of randomness?");
	if (fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode) && (out.st_mode & 0007) != 0)
		fprintf(stderr, "winnow: others can read this file: chmod 600 it, or set umask 077 "
		                "before\n");
	proof_random(bytes, sizeof(bytes));
	printf("%s\n", sodium_bin2hex(text, sizeof(text), bytes, sizeof(bytes)));
	return cli_flush(1);
}
