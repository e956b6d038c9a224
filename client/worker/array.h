/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * array.h - tensors that are two arrays in this process's memory
 *
 * array_access is their struct access. Other kinds use the functions below: kinds that consist partly
 * of an array, or that give and take their blocks one by one.
 */
#ifndef CLIENT_ARRAY_H
#define CLIENT_ARRAY_H

#include "client/worker/allreduce.h"

extern const struct access array_access;

/* Clears the blocks that no worker has. */
int array_plan(struct allreduce *task, const struct access_frame *plan);
bool array_store(struct allreduce *task, const struct access_frame *frame, const uint8_t *data);

/*
 * push() and store() block by block. place() returns the address of a block of the tensor. For blocks_push() it also
 * sets the bytes to push, which are fewer at the end of the tensor, and 0 past it.
 */
void blocks_push(const struct allreduce *task, const struct access_frame *frame,
                 struct packet_out *out,
                 const uint8_t *(*place)(const struct allreduce *task,
                                         const struct access_frame *frame, uint64_t block,
                                         uint32_t *bytes));
void blocks_store(const struct allreduce *task, const struct access_frame *frame,
                  const uint8_t *data,
                  uint8_t *(*place)(const struct allreduce *task, const struct access_frame *frame,
                                    uint64_t block));

#endif /* CLIENT_ARRAY_H */
