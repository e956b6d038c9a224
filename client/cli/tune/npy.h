/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * npy.h - NumPy's array files (.npy, versions 1 to 3), as far as a gradient needs them
 *
 * One array in C order of a type that Winnow reduces. Knows nothing of Winnow but its types.
 */
#ifndef CLIENT_CLI_NPY_H
#define CLIENT_CLI_NPY_H

#include <stddef.h>
#include <stdint.h>

#include "bitmap/dtype.h"
#include "bitmap/why.h"

#define NPY_HEAD_BYTES_MAX 65536
#define NPY_DIMENSIONS_MAX 16

struct npy {
	enum dtype dtype;
	uint32_t dimensions;
	uint64_t shape[NPY_DIMENSIONS_MAX];
	uint64_t count;     /* elements: the shape's product */
	uint64_t data_from; /* bytes before them in the file */
};

/*
 * npy_parse - the first `bytes` bytes of a file of `file_bytes`. 0, or -EINVAL and one line in
 * `why`, without the file's name. The data is known to be within the file.
 */
int npy_parse(const uint8_t *head, size_t bytes, uint64_t file_bytes, struct npy *out,
              struct why *why);

/*
 * npy_read - the file's head, and the elements in malloc'ed memory that the caller frees; `data` NULL:
 * only the head. 0, or -errno and one line in `why`.
 */
int npy_read(const char *path, struct npy *out, void **data, struct why *why);

#endif /* CLIENT_CLI_NPY_H */
