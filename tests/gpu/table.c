/* SPDX-License-Identifier: MIT */
/*
 * The CUDA table alone, on a real GPU: each function does what device.h says, leaves no context
 * where nobody asked for one, and leaves the thread's last error as it was. What kills a device
 * runs in processes of its own: table fault KIND, table symbol.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "tap.h"

#include "device.h"
#include "kernels.h"

#ifndef CUFI_HAVE_CUDA

int main(void)
{
	plan_skip_all("built without CUDA");
}

#else

#include "device_cuda.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 100000 };

static const struct cufi_device_ops *ops;
static struct cufi_device_guard guard;
static struct CUstream_st *stream;
static char *dev, *pinned; /* three times N floats, and 16 bytes */
#define THIRD (N * sizeof(float))

/* What the table does not use, and the test does. */
static CUresult (*primary_state)(CUdevice device, unsigned int *flags, int *active);
static cudaError_t (*set_device)(int device);
static cudaError_t (*malloc_managed)(void **ptr, size_t bytes, unsigned int flags);
static cudaError_t (*free_memory)(void *ptr);

static void *find(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD), *found;

	found = handle ? dlsym(handle, name) : dlsym(RTLD_DEFAULT, name);
	if (!found)
		plan_skip_all("%s has no %s", library, name);
	return found;
}

static void find_calls(void)
{
	Dl_info cudart;

	if (!dladdr(*(void **)&cufi_cuda.cudaGetLastError, &cudart))
		plan_skip_all("where is cudart?");
	*(void **)&primary_state = find("libcuda.so.1", "cuDevicePrimaryCtxGetState");
	*(void **)&set_device = find(cudart.dli_fname, "cudaSetDevice");
	*(void **)&malloc_managed = find(cudart.dli_fname, "cudaMallocManaged");
	*(void **)&free_memory = find(cudart.dli_fname, "cudaFree");
}

/* How many devices have a primary context. */
static int contexts(int n_devices)
{
	int n = 0;

	for (int i = 0; i < n_devices; i++) {
		unsigned int flags;
		int active = 0;

		primary_state(i, &flags, &active);
		n += active;
	}
	return n;
}

static CUcontext current(void)
{
	CUcontext now = NULL;

	cufi_cuda.cuCtxGetCurrent(&now);
	return now;
}

/* The stream's outcome, waited for; what the driver's thread does is done too. */
static int finish(void)
{
	int code;

	while ((code = ops->stream_query(stream)) == CUFI_CODE_NOT_READY)
		usleep(100);
	return code;
}

static void *load(const struct cuf_kernel *kernel)
{
	size_t bytes[12];
	void *handle;
	int n, code = ops->kernel_load(kernel, &handle, bytes, 12, &n);

	if (code)
		diag("%s: %d %s", kernel->name, code, ops->code_text(code));
	return handle;
}

/* ---- contexts, and the thread's state ---- */

/* 7 points */
static void test_no_context_unasked(int n_devices)
{
	struct cufi_device_info info;
	enum cufi_memory kind;
	int device;

	is_int(contexts(n_devices), 0, "open makes no context");
	ops->thread_relaxed();
	ops->memory_of(&device, &kind, &device);
	ops->peek_error();
	is_int(contexts(n_devices), 0, "nor do thread_relaxed, memory_of, peek_error");
	is_int(ops->enter(0, &guard), CUFI_CODE_INVALID_DEVICE,
	       "enter refuses a device not opened");
	ops->leave(&guard);
	is_int(ops->device_open(n_devices, &info), CUFI_CODE_INVALID_DEVICE, "no such device");
	is_int(ops->device_open(0, &info), 0, "device_open");
	is_int(contexts(n_devices), 1, "only the device that was asked for has a context");
	diag("%s, %zu MiB, %d multiprocessors, priorities %d to %d", info.name,
	     info.memory_bytes >> 20, info.multiprocessors, info.priority_low, info.priority_high);
	ok(info.name[0] && info.memory_bytes && info.multiprocessors > 0 &&
		   info.priority_high < info.priority_low && info.can_map_host,
	   "the device is described");
}

