// SPDX-License-Identifier: BSD-3-Clause
/* comm_calls.c - the operations of winnow.h, each as one task; and winnow_topk(), which needs no communicator */

#include <errno.h>

#include "bitmap/topk.h"
#include "client/comm/comm_state.h"

#define BROADCAST_HASHED UINT64_C(0x7473616364616f72) /* No other kind of operation hashes it. */

int comm_finish(int result, struct winnow_request *request)
{
	if (result == WINNOW_OK)
		result = winnow_wait(request, -1, NULL);
	winnow_request_free(&request);
	return result;
}

/* A call on buffers in main memory or, if the options say so, in a GPU's. */
static struct comm_call call_of(struct winnow_comm *comm, const struct winnow_options *options,
                                const void *send, void *recv, uint64_t count,
                                enum winnow_dtype dtype, enum winnow_op op)
{
	return (struct comm_call){
		.comm = comm,
		.view = comm_view(comm),
		.options = options,
		.task = {.send = send,
	                 .recv = recv,
	                 .count = count,
	                 .dtype = COMM_ENUM(dtype),
	                 .reduction = COMM_ENUM(op),
	                 .access = &array_access},
	};
}

/* ---- allreduce ---- */

int winnow_allreduce_segments_async(const void *send, void *recv, uint64_t count,
                                    enum winnow_dtype dtype, enum winnow_op op,
                                    const struct winnow_segment *segments, uint32_t segment_count,
                                    const struct winnow_options *options, struct winnow_comm *comm,
                                    struct winnow_request **out)
{
	struct comm_call call = call_of(comm, options, send, recv, count, dtype, op);

	call.segments = segments;
	call.segment_count = segment_count;
	call.wrong = comm_wrong_argument(&call.task, options);
	if (call.wrong == NULL)
		call.wrong = comm_wrong_segments(segments, segment_count, count,
		                                 comm_gpu_wanted(options));
	return comm_begin(&call, out);
}

int winnow_allreduce_async(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                           enum winnow_op op, const struct winnow_options *options,
                           struct winnow_comm *comm, struct winnow_request **out)
{
	return winnow_allreduce_segments_async(send, recv, count, dtype, op, NULL, 0, options, comm,
	                                       out);
}

int winnow_allreduce(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                     enum winnow_op op, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_allreduce_async(send, recv, count, dtype, op, NULL, comm, &request);

	return comm_finish(result, request);
}

int winnow_allreduce_cuda(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                          enum winnow_op op, struct winnow_comm *comm, void *stream,
                          struct winnow_request **out)
{
	struct winnow_options options = {.memory = WINNOW_MEMORY_CUDA, .stream = stream};
	struct winnow_request *request;
	int result = winnow_allreduce_async(send, recv, count, dtype, op, &options, comm,
	                                    out != NULL ? out : &request);

	return out != NULL ? result : comm_finish(result, request);
}

/* ---- reduce-scatter and broadcast ---- */

int winnow_reduce_scatter_async(const void *send, void *recv, uint64_t recv_count,
                                enum winnow_dtype dtype, enum winnow_op op,
                                const struct winnow_options *options, struct winnow_comm *comm,
                                struct winnow_request **out)
{
	struct comm_call call = call_of(comm, options, send, recv, recv_count, dtype, op);

	call.task.count *= call.view.world;
	call.task.scatter = true;
	call.task.share_first = recv_count * call.view.rank;
	call.task.share_count = recv_count;
	if (recv_count > (UINT64_C(1) << 48) / call.view.world)
		call.wrong = "recv_count times the number of workers is above 2^48";
	else
		call.wrong = comm_wrong_argument(&call.task, options);
	if (call.wrong == NULL && comm_gpu_wanted(options))
		call.wrong = "reduce_scatter takes no tensors on a GPU: copy them to the host's "
			     "memory";
	return comm_begin(&call, out);
}

int winnow_reduce_scatter(const void *send, void *recv, uint64_t recv_count,
                          enum winnow_dtype dtype, enum winnow_op op, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_reduce_scatter_async(send, recv, recv_count, dtype, op, NULL, comm,
	                                         &request);

	return comm_finish(result, request);
}

int winnow_broadcast_async(void *data, uint64_t bytes, uint32_t root,
                           const struct winnow_options *options, struct winnow_comm *comm,
                           struct winnow_request **out)
{
	/* Nobody adds anything to the root's words, so they come out with every bit as it was. */
	struct comm_call call =
		call_of(comm, options, data, data, bytes / 4, WINNOW_I32, WINNOW_SUM);

