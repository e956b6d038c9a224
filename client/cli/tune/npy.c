// SPDX-License-Identifier: BSD-3-Clause
/*
 * npy.c - see npy.h
 *
 * The head is a Python dictionary in text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 */

#include "client/cli/tune/npy.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT_MAX (UINT64_C(1) << 48)

/* ---- the dictionary ---- */

struct text {
	const char *at, *end;
};

static void skip_space(struct text *text)
{
	while (text->at < text->end && isspace((unsigned char)*text->at))
		text->at++;
}

/* The next character that is no space, if it is `c`. */
static bool take(struct text *text, char c)
{
	skip_space(text);
	if (text->at == text->end || *text->at != c)
		return false;
	text->at++;
	return true;
}

static bool take_word(struct text *text, const char *word)
{
	size_t length = strlen(word);

	skip_space(text);
	if ((size_t)(text->end - text->at) < length || memcmp(text->at, word, length) != 0)
		return false;
	text->at += length;
	return true;
}

/* 'descr' or "descr"; no escapes. */
static bool take_string(struct text *text, char *out, size_t room)
{
	size_t used = 0;
	char quote;

	skip_space(text);
	if (text->at == text->end || (*text->at != '\'' && *text->at != '"'))
		return false;
	quote = *text->at++;
	for (; text->at < text->end && *text->at != quote; text->at++) {
		if (used + 1 == room || *text->at == '\\' || !isprint((unsigned char)*text->at))
			return false;
		out[used++] = *text->at;
	}
	out[used] = '\0';
	return text->at < text->end && *text->at++ == quote;
}

static bool take_number(struct text *text, uint64_t *out)
{
	skip_space(text);
	if (text->at == text->end || !isdigit((unsigned char)*text->at))
		return false;
	for (*out = 0; text->at < text->end && isdigit((unsigned char)*text->at); text->at++) {
		*out = *out * 10 + (uint64_t)(*text->at - '0');
		if (*out > COUNT_MAX)
			return false;
	}
	return true;
}

static int shape_take(struct text *text, struct npy *npy, struct why *why)
{
	if (!take(text, '('))
		return why_set(why, -EINVAL, "its shape is not a tuple");
	npy->count = 1;
	for (npy->dimensions = 0; !take(text, ')'); npy->dimensions++) {
		uint64_t size;

		if (npy->dimensions == NPY_DIMENSIONS_MAX)
			return why_set(why, -EINVAL, "it has more than %d dimensions",
			               NPY_DIMENSIONS_MAX);
		if (!take_number(text, &size))
			return why_set(why, -EINVAL,
			               "its shape is not a tuple of numbers below 2^48");
		npy->shape[npy->dimensions] = size;
		if (size != 0 && npy->count > COUNT_MAX / size)
			return why_set(why, -EINVAL, "it has more than 2^48 elements");
		npy->count *= size;
		if (!take(text, ',') &&
		    (skip_space(text), text->at == text->end || *text->at != ')'))
			return why_set(why, -EINVAL,
			               "its shape is not a tuple of numbers below 2^48");
	}
	return 0;
}

static int type_of(const char *descr, enum dtype *out, struct why *why)
{
	static const struct {
		const char *descr;
		enum dtype dtype;
	} known[] =
		{
			{"<f4", DTYPE_F32},  {"<f2", DTYPE_F16}, {"<f8", DTYPE_F64},
			{"<i4", DTYPE_I32},  {"<i8", DTYPE_I64}, {"<V2", DTYPE_BF16},
			{"|V2", DTYPE_BF16}, /* ml_dtypes' bfloat16 */
		};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i].descr, descr) != 0)
			continue;
		*out = known[i].dtype;
		return 0;
	}
	return why_set(why, -EINVAL,
	               "its type is %s: want little-endian float32, float16, float64, int32, int64 "
	               "or bfloat16",
	               descr);
}

static int entry_take(struct text *text, struct npy *npy, uint32_t *seen, struct why *why)
{
	char name[32], descr[32];

	if (!take_string(text, name, sizeof(name)) || !take(text, ':'))
		return why_set(why, -EINVAL, "its head is not a dictionary");
	if (strcmp(name, "descr") == 0) {
		*seen |= 1;
		if (!take_string(text, descr, sizeof(descr)))
			return why_set(why, -EINVAL,
			               "its elements are records: want one of numbers");
		return type_of(descr, &npy->dtype, why);
	}
	if (strcmp(name, "fortran_order") == 0) {
		*seen |= 2;
		if (take_word(text, "False"))
			return 0;
		if (take_word(text, "True")) {
			*seen |= 8;
			return 0;
		}
		return why_set(why, -EINVAL, "its fortran_order is neither True nor False");
	}
	if (strcmp(name, "shape") != 0)
		return why_set(why, -EINVAL, "its head has an unknown entry '%s'", name);
	*seen |= 4;
	return shape_take(text, npy, why);
}

