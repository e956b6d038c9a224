// SPDX-License-Identifier: BSD-3-Clause
/* key.c - winnow key: prints 32 random bytes in hex, a line that serves as a key file for all jobs */

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bitmap/control/job_keys.h"
#include "client/cli/cli.h"

int cli_key(int argc, char **argv)
{
	char text[JOB_KEY_TEXT_BYTES];
	struct stat out;

	(void)argv;
	if (argc > 1) {
		printf("usage: winnow key > FILE\n\nPrints a new job key. Give FILE to winnowd and "
		       "to the workers as --key-file.\nSet umask 077 first, so that nobody else "
		       "can read it.\n\nexamples:\n"
		       "  (umask 077 && winnow key > keys)\n"
		       "  WINNOW_KEY=$(winnow key) winnow run -n 4 python3 train.py\n");
		return argc == 2 ? cli_flush(2) : 2;
	}
	if (fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode) && (out.st_mode & 0007) != 0)
		fprintf(stderr,
		        "winnow: warning: other users can read the file that this key goes to; "
		        "chmod 600 it\n");
	job_key_draw(text);
	printf("%s\n", text);
	return cli_flush(1);
}