	call.task.agreed =
		geometry_hash(geometry_hash(GEOMETRY_HASH_FIRST, BROADCAST_HASHED), root);
	call.wrong = comm_wrong_argument(&call.task, options);
	if (call.wrong == NULL && bytes % 4 != 0)
		call.wrong = "bytes is no multiple of 4";
	if (call.wrong == NULL && root >= call.view.world)
		call.wrong = "there is no such root";
	if (call.wrong == NULL && comm_gpu_wanted(options))
		call.wrong = "broadcast takes no tensors on a GPU: copy them to the host's memory";
	if (root != call.view.rank)
		call.task.send = NULL;
	return comm_begin(&call, out);
}

int winnow_broadcast(void *data, uint64_t bytes, uint32_t root, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_broadcast_async(data, bytes, root, NULL, comm, &request);

	return comm_finish(result, request);
}

/* ---- tensors that are given as lists of blocks ---- */

/* The two buffers differ in length, so it checks each alone, and then that they do not overlap. */
static const char *wrong_list(struct allreduce task, uint64_t block_count, uint64_t block_length,
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

		if (buffers[i] == NULL && task.count > 0)
			continue;
		task.send = buffers[i];
		task.recv = (void *)(uintptr_t)buffers[i];
		wrong = comm_wrong_argument(&task, options);
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

/* call->task.count is that of the whole tensor. If `gathered` is not NULL it gets a list, which the caller frees. */
static int list_begin(struct comm_call *call, const int64_t *index, uint64_t block_count,
                      struct winnow_rows **gathered, struct winnow_request **out)
{
	const struct allreduce *task = &call->task;
	struct rows_input input = {
		.values = task->send,
		.index = index,
		.block_count = block_count,
		.block_elems = task->block_elems,
		.elem_bytes = dtype_bytes((enum dtype)task->dtype),
		.elems = task->count,
		.gather = gathered != NULL,
	};
	int err;

	if (block_count > 0 && (task->send == NULL || index == NULL))
		call->wrong = "a buffer is NULL";
	if (out == NULL || call->wrong != NULL)
		return comm_begin(call, out);
	*out = NULL;
	err = rows_open(&input, &call->rows, &call->wrong);
	if (err == -ENOMEM)
		return comm_fail(WINNOW_ERR_MEMORY, "out of memory");
	if (err == 0) {
		call->task.access = rows_access(call->rows);
		call->task.access_state = call->rows;
	}
	if (err == 0 && gathered != NULL) {
		rows_hold(call->rows);
		*gathered = call->rows;
	}
	err = comm_begin(call, out);
	if (err != WINNOW_OK && gathered != NULL)
		winnow_rows_free(gathered);
	return err;
}

int winnow_allreduce_sparse_block_async(const void *send, const int64_t *recv_index,
                                        uint64_t block_count, uint64_t block_length, void *recv,
                                        uint64_t recv_count, enum winnow_dtype dtype,
                                        enum winnow_op op, const struct winnow_options *options,
                                        struct winnow_comm *comm, struct winnow_request **request)
{
	struct comm_call call = call_of(comm, options, send, recv, recv_count, dtype, op);

	call.task.block_elems = (uint32_t)block_length;
	call.wrong = recv == NULL && recv_count > 0
	                     ? "a buffer is NULL"
	                     : wrong_list(call.task, block_count, block_length, options);
	return list_begin(&call, recv_index, block_count, NULL, request);
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
	struct comm_call call =
		call_of(comm, options, send != NULL || block_count > 0 ? send : &nothing, NULL,
	                recv_count, dtype, op);

	call.task.block_elems = (uint32_t)block_length;
	call.wrong = wrong_list(call.task, block_count, block_length, options);
	if (call.wrong == NULL && recv_count % block_length != 0)
		call.wrong = "recv_count is not a multiple of block_length";
	if (rows == NULL)
		call.wrong = "rows is NULL: nobody would get the result";
	else
		*rows = NULL;
	return list_begin(&call, recv_index, block_count, rows, request);
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

/* ---- without a communicator ---- */

int winnow_topk(void *gradient, float *memory, uint64_t count, enum winnow_dtype dtype,
                const struct winnow_choice *choice, uint64_t *taken)
{
	const struct topk topk = {.chunk = choice->chunk,
	                          .k = choice->k,
	                          .block = choice->block > 0 ? choice->block : 1,
	                          .decay = choice->decay};
	const char *wrong = topk_wrong(&topk);
	uint64_t sent;

	if (!topk_knows((enum dtype)dtype))
		return comm_fail(WINNOW_ERR_INVALID, "top-k is of f32, f16 or bf16");
	if (count > 0 && (gradient == NULL || memory == NULL))
		return comm_fail(WINNOW_ERR_INVALID, "gradient or memory is NULL");
	if (wrong != NULL)
		return comm_fail(WINNOW_ERR_INVALID, wrong);
	sent = topk_take(gradient, memory, count, (enum dtype)dtype, &topk);
	if (taken != NULL)
		*taken = sent;
	return WINNOW_OK;
}