/* 8 points */
static void test_enter(void)
{
	struct cufi_device_guard inner;
	CUcontext ours;

	ok(!current(), "nothing is current before");
	is_int(ops->enter(0, &guard), 0, "enter");
	ours = current();
	ok(ours != NULL, "its context is current");
	is_int(ops->enter(0, &inner), 0, "enter again");
	ok(!inner.pushed && current() == ours, "which has nothing to do");
	ops->leave(&inner);
	ok(current() == ours, "the inner leave keeps it");
	ops->leave(&guard);
	ok(!current(), "the outer one puts back that nothing was current");
	ok(contexts(1) == 1, "and the context lives");
}

/* 7 points */
static void test_last_error(void *empty)
{
	struct cuf_grid none = { { 0, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, 0, false };
	struct cuf_grid one = { { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, 0, false };
	int code;

	ops->enter(0, &guard);
	code = ops->launch(empty, &none, NULL, stream);
	ok(code && !ops->is_sticky(code), "a grid of no blocks is refused, nothing is lost (%d)",
	   code);
	diag("the slot holds %d before leave", ops->peek_error());
	ops->leave(&guard);
	is_int(ops->peek_error(), 0, "and the error does not stay in an empty slot");

	ok(set_device(9999) != 0, "the user's own error");
	code = ops->peek_error();
	ops->enter(0, &guard);
	is_int(ops->launch(empty, &one, NULL, stream), 0, "a launch with it pending");
	usleep(100000); /* a query that is not ready may overwrite it: the documented limit */
	is_int(ops->stream_query(stream), 0, "ends well");
	ops->leave(&guard);
	ok(code && ops->peek_error() == code, "and the user's error is still there");
	cufi_cuda.cudaGetLastError();
	is_int(ops->peek_error(), 0, "until he takes it");
}

/* ---- streams, events, host functions ---- */

static void set_flag(void *flag)
{
	/* release: pairs with is_set() and the twin's look: nothing but the flag itself */
	__atomic_store_n((int *)flag, 1, __ATOMIC_RELEASE);
}

static bool is_set(const int *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE); /* acquire: pairs with set_flag() */
}

/* 16 points */
static void test_order(void *spin, void *spin_until, int high)
{
	struct cuf_grid one = { { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, 0, false };
	struct CUevent_st *event, *start = NULL, *end = NULL;
	struct CUstream_st *other;
	int *flag = (int *)(void *)pinned;
	static int called;
	uint64_t ns = 2000000, took = 0;
	void *until_args[] = { &flag }, *spin_args[] = { &ns };

	ops->enter(0, &guard);
	is_int(ops->stream_create(high, &other), 0, "a stream of high priority");
	is_int(ops->event_create(false, &event), 0, "an event");
	is_int(ops->event_query(event), 0, "never recorded, it counts as completed");
	*flag = 0;
	is_int(ops->launch(spin_until, &one, until_args, stream), 0, "a kernel that waits");
	is_int(ops->event_record(event, stream), 0, "record");
	is_int(ops->event_query(event), CUFI_CODE_NOT_READY, "not yet");
	diag("not ready: the slot holds %d", ops->peek_error());
	is_int(ops->stream_wait(other, event), 0, "another stream waits for it");
	is_int(ops->host_func(other, set_flag, &called), 0, "with a host function behind");
	usleep(20000);
	ok(!is_set(&called) && ops->stream_query(other) == CUFI_CODE_NOT_READY,
	   "which does not run before");
	set_flag(flag);
	is_int(finish(), 0, "the kernel ends");
	while (ops->stream_query(other) == CUFI_CODE_NOT_READY)
		usleep(100);
	ok(is_set(&called), "then the host function has run");
	ok(!ops->event_destroy(event) && !ops->stream_destroy(other), "both go");

	ok(!ops->event_create(true, &start) && !ops->event_create(true, &end), "timing events");
	ok(!ops->event_record(start, stream) && !ops->launch(spin, &one, spin_args, stream) &&
		   !ops->event_record(end, stream) && !finish(),
	   "around a kernel of 2 ms");
	is_int(ops->event_elapsed_ns(start, end, &took), 0, "tell how long it took");
	ok(took >= 1900000 && took < 1000000000, "%llu ns", (unsigned long long)took);
	ops->event_destroy(start);
	ops->event_destroy(end);
	ops->leave(&guard);
}

/* ---- memory ---- */

static void *look_at_dev(void *out)
{
	enum cufi_memory kind = CUFI_MEMORY_PAGEABLE;
	int device = -1;

	*(bool *)out = !ops->memory_of(dev, &kind, &device) && kind == CUFI_MEMORY_DEVICE &&
		       device == 0 && !current();
	return NULL;
}

/* 14 points */
static void test_memory(void)
{
	void *huge = &huge, *managed = NULL, *heap = malloc(100);
	enum cufi_memory kind;
	pthread_t thread;
	int device, code;
	bool same = true, seen = false;

	ops->enter(0, &guard);
	code = ops->malloc_async((size_t)1 << 50, stream, &huge);
	is_int(code, CUFI_CODE_NO_MEMORY, "a petabyte is refused");
	ok(!huge && !ops->is_sticky(code), "no address, and nothing is lost");
	is_int(finish(), 0, "the stream goes on");
	is_int(ops->fill(dev, 0x5a, THIRD, stream), 0, "fill");
	is_int(ops->copy(pinned, dev, THIRD, stream), 0, "copy to the host");
	is_int(finish(), 0, "both end");
	for (size_t i = 0; i < THIRD; i++)
		same = same && pinned[i] == 0x5a;
	ok(same, "the bytes are there");
	malloc_managed(&managed, 4096, cudaMemAttachGlobal);
	ops->leave(&guard);

	ops->memory_of(&code, &kind, &device);
	ok(kind == CUFI_MEMORY_PAGEABLE && device == -1, "the stack is pageable");
	ops->memory_of(heap, &kind, &device);
	ok(kind == CUFI_MEMORY_PAGEABLE && device == -1, "so is the heap");
	ops->memory_of(pinned + 5, &kind, &device);
	ok(kind == CUFI_MEMORY_PINNED && device == -1, "pinned memory, in the middle");
	ops->memory_of(dev + 5, &kind, &device);
	ok(kind == CUFI_MEMORY_DEVICE && device == 0, "device memory, in the middle");
	ops->memory_of(managed, &kind, &device);
	ok(managed && kind == CUFI_MEMORY_MANAGED, "managed memory");
	if (!pthread_create(&thread, NULL, look_at_dev, &seen))
		pthread_join(thread, NULL);
	ok(seen, "a thread without a context sees it too, and still has none");
	is_int(ops->peek_error(), 0, "none of these leaves an error");
	free(heap);
	ops->enter(0, &guard);
	free_memory(managed);
	ops->leave(&guard);
}

/* ---- kernels ---- */

/* 11 points */
static void test_load(void)
{
	struct cuf_kernel nobody = vector_add, nothing = { .size = sizeof nothing, .name = "none" };
	size_t bytes[4] = { 0 };
	void *handle;
	int n, code;

	ops->enter(0, &guard);
	code = ops->kernel_load(&vector_add, &handle, bytes, 4, &n);
	ok(!code && handle && n == 4, "vector_add has 4 parameters (%d, %d)", code, n);
	ok(bytes[0] == 8 && bytes[1] == 8 && bytes[2] == 8 && bytes[3] == 8, "of 8 bytes");
	code = ops->kernel_load(&scale, &handle, bytes, 4, &n);
	ok(!code && n == 4 && bytes[2] == 4, "the factor of scale has 4 bytes");
	memset(bytes, 0, sizeof bytes);
	code = ops->kernel_load(&mix, &handle, bytes, 1, &n);
	ok(!code && n == 6 && bytes[0] == 8 && !bytes[1], "no more sizes than there is room for");
	code = ops->kernel_load(&empty_kernel, &handle, NULL, 0, &n);
	ok(!code && n == 0, "empty has none");
	nobody.name = "nobody";
	code = ops->kernel_load(&nobody, &handle, bytes, 4, &n);
	ok(code && !ops->is_sticky(code) && !handle, "a name that is not in the image (%d)", code);
	is_str(ops->code_name(code), "cudaErrorSymbolNotFound", "its name");
	ok(strlen(ops->code_text(code)) > 5, "its text: %s", ops->code_text(code));
	code = ops->kernel_load(&nothing, &handle, bytes, 4, &n);
	is_int(code, CUFI_CODE_INVALID_FUNCTION, "neither image nor symbol");
	nothing.image = "this is no image of code at all, and nobody should take it for one";
	code = ops->kernel_load(&nothing, &handle, bytes, 4, &n);
	ok(code && !ops->is_sticky(code), "an image that is none (%d)", code);
	ops->leave(&guard);
	is_int(ops->peek_error(), 0, "no error stays");
}

/* 10 points */
static void test_launch(void *add, void *empty)
{
	float *a = (float *)(void *)pinned, *b = a + N, *c = b + N;
	char *da = dev, *db = dev + THIRD, *dc = dev + 2 * THIRD;
	size_t n = N;
	void *args[] = { &da, &db, &dc, &n };
	struct cuf_grid grid = cuf_grid_1d(N, 256);
	struct cuf_grid wide = { { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, 0, false };
	bool right = true;
	int code;

	for (size_t i = 0; i < n; i++)
		a[i] = (float)i, b[i] = 1, c[i] = 0;
	ops->enter(0, &guard);
	ok(!ops->copy(da, a, 2 * THIRD, stream) && !ops->launch(add, &grid, args, stream) &&
		   !ops->copy(c, dc, THIRD, stream),
	   "copy in, launch, copy out");
	is_int(finish(), 0, "all end");
	for (size_t i = 0; i < n; i++)
		right = right && c[i] == (float)i + 1;
	ok(right, "the sums are right");
	grid.threads[0] = 4096;
	code = ops->launch(add, &grid, args, stream);
	ok(code && !ops->is_sticky(code), "too many threads in a block (%d)", code);
	wide.shared_bytes = 100000;
	is_int(ops->launch(empty, &wide, NULL, stream), 0, "over 48 KiB of shared memory");
	wide.shared_bytes = 60000;
	is_int(ops->launch(empty, &wide, NULL, stream), 0, "then less again");
	wide.shared_bytes = (size_t)1 << 30;
	code = ops->launch(empty, &wide, NULL, stream);
	ok(code && !ops->is_sticky(code), "more than there is (%d)", code);
	wide.shared_bytes = 0;
	wide.cooperative = true;
	is_int(ops->launch(empty, &wide, NULL, stream), 0, "a cooperative launch");
	wide.cooperative = false;
	wide.blocks[0] = 32;
	wide.cluster[0] = 16;
	wide.cluster[1] = wide.cluster[2] = 1;
	code = ops->launch(empty, &wide, NULL, stream);
	ok(!code || !ops->is_sticky(code), "clusters of 16 blocks (%d)", code);
	is_int(finish(), 0, "the stream is well");
	ops->leave(&guard);
}

/* 3 points */
static void test_crc32(void)
{
	enum { MOST = 3 * THIRD - 65536 };
	uint32_t *got = (uint32_t *)(void *)(pinned + MOST), want[16384];
	void *handle, *host = pinned, *into = want, *out = dev + MOST, *in;
	size_t bytes, block;
	void *args[] = { &in, &bytes, &block, &out },
	     *twin_args[] = { &host, &bytes, &block, &into };
	unsigned int state = 1;
	int wrong = 0, failed = 0;

	for (int i = 0; i < MOST; i++)
		pinned[i] = (char)((state = state * 1664525 + 1013904223) >> 24);
	ops->enter(0, &guard);
	handle = load(&crc32_blocks);
	ok(handle != NULL, "crc32_blocks is loaded");
	for (int round = 0; handle && round < 200; round++) {
		struct cuf_grid grid;
		size_t shift, n;

		state = state * 1664525 + 1013904223;
		shift = round % 3 ? 0 : state >> 28; /* not aligned */
		block = round % 2 ? 512u << (state >> 16 & 7) : 100 + (state >> 16 & 8191);
		bytes = 1 + (state >> 4) % (MOST - 16);
		n = (bytes + block - 1) / block;
		in = dev + shift;
		grid = crc32_grid(bytes, block);
		if (round % 5 == 0)
			grid.blocks[0] = 1;
		failed |= ops->copy(in, pinned, bytes, stream) ||
			  ops->fill(out, 0xee, n * 4, stream) ||
			  ops->launch(handle, &grid, args, stream) ||
			  ops->copy(got, out, n * 4, stream) || finish();
		crc32_blocks.host_fn(&grid, twin_args);
		if (memcmp(got, want, n * 4)) {
			diag("%zu bytes, blocks of %zu, shifted by %zu", bytes, block, shift);
			wrong++;
		}
	}
	ok(!failed, "200 launches end well");
	is_int(wrong, 0, "and agree with the host twin");
	ops->leave(&guard);
}

/* 1 point. Whether it waits is the driver's business; that it does not wait for ever is ours. */
static void *set_later(void *flag)
{
	usleep(300000);
	set_flag(flag);
	return NULL;
}

static void test_load_beside_a_kernel(void *spin_until)
{
	struct cuf_grid one = { { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, 0, false };
	int *flag = (int *)(void *)pinned;
	void *args[] = { &flag };
	struct timespec t0, t1;
	pthread_t thread;
	void *handle;

	ops->enter(0, &guard);
	*flag = 0;
	ops->launch(spin_until, &one, args, stream);
	if (pthread_create(&thread, NULL, set_later, pinned))
		set_flag(flag), thread = pthread_self();
	clock_gettime(CLOCK_MONOTONIC, &t0);
	handle = load(&fault_kernel);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	diag("loading beside a kernel that runs: %.3f ms",
	     (double)(t1.tv_sec - t0.tv_sec) * 1e3 + (double)(t1.tv_nsec - t0.tv_nsec) * 1e-6);
	if (!pthread_equal(thread, pthread_self()))
		pthread_join(thread, NULL);
	ok(handle && !finish(), "a kernel is loaded while another runs");
	ops->leave(&guard);
}

/* ---- processes that do not live long ---- */

/* Exit status 0: as it should be. The code on stdout is a comment of the parent's. */
static int fault(int kind)
{
	struct cuf_grid one = { { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, 0, false };
	struct CUevent_st *event;
	void *handle, *args[] = { &kind };
	int code, again;

	ops->enter(0, &guard);
	ops->event_create(false, &event);
	handle = load(&fault_kernel);
	if (!handle || ops->launch(handle, &one, args, stream))
		return 2;
	again = ops->event_record(event, stream); /* not 0 if the fault was seen already */
	code = finish();
	if (!again)
		again = ops->event_query(event);
	printf("# fault %d: %d %s, the event says %d, sticky: %s\n", kind, code,
	       ops->code_name(code), again, ops->is_sticky(code) ? "yes" : "no");
	if (!code || again != code || !ops->is_sticky(code) ||
	    ops->launch(handle, &one, args, stream) != code)
		return 3;
	ops->event_destroy(event);
	ops->leave(&guard);
	if (ops->enter(0, &guard))
		printf("# a lost device cannot be entered\n");
	ops->leave(&guard);
	ops->device_close(0);
	ops->close();
	return 0;
}

static void no_kernel(void)
{
}

static int symbol(void)
{
	struct cuf_kernel stranger = { .size = sizeof stranger, .name = "stranger" };
	void *handle;
	int n, code;

	*(void (**)(void)) & stranger.device_fn = no_kernel;
	ops->enter(0, &guard);
	code = ops->kernel_load(&stranger, &handle, NULL, 0, &n);
	printf("# a symbol nobody registered: %d %s\n", code, ops->code_name(code));
	ops->leave(&guard);
	return !code || handle || ops->is_sticky(code);
}

static int child(const char *what, int kind)
{
	char number[12];
	char *argv[] = { (char *)(uintptr_t) "table", (char *)(uintptr_t)what, number, NULL };
	extern char **environ;
	pid_t pid;
	int status;

	snprintf(number, sizeof number, "%d", kind);
	fflush(stdout);
	if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ) ||
	    waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int be_child(const char *what, int kind)
{
	struct cufi_device_info info;
	int n;

	alarm(30);
	if (ops->open(0, &n) || ops->device_open(0, &info) || ops->enter(0, &guard) ||
	    ops->stream_create(0, &stream))
		return 4;
	ops->leave(&guard);
	return strcmp(what, "fault") ? symbol() : fault(kind);
}

/* ---- */

/* 3 points. The context itself stays: cudart keeps a reference of its own (13.0). */
static void test_reopen(int n_devices)
{
	struct cuf_grid one = { { 1, 1, 1 }, { 1, 1, 1 }, { 0, 0, 0 }, 0, false };
	struct cufi_device_info info;
	int n;

	ops->device_close(0);
	ops->close();
	ok(!ops->open(0, &n) && n == n_devices && !ops->device_open(0, &info), "open again");
	ops->enter(0, &guard);
	ok(!ops->stream_create(0, &stream) && !ops->launch(load(&empty_kernel), &one, NULL, stream),
	   "a kernel is loaded and launched again");
	is_int(finish(), 0, "and ends well");
	ops->stream_destroy(stream);
	ops->leave(&guard);
	ops->device_close(0);
	ops->close();
}

int main(int argc, char **argv)
{
	struct cufi_device_info info;
	void *empty, *spin, *spin_until, *add;
	int n_devices, code;

	ops = cufi_device_cuda();
	if (argc > 2)
		return be_child(argv[1], atoi(argv[2]));
	code = ops->open(0, &n_devices);
	if (code)
		plan_skip_all("no GPU: %s", ops->code_text(code));
	if (!empty_kernel.image)
		plan_skip_all("built without nvcc");
	find_calls();
	plan(7 + 8 + 3 + 7 + 16 + 14 + 11 + 10 + 3 + 1 + 5 + 3);
	test_no_context_unasked(n_devices);
	test_enter();

	ok(!ops->device_open(0, &info), "a device is opened twice");
	ops->device_close(0);
	ops->enter(0, &guard);
	ok(!ops->stream_create(0, &stream) &&
		   !ops->malloc_async(3 * THIRD + 16, stream, (void **)&dev) &&
		   !ops->pinned_alloc(3 * THIRD + 16, (void **)&pinned),
	   "and closed once, it is there: a stream, memory on both sides");
	empty = load(&empty_kernel);
	spin = load(&spin_kernel);
	spin_until = load(&spin_until_kernel);
	add = load(&vector_add);
	ops->leave(&guard);
	if (!ok(empty && spin && spin_until && add, "kernels"))
		return done();

	test_last_error(empty);
	test_order(spin, spin_until, info.priority_high);
	test_memory();
	test_load();
	test_launch(add, empty);
	test_crc32();
	test_load_beside_a_kernel(spin_until);

	for (int kind = FAULT_ADDRESS; kind <= FAULT_ASSERT; kind++)
		is_int(child("fault", kind), 0, "fault %d loses the device", kind);
	is_int(child("symbol", 0), 0, "a symbol that cudart does not know is refused");

	ops->enter(0, &guard);
	ops->free_async(dev, stream);
	finish();
	ops->pinned_free(pinned);
	ops->stream_destroy(stream);
	ops->leave(&guard);
	test_reopen(n_devices);
	return done();
}

#endif
