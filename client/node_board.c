// SPDX-License-Identifier: BSD-3-Clause
/* node_board.c - what the processes of a node know of each other: see struct node_board */

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/node_impl.h"

/* Called after the node's id, which is new each time, but not as it is: it is a secret of NCCL's. */
static void name_it(struct winnow_node *node, const struct winnow_node_id *id)
{
	unsigned char hash[16];
	char text[2 * sizeof(hash) + 1];

	crypto_generichash(hash, sizeof(hash), (const unsigned char *)id->bytes, sizeof(id->bytes),
	                   NULL, 0);
	sodium_bin2hex(text, sizeof(text), hash, sizeof(hash));
	snprintf(node->board_name, sizeof(node->board_name), "/winnow-node-%s", text);
}

void node_board_open(struct winnow_node *node, const struct winnow_node_config *config)
{
	struct node_board *board;
	int fd;

	name_it(node, &config->id);
	fd = shm_open(node->board_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	board = MAP_FAILED;
	if (ftruncate(fd, sizeof(*board)) == 0)
		board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (board == MAP_FAILED)
		return;
	node->board = board;
	/* The last one takes the name away; nobody else comes. */
	if (atomic_fetch_add(&board->here, 1) + 1 == node->local_world)
		shm_unlink(node->board_name);
}

void node_board_close(struct winnow_node *node)
{
	if (node->board == NULL)
		return;
	if (atomic_load(&node->board->here) < node->local_world)
		shm_unlink(node->board_name);
	munmap(node->board, sizeof(*node->board));
	node->board = NULL;
}

/* The first failure counts: what follows from it says less. */
void node_board_write(struct winnow_node *node, enum winnow_result result, const char *why)
{
	struct node_board *board = node->board;
	uint32_t none = 0;

	if (board == NULL || !atomic_compare_exchange_strong(&board->failed, &none, 1))
		return;
	board->result = (int32_t)result;
	snprintf(board->why, sizeof(board->why), "%s", why);
	atomic_store(&board->failed, 2);
}

bool node_board_read(struct winnow_node *node, enum winnow_result *result, char *why)
{
	struct node_board *board = node->board;
	uint32_t failed = board != NULL ? atomic_load(&board->failed) : 0;

	if (failed == 0)
		return false;
	*result = WINNOW_ERR_LOST;
	snprintf(why, COMM_ERROR_BYTES, "another process of this node has failed");
	/* Whoever died while writing has said no more than that. */
	for (int i = 0; i < 1000 && failed == 1; i++) {
		usleep(10);
		failed = atomic_load(&board->failed);
	}
	if (failed == 2) {
		*result = (enum winnow_result)board->result;
		snprintf(why, COMM_ERROR_BYTES, "%s", board->why);
	}
	return true;
}
