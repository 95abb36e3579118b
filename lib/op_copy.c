/* SPDX-License-Identifier: MIT */
/*
 * Copies and fills: on a device, or by a worker where only host memory is concerned. Pageable memory
 * that a device is to read or write goes through staging.c.
 */
#include <stddef.h>
#include <string.h>

#include "begin.h"
#include "error.h"
#include "future.h"
#include "loop.h"
#include "machine.h"
#include "op_copy.h"
#include "scope.h"
#include "submit.h"

/* A copy no larger than this counts as compute: it may follow a kernel on its lane, which saves an
 * event and a wait. Arbitrary: the wire needs about 1 us for it, the two calls 0.5 (FLOORS). */
#define SMALL_BYTES 65536u

struct transfer {
	struct cufi_place place; /* first */
	int byte;		 /* fill */
	void *dst;
	size_t bytes;
	const void *src; /* copy; a fill's parameters end before it */
};

#define FILL_BYTES offsetof(struct transfer, src)

/* ---- on a device ---- */

static int copy_enqueue(struct cufi_op *op, struct cufi_lane *l)
{
	const struct transfer *t = cufi_op_params(op);

	return l->dev->ops->copy(t->dst, t->src, t->bytes, l->stream);
}

static int fill_enqueue(struct cufi_op *op, struct cufi_lane *l)
{
	const struct transfer *t = cufi_op_params(op);

	return l->dev->ops->fill(t->dst, t->byte, t->bytes, l->stream);
}

/* Sizes and addresses were checked at submit, but not against the allocation: the device does that. */
static const char *explain(struct cufi_op *op, int code, int *out_status)
{
	(void)op;
	if (code != CUFI_CODE_INVALID_VALUE)
		return NULL;
	*out_status = CUF_ERR_INVALID;
	return "the range leaves its allocation, or the memory is none of this device's";
}

static const struct cufi_op_class copy_class = {
	.name = "copy",
	.params_bytes = sizeof(struct transfer),
	.device = true,
	.ready = cufi_device_op_ready,
	.enqueue = copy_enqueue,
	.explain = explain,
};

static const struct cufi_op_class fill_class = {
	.name = "fill",
	.params_bytes = FILL_BYTES,
	.device = true,
	.ready = cufi_device_op_ready,
	.enqueue = fill_enqueue,
	.explain = explain,
};

/* ---- by a worker ---- */

static const struct cufi_op_class host_copy_class;

static void host_run(struct cufi_task *task, enum cufi_how how)
{
	struct cufi_op *op = (struct cufi_op *)task;
	const struct transfer *t = cufi_op_params(op);

	(void)how; /* the workers' loop is never closed */
	if (!cufi_claim(op->future, CUFI_BIT(CUFI_HELD), CUFI_RUNNING)) {
		cufi_op_drop(op);
		return;
	}
	if (op->cls == &host_copy_class)
		memmove(t->dst, t->src, t->bytes);
	else
		memset(t->dst, t->byte, t->bytes);
	cufi_claim(op->future, CUFI_BIT(CUFI_RUNNING), CUFI_SETTLING);
	cufi_op_release_links(op);
	cufi_settle_value(op->future, NULL, NULL, true);
}

static void host_ready(struct cufi_op *op)
{
	op->task.run = host_run;
	cufi_loop_push(&op->scope->rt->workers, &op->task);
}

static const struct cufi_op_class host_copy_class = {
	.name = "copy",
	.params_bytes = sizeof(struct transfer),
	.ready = host_ready,
};

static const struct cufi_op_class host_fill_class = {
	.name = "fill",
	.params_bytes = FILL_BYTES,
	.ready = host_ready,
};

/* ---- submitted ---- */

static bool on_device(enum cufi_memory kind)
{
	return kind == CUFI_MEMORY_DEVICE || kind == CUFI_MEMORY_MANAGED;
}

static struct transfer *set(struct cufi_op *op, void *dst, size_t bytes, enum cufi_lane_class cls)
{
	struct transfer *t = cufi_op_params(op);

	t->place.cls = (uint8_t)cls;
	t->place.weight = 1;
	t->dst = dst;
	t->bytes = bytes;
	return t;
}

static enum cufi_lane_class lane_class(size_t bytes, bool to_device, bool from_device)
{
	if (bytes <= SMALL_BYTES || (to_device && from_device))
		return CUFI_COMPUTE;
	return to_device ? CUFI_H2D : CUFI_D2H;
}

