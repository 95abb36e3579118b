/* SPDX-License-Identifier: MIT */
/*
 * Which device an operation is for: what its options say, else its scope, else where its memory is.
 */
#include "begin.h"
#include "error.h"
#include "machine.h"
#include "submit.h"

int cufi_device_count(const cuf_runtime *rt)
{
	return rt->machine->n_devices;
}

struct cufi_device *cufi_device_at(cuf_runtime *rt, int index)
{
	return &rt->machine->devices[index];
}

struct cufi_device *cufi_device_pick(struct cufi_begin *b, cuf_scope *s, int pointers_device)
{
	int n = cufi_device_count(s->rt);
	int device = b->o->device	    ? b->o->device - 1
		     : s->device	    ? s->device - 1
		     : pointers_device >= 0 ? pointers_device
					    : 0;

	if (device < 0 || device >= n) {
		cufi_begin_failed(b, "%s: there is no device %d: the runtime has %d",
				  b->op->cls->name, device, n);
		return NULL;
	}
	cufi_op_set_device(b->op, device);
	return cufi_device_at(s->rt, device);
}

const char *cuf_runtime_backend(const cuf_runtime *rt)
{
	return rt ? rt->machine->ops->name : "none";
}

int cuf_runtime_devices(const cuf_runtime *rt)
{
	return rt ? cufi_device_count(rt) : 0;
}

cuf_status cuf_runtime_device_status(const cuf_runtime *rt, int device)
{
	if (!rt || device < 0 || device >= cufi_device_count(rt))
		return CUF_ERR_INVALID;
	return cufi_device_lost_root(cufi_device_at((cuf_runtime *)rt, device))
		       ? CUF_ERR_DEVICE_LOST
		       : CUF_OK;
}
