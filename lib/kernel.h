/* SPDX-License-Identifier: MIT */
/*
 * Kernels as a runtime knows them: loaded on which device, under which handle.
 */
#ifndef CUFI_KERNEL_H
#define CUFI_KERNEL_H

#include "expect.h"
#include "lane.h"

#define CUFI_KERNEL_ARGS 64 /* most arguments of a kernel */
#define CUFI_DEVICES_MAX 64

struct cufi_kernel {
	const struct cuf_kernel *k;
	struct cufi_kernel *next;		  /* in its bucket; constant once published */
	_Atomic(void *) handle[CUFI_DEVICES_MAX]; /* NULL: not loaded there */
	_Atomic int code[CUFI_DEVICES_MAX];	  /* why it could not be loaded */
	struct cufi_estimate duration;
	char message[160]; /* under lock, written before code */
};

/* The entry of @k; made at the first look. NULL: no memory. Any thread. */
struct cufi_kernel *cufi_kernel_find(cuf_runtime *rt, const struct cuf_kernel *k);

/* Loads it on @d. Blocks. 0, or a code; CUFI_CODE_MISMATCH: message says which argument. */
int cufi_kernel_load(struct cufi_device *d, struct cufi_kernel *k);
#define CUFI_CODE_MISMATCH (-2)

#endif