/* Nothing to copy: succeeds when its dependencies have. */
static const struct cufi_op_class *class_of(size_t bytes, bool device, bool fill)
{
	if (!device || !bytes)
		return fill ? &host_fill_class : &host_copy_class;
	return fill ? &fill_class : &copy_class;
}

cuf_future *cuf_copy_with(cuf_scope *s, void *dst, const void *src, size_t bytes,
			  const cuf_options *o)
{
	bool usable = s && s->born == CUF_OK && !cufi_forked(s->rt), from, to, staged;
	enum cufi_memory dst_kind = CUFI_MEMORY_PAGEABLE, src_kind = CUFI_MEMORY_PAGEABLE;
	int dst_device = -1, src_device = -1;
	const struct cufi_op_class *cls;
	struct cufi_begin b;

	if (usable && bytes) {
		const struct cufi_device_ops *ops = s->rt->machine->ops;

		ops->memory_of(dst, &dst_kind, &dst_device);
		ops->memory_of(src, &src_kind, &src_device);
	}
	to = on_device(dst_kind);
	from = on_device(src_kind);
	staged = (to && src_kind == CUFI_MEMORY_PAGEABLE) ||
		 (from && dst_kind == CUFI_MEMORY_PAGEABLE);
	cls = staged ? &cufi_staged_class : class_of(bytes, to || from, false);
	if (!cufi_begin(&b, s, cls, o, 0, 0, CUFI_DEPS))
		return b.future;
	if (bytes && (!dst || !src))
		return cufi_begin_failed(&b, "copy of %zu bytes: %s is NULL", bytes,
					 dst ? "the source" : "the destination");
	if ((uintptr_t)dst + bytes < (uintptr_t)dst || (uintptr_t)src + bytes < (uintptr_t)src)
		return cufi_begin_failed(&b, "copy of %zu bytes: %s and the size overflow", bytes,
					 (uintptr_t)dst + bytes < (uintptr_t)dst ? "destination"
										 : "source");
	if (!bytes || (!to && !from)) {
		/* of 0 bytes: any address will do */
		set(b.op, bytes ? dst : (void *)&b, bytes, CUFI_COMPUTE)->src = bytes ? src
										      : (void *)&b;
		cufi_op_start(b.op);
		return b.future;
	}
	if (!cufi_device_pick(&b, s, to ? dst_device : src_device))
		return b.future;
	if (staged) {
		cufi_staged_start(b.op, dst, src, bytes, to);
		return b.future;
	}
	set(b.op, dst, bytes, lane_class(bytes, to, from))->src = src;
	cufi_device_op_start(b.op);
	return b.future;
}

cuf_future *cuf_fill_with(cuf_scope *s, void *dst, int byte, size_t bytes, const cuf_options *o)
{
	bool usable = s && s->born == CUF_OK && !cufi_forked(s->rt);
	enum cufi_memory kind = CUFI_MEMORY_PAGEABLE;
	struct cufi_begin b;
	int device = -1;

	if (usable && bytes)
		s->rt->machine->ops->memory_of(dst, &kind, &device);
	if (!cufi_begin(&b, s, class_of(bytes, on_device(kind), true), o, 0, 0, CUFI_DEPS))
		return b.future;
	if (bytes && !dst)
		return cufi_begin_failed(&b, "fill of %zu bytes: the destination is NULL", bytes);
	if ((uintptr_t)dst + bytes < (uintptr_t)dst)
		return cufi_begin_failed(&b, "fill: %zu bytes from the destination on overflow",
					 bytes);
	set(b.op, bytes ? dst : (void *)&b, bytes, CUFI_COMPUTE)->byte = byte;
	if (!bytes || !on_device(kind)) {
		cufi_op_start(b.op);
		return b.future;
	}
	if (!cufi_device_pick(&b, s, device))
		return b.future;
	cufi_device_op_start(b.op);
	return b.future;
}

cuf_future *cufi_copy_chunk(cuf_scope *s, void *dst, const void *src, size_t bytes, int device,
			    bool to_device)
{
	struct cufi_begin b;

	if (!cufi_begin(&b, s, &copy_class, NULL, 0, 0, CUFI_ALWAYS))
		return b.future;
	cufi_op_set_device(b.op, device);
	set(b.op, dst, bytes, lane_class(bytes, to_device, !to_device))->src = src;
	cufi_device_op_start(b.op);
	return b.future;
}
