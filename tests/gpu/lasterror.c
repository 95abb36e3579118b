/* SPDX-License-Identifier: MIT */
/*
 * The last-error slot of the caller's thread, and his current device, stay his own. C11 and C13 of the
 * field cases, on a real GPU. cudart is opened as the library opens it: one slot for both.
 */
#include <cufuture.h>
#include <dlfcn.h>
#include <stdlib.h>

#include "kernels.h"
#include "tap.h"

/* As in cudart's headers. */
enum { INVALID_VALUE = 1, INVALID_DEVICE = 101 };

static int (*set_device)(int);
static int (*get_device)(int *);
static int (*get_last_error)(void);
static int (*peek_last_error)(void);

static bool open_cudart(void)
{
	const char *const names[] = { getenv("CUF_CUDART"), "libcudart.so.13", "libcudart.so.12" };
	void *so = NULL;

	for (size_t i = 0; i < sizeof names / sizeof *names && !so; i++)
		so = names[i] ? dlopen(names[i], RTLD_NOW | RTLD_NOLOAD) : NULL;
	if (!so)
		return false;
	set_device = (int (*)(int))dlsym(so, "cudaSetDevice");
	get_device = (int (*)(int *))dlsym(so, "cudaGetDevice");
	get_last_error = (int (*)(void))dlsym(so, "cudaGetLastError");
	peek_last_error = (int (*)(void))dlsym(so, "cudaPeekAtLastError");
	return set_device && get_device && get_last_error && peek_last_error;
}

static cuf_future *launch(cuf_scope *s, size_t shared_bytes)
{
	cuf_grid g = cuf_grid_1d(1, 1);

	g.shared_bytes = shared_bytes;
	return cuf_launch_with(s, &empty_kernel, g, CUF_NO_ARGS, NULL);
}

int main(void)
{
	const cuf_runtime_options o = { .size = sizeof o, .backend = "cuda" };
	const cuf_kernel *const kernels[] = { &empty_kernel };
	cuf_error_info info = { .size = sizeof info };
	cuf_future *f;
	cuf_runtime *rt;
	cuf_scope *s;
	int device = -1;

	setenv("CUF_LOG", "off", 1);
	if (cuf_runtime_create(&rt, &o))
		plan_skip_all("no usable GPU");
	plan(10);
	ok(open_cudart(), "the library's cudart is there");
	s = cuf_runtime_scope(rt);
	is_int(cuf_kernel_prepare(rt, kernels, 1), CUF_OK, "the kernel is loaded");
	get_last_error();

	set_device(1000); /* the user's own mistake, which he has not looked at yet */
	f = launch(s, 0);
	is_int(cuf_wait(f), CUF_OK, "an operation behind somebody else's error succeeds");
	is_int(get_last_error(), INVALID_DEVICE, "and that error is still his");
	cuf_release(f);

	f = launch(s, (size_t)1 << 30); /* refused at launch: far too much shared memory */
	is_int(cuf_wait(f), CUF_ERR_DEVICE, "an operation that is refused fails");
	cuf_error_get(cuf_error_of(f), &info);
	is_int(info.phase, CUF_PHASE_ENQUEUE, "at enqueue");
	is_int(info.inherited, false, "with an error of its own");
	is_int(peek_last_error(), 0, "which is not in the caller's slot");
	cuf_release(f);

	f = launch(s, 0);
	is_int(cuf_wait(f), CUF_OK, "the device goes on");
	cuf_release(f);
	get_device(&device);
	is_int(device, 0, "the current device is what it was");
	cuf_runtime_destroy(rt);
	return done();
}
