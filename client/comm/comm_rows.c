// SPDX-License-Identifier: BSD-3-Clause
/* comm_rows.c - the public calls for tensors that are given as lists of blocks */

#include <errno.h>

#include "client/comm/comm_state.h"

/* task->count is the whole tensor's. `gathered`, if not NULL, gets a list, the caller's. */
static int submit_list(struct winnow_comm *comm, struct allreduce *task, const int64_t *index,
                       uint64_t block_count, const struct winnow_options *options,
                       struct winnow_rows **gathered, struct winnow_request **out)
{
	struct rows_input input = {
		.values = task->send,
		.index = index,
		.block_count = block_count,
		.block_elems = task->block_elems,
		.elem_bytes = dtype_bytes((enum dtype)task->dtype),
		.elems = task->count,
		.gather = gathered != NULL,
	};
	struct winnow_request *request;
	struct winnow_rows *rows;
	const char *wrong = NULL;
	int err;

	if (block_count > 0 && (task->send == NULL || index == NULL))
		return comm_fail(WINNOW_ERR_INVALID, "a buffer is NULL");
	err = rows_open(&input, &rows, &wrong);
	if (err != 0)
		return err == -EINVAL ? comm_fail(WINNOW_ERR_INVALID, wrong)
		                      : comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	task->access = rows_access(rows);
	task->access_state = rows;
	err = comm_request_make(comm, task, options, &request);
	if (err != WINNOW_OK) {
		rows_close(rows);
		return err;
	}
	request->rows = rows;
	if (gathered != NULL) {
		rows_hold(rows);
		*gathered = rows;
	}
	*out = request;
	comm_request_queue(request);
	return WINNOW_OK;
}

/* The buffers differ in length, so check each alone, and then that they do not overlap. */
static const char *wrong_buffers(struct allreduce task, uint64_t block_count, uint64_t block_length,
                                 const struct winnow_options *options)
{
	const void *buffers[] = {task.send, task.recv};
	uint64_t elem_bytes = dtype_bytes((enum dtype)task.dtype);
	uintptr_t send = (uintptr_t)task.send, recv = (uintptr_t)task.recv;

	if (block_length == 0 || block_length > WIRE_BLOCK_ELEMS_MAX)
		return "block_length is 1 to 65536";
	if (options != NULL && options->memory != WINNOW_MEMORY_HOST)
		return "a list of blocks is in the host's memory: none is taken from a GPU";
	for (uint32_t i = 0; i < 2; i++) {
		const char *wrong;

		task.send = buffers[i];
		task.recv = (void *)(uintptr_t)buffers[i];
		wrong = buffers[i] != NULL ? comm_wrong_argument(&task, options) : NULL;
		if (wrong != NULL)
			return wrong;
	}
	if (block_count > task.count / block_length)
		return "there are more blocks than fit the tensor";
	if (recv != 0 && send < recv + task.count * elem_bytes &&
	    recv < send + block_count * block_length * elem_bytes)
		return "the buffers overlap";
	return NULL;
}

int winnow_allreduce_sparse_block_async(const void *send, const int64_t *recv_index,
                                        uint64_t block_count, uint64_t block_length, void *recv,
                                        uint64_t recv_count, enum winnow_dtype dtype,
                                        enum winnow_op op, const struct winnow_options *options,
                                        struct winnow_comm *comm, struct winnow_request **request)
{
	struct allreduce task = {
		.send = send,
		.recv = recv,
		.count = recv_count,
		.block_elems = (uint32_t)block_length,
		.dtype = COMM_ENUM(dtype),
		.reduction = COMM_ENUM(op),
	};
	const char *wrong = wrong_buffers(task, block_count, block_length, options);

	if (request == NULL)
		return comm_fail(WINNOW_ERR_INVALID, COMM_WANTS_REQUEST);
	*request = NULL;
	if (recv == NULL && recv_count > 0)
		wrong = "a buffer is NULL";
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	return submit_list(comm, &task, recv_index, block_count, options, NULL, request);
}

int winnow_allreduce_sparse_block(const void *send, const int64_t *recv_index, uint64_t block_count,
                                  uint64_t block_length, void *recv, uint64_t recv_count,
                                  enum winnow_dtype dtype, enum winnow_op op,
                                  struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_allreduce_sparse_block_async(send, recv_index, block_count,
	                                                 block_length, recv, recv_count, dtype, op,
	                                                 NULL, comm, &request);

	return comm_finish(result, request);
}

int winnow_allreduce_rows_async(const void *send, const int64_t *recv_index, uint64_t block_count,
                                uint64_t block_length, uint64_t recv_count, enum winnow_dtype dtype,
                                enum winnow_op op, const struct winnow_options *options,
                                struct winnow_comm *comm, struct winnow_rows **rows,
                                struct winnow_request **request)
{
	static const uint64_t nothing;
	struct allreduce task = {
		.send = send != NULL ? send : &nothing,
		.count = recv_count,
		.block_elems = (uint32_t)block_length,
		.dtype = COMM_ENUM(dtype),
		.reduction = COMM_ENUM(op),
	};
	const char *wrong = wrong_buffers(task, block_count, block_length, options);

	if (request == NULL || rows == NULL)
		return comm_fail(WINNOW_ERR_INVALID,
		                 request == NULL ? COMM_WANTS_REQUEST
		                                 : "rows is NULL: nobody would get the result");
	*request = NULL;
	*rows = NULL;
	if (wrong == NULL && recv_count % block_length != 0)
		wrong = "recv_count is not a multiple of block_length";
	if (send == NULL && block_count > 0)
		wrong = "a buffer is NULL";
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	return submit_list(comm, &task, recv_index, block_count, options, rows, request);
}

uint64_t winnow_rows_count(const struct winnow_rows *rows)
{
	return rows->found;
}

void winnow_rows_read(const struct winnow_rows *rows, int64_t *index, void *values)
{
	rows_read(rows, index, values);
}

void winnow_rows_free(struct winnow_rows **rows)
{
	rows_close(__atomic_exchange_n(rows, NULL, __ATOMIC_ACQ_REL));
}
