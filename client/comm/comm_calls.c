// SPDX-License-Identifier: BSD-3-Clause
/* comm_calls.c - the collectives of winnow.h: what each is, as one operation */

#include "bitmap/dtype.h"
#include "client/comm/comm_state.h"
#include "client/worker/array.h"

#define BROADCAST_HASHED UINT64_C(0x7473616364616f72) /* no other kind of operation hashes it */

int winnow_allreduce_async(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                           enum winnow_op op, const struct winnow_options *options,
                           struct winnow_comm *comm, struct winnow_request **out)
{
	return winnow_allreduce_segments_async(send, recv, count, dtype, op, NULL, 0, options, comm,
	                                       out);
}

int comm_finish(int result, struct winnow_request *request)
{
	if (result == WINNOW_OK)
		result = winnow_wait(request, -1, NULL);
	winnow_request_free(&request);
	return result;
}

int winnow_allreduce(const void *send, void *recv, uint64_t count, enum winnow_dtype dtype,
                     enum winnow_op op, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_allreduce_async(send, recv, count, dtype, op, NULL, comm, &request);

	return comm_finish(result, request);
}

int winnow_reduce_scatter_async(const void *send, void *recv, uint64_t recv_count,
                                enum winnow_dtype dtype, enum winnow_op op,
                                const struct winnow_options *options, struct winnow_comm *comm,
                                struct winnow_request **out)
{
	struct allreduce task = {
		.send = send,
		.recv = recv,
		.count = recv_count * comm->world,
		.dtype = COMM_ENUM(dtype),
		.reduction = COMM_ENUM(op),
		.scatter = true,
		.share_first = recv_count * comm->rank,
		.share_count = recv_count,
		.access = &array_access,
	};
	const char *wrong;

	if (recv_count > (UINT64_C(1) << 48) / comm->world)
		wrong = "recv_count times the number of workers is above 2^48";
	else
		wrong = comm_wrong_argument(&task, options);
	if (wrong == NULL && options != NULL && options->memory != WINNOW_MEMORY_HOST)
		wrong = "reduce_scatter takes no tensors on a GPU: copy them to the host's memory";
	return comm_allreduce(comm, &task, wrong, NULL, 0, options, out);
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
	/* Words of the root's, to which nobody adds anything, come out with every bit as it was. */
	struct allreduce task = {
		.send = data,
		.recv = data,
		.count = bytes / 4,
		.dtype = DTYPE_I32,
		.reduction = REDUCE_SUM,
		.agreed = geometry_hash(geometry_hash(GEOMETRY_HASH_FIRST, BROADCAST_HASHED), root),
		.access = &array_access,
	};
	const char *wrong = comm_wrong_argument(&task, options);

	if (wrong == NULL && bytes % 4 != 0)
		wrong = "bytes is no multiple of 4";
	if (wrong == NULL && root >= comm->world)
		wrong = "there is no such root";
	if (wrong == NULL && options != NULL && options->memory != WINNOW_MEMORY_HOST)
		wrong = "broadcast takes no tensors on a GPU: copy them to the host's memory";
	if (root != comm->rank)
		task.send = NULL;
	return comm_allreduce(comm, &task, wrong, NULL, 0, options, out);
}

int winnow_broadcast(void *data, uint64_t bytes, uint32_t root, struct winnow_comm *comm)
{
	struct winnow_request *request;
	int result = winnow_broadcast_async(data, bytes, root, NULL, comm, &request);

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
