// SPDX-License-Identifier: BSD-3-Clause
/*
 * secure.c - a program with the library in it, for test_secure.sh: what does it take from its environment?
 *
 *     secure      prints the EAL arguments, the job and the block of its settings, and why there is no GPU
 */

#include <stdio.h>

#include "client/winnow.h"

int main(void)
{
	struct winnow_config config;
	struct winnow_node_id id;

	winnow_config_init(&config);
	printf("eal %s, job %s, block %u\n", config.eal != NULL ? config.eal : "-", config.job,
	       config.block);
	if (winnow_node_id_make(&id) != WINNOW_OK)
		printf("%s\n", winnow_last_error());
	return 0;
}