static int dictionary_take(struct text *text, struct npy *npy, struct why *why)
{
	uint32_t seen = 0;
	int err;

	if (!take(text, '{'))
		return why_set(why, -EINVAL, "its head is not a dictionary");
	while (!take(text, '}')) {
		err = entry_take(text, npy, &seen, why);
		if (err != 0)
			return err;
		if (!take(text, ',') &&
		    (skip_space(text), text->at == text->end || *text->at != '}'))
			return why_set(why, -EINVAL, "its head is not a dictionary");
	}
	if ((seen & 7) != 7)
		return why_set(why, -EINVAL, "its head lacks type, order or shape");
	if ((seen & 8) && npy->dimensions > 1)
		return why_set(why, -EINVAL,
		               "it is in Fortran's order: save numpy.ascontiguousarray() of it");
	return 0;
}

/* ---- the file ---- */

int npy_parse(const uint8_t *head, size_t bytes, uint64_t file_bytes, struct npy *out,
              struct why *why)
{
	struct npy npy = {0};
	struct text text;
	uint64_t text_bytes, data_bytes;
	uint32_t before = 10;
	int err;

	if (bytes < 10 || memcmp(head, "\x93NUMPY", 6) != 0)
		return why_set(why, -EINVAL, "it is not a .npy file");
	if (head[6] < 1 || head[6] > 3)
		return why_set(why, -EINVAL, "it is of version %u of .npy: want 1 to 3", head[6]);
	text_bytes = head[8] | (uint64_t)head[9] << 8;
	if (head[6] > 1) {
		before = 12;
		if (bytes < before)
			return why_set(why, -EINVAL, "it ends within its head");
		text_bytes |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
	}
	if (text_bytes > NPY_HEAD_BYTES_MAX - before)
		return why_set(why, -EINVAL,
		               "its head has %llu bytes, more than any of an array of numbers",
		               (unsigned long long)text_bytes);
	if (bytes < before + text_bytes)
		return why_set(why, -EINVAL, "it ends within its head");
	text = (struct text){(const char *)head + before,
	                     (const char *)head + before + (size_t)text_bytes};
	err = dictionary_take(&text, &npy, why);
	if (err != 0)
		return err;
	npy.data_from = before + text_bytes;
	data_bytes = npy.count * dtype_bytes(npy.dtype);
	if (file_bytes < npy.data_from || file_bytes - npy.data_from < data_bytes)
		return why_set(why, -EINVAL, "it is cut short: %llu bytes of data are missing",
		               (unsigned long long)(npy.data_from + data_bytes - file_bytes));
	*out = npy;
	return 0;
}

static int file_open(const char *path, struct npy *out, int *fd, struct why *why)
{
	uint8_t *head = malloc(NPY_HEAD_BYTES_MAX);
	struct stat status;
	ssize_t bytes = -1;
	int err;

	*fd = open(path, O_RDONLY | O_CLOEXEC);
	if (*fd < 0 || fstat(*fd, &status) != 0 || head == NULL)
		err = why_set(why, head == NULL ? -ENOMEM : -errno, "%s", strerror(errno));
	else if (!S_ISREG(status.st_mode))
		err = why_set(why, -EINVAL, "it is not a plain file");
	else if ((bytes = pread(*fd, head, NPY_HEAD_BYTES_MAX, 0)) < 0)
		err = why_set(why, -errno, "%s", strerror(errno));
	else
		err = npy_parse(head, (size_t)bytes, (uint64_t)status.st_size, out, why);
	free(head);
	if (err != 0 && *fd >= 0)
		close(*fd);
	return err;
}

int npy_open(const char *path, struct npy *out, struct why *why)
{
	int fd, err = file_open(path, out, &fd, why);

	if (err == 0)
		close(fd);
	return err;
}

int npy_read(const char *path, struct npy *out, void **data, struct why *why)
{
	uint64_t bytes, done = 0;
	uint8_t *memory = NULL;
	ssize_t count = 1;
	int fd, err = file_open(path, out, &fd, why);

	if (err != 0)
		return err;
	bytes = out->count * dtype_bytes(out->dtype);
	if (posix_memalign((void **)&memory, 4096, bytes > 0 ? bytes : 1) != 0) {
		close(fd);
		return why_set(why, -ENOMEM, "no memory for its %llu bytes",
		               (unsigned long long)bytes);
	}
	for (; done < bytes && count > 0; done += count > 0 ? (uint64_t)count : 0)
		count = pread(fd, memory + done, bytes - done, (off_t)(out->data_from + done));
	close(fd);
	if (done == bytes) {
		*data = memory;
		return 0;
	}
	free(memory);
	return why_set(why, -EIO, "cannot read it: %s",
	               count < 0 ? strerror(errno) : "it has become shorter");
}
