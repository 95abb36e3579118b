/* SPDX-License-Identifier: MIT */
/*
 * What op_copy.c and staging.c need of each other.
 */
#ifndef CUFI_OP_COPY_H
#define CUFI_OP_COPY_H

#include "core.h"

extern const struct cufi_op_class cufi_staged_class;
/* Starts a staged copy whose op->device is set. */
void cufi_staged_start(struct cufi_op *op, void *dst, const void *src, size_t bytes,
		       bool to_device);

/* A copy between pinned and device memory on behalf of another; never busy. One reference. */
cuf_future *cufi_copy_chunk(cuf_scope *s, void *dst, const void *src, size_t bytes, int device,
			    bool to_device);

#endif
