/* SPDX-License-Identifier: MIT */
/*
 * Runtimes: options, the order in which everything starts and stops, shutdown, exit. Counters and the
 * dump: stats.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "future.h"
#include "harvest.h"
#include "kernel.h"
#include "loop.h"
#include "machine.h"
#include "op.h"
#include "options.h"
#include "scope.h"
#include "timer.h"

/* Defaults. Arbitrary, but: a cap of so many held fills is about 1 GiB of host memory. */
#define CAP	((size_t)4 << 20)
#define WORKERS 2u
/* Pinned bytes that pageable copies stage at one time: eight of the largest. */
#define CAP_BYTES ((size_t)64 << 20)

/* How long destroy waits for devices to let go before it leaves them what they use. */
#define DESTROY_NS 5000000000u
/* How long exit() waits for running callbacks. DESIGN: 1 s. */
#define EXIT_NS 1000000000u

/*
 * All runtimes of the process. Their memory is never given back, only used again for another: a
 * thread that took the last count of a runtime may look at it once more (cufi_retire).
 */
static struct {
	cufi_lock lock;
	struct entry {
		struct cuf_runtime rt; /* first */
		struct entry *next;
		bool used;
	} * first;
} all;

static struct entry *entry_of(cuf_runtime *rt)
{
	return (struct entry *)rt;
}

static bool is_ours(const struct cufi_machine *m, pthread_t self)
{
	bool ours = pthread_equal(self, m->completer.id) || pthread_equal(self, m->standby.id);

	for (unsigned i = 0; i < m->n_workers; i++)
		ours |= pthread_equal(self, m->workers[i].id) != 0;
	for (int i = 0; i < 2 * m->n_devices; i++)
		ours |= pthread_equal(self, m->devices[i / 2].enqueuers[i % 2].thread.id) != 0;
	return ours;
}

/* Every thread of ours that calls the device stops before its next call. exit() may run on one. */
static void halt(cuf_runtime *rt, uint64_t until)
{
	struct cufi_machine *m = rt->machine;
	uint32_t own = cufi_in_callback(rt), ours, threads;
	unsigned spins = 0;

	/* release: pairs with cufi_loop_run and cufi_halt_at_exit */
	atomic_store_explicit(&rt->exiting, 1, memory_order_release);
	atomic_store_explicit(&rt->gate, 2, memory_order_release); /* pairs with cufi_admit_gate */
	threads = 2 + 2 * (uint32_t)m->n_devices + m->n_workers;
	ours = is_ours(m, pthread_self());
	cufi_completer_wake(rt);
	cufi_loop_wake_all(&rt->workers);
	for (int i = 0; i < m->n_devices; i++)
		cufi_enqueuers_wake(&m->devices[i]);
	/* A callback on a loop of the program's own is waited for as well, and then halts nowhere.
	 * acquire: pairs with cufi_halt_at_exit */
	while ((atomic_load_explicit(&rt->halted, memory_order_acquire) + ours < threads ||
		atomic_load_explicit(&rt->running, memory_order_relaxed) > own) &&
	       cufi_now_ns() < until)
		cufi_relax(&spins);
}

static void at_exit(void)
{
	uint64_t until = cufi_now_ns() + EXIT_NS;

	for (struct entry *e = all.first; e; e = e->next) {
		if (e->used && e->rt.machine && !cufi_forked(&e->rt))
			halt(&e->rt, until);
	}
}

static cuf_runtime *take_entry(void)
{
	struct entry *e;

	cufi_lock_take(&all.lock);
	for (e = all.first; e && e->used; e = e->next)
		;
	if (!e) {
		e = aligned_alloc(64, (sizeof *e + 63) & ~(size_t)63);
		if (e) {
			e->next = all.first;
			all.first = e;
		}
	}
	if (e) {
		memset(&e->rt, 0, sizeof e->rt);
		e->used = true;
	}
	cufi_lock_give(&all.lock);
	return e ? &e->rt : NULL;
}

static void give_entry(cuf_runtime *rt)
{
	cufi_lock_take(&all.lock);
	entry_of(rt)->used = false;
	cufi_lock_give(&all.lock);
}

/* A backend's library registers an exit handler of its own when it is opened, and handlers run
 * latest first: ours has to be registered after it, once for each backend. */
static void watch_exit(const struct cufi_device_ops *ops)
{
	static const struct cufi_device_ops *watched[2];
	int i = 0;

	cufi_lock_take(&all.lock);
	while (i < 2 && watched[i] && watched[i] != ops)
		i++;
	if (i < 2 && !watched[i]) {
		watched[i] = ops;
		atexit(at_exit);
	}
	cufi_lock_give(&all.lock);
}

/* ---- options ---- */

static int log_level(void)
{
	const char *v = getenv("CUF_LOG");

	return !v		     ? CUFI_LOG_ERROR
	       : !strcmp(v, "off")   ? CUFI_LOG_OFF
	       : !strcmp(v, "info")  ? CUFI_LOG_INFO
	       : !strcmp(v, "trace") ? CUFI_LOG_TRACE
				     : CUFI_LOG_ERROR;
}

static cuf_status open_backend(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;
	const char *want = rt->options.backend;
	bool cuda, host;
	int n = 0, code = CUFI_CODE_NO_DEVICE;

	if (!want)
		want = getenv("CUF_DEVICE");
	if (!want || !*want)
		want = "auto";
	cuda = !strcmp(want, "cuda") || !strcmp(want, "auto");
	host = !strcmp(want, "host") || !strcmp(want, "auto");
	if (!cuda && !host) {
		cufi_log(
			rt, CUFI_LOG_ERROR,
			"there is no backend \"%s\": CUF_DEVICE and .backend are auto, cuda or host",
			want);
		return CUF_ERR_INVALID;
	}
	if (cuda && cufi_device_cuda()) {
		m->ops = cufi_device_cuda();
		code = m->ops->open(0, &n);
		if (!code && n > 0)
			goto found;
		if (!code)
			m->ops->close();
		cufi_log(rt, host ? CUFI_LOG_INFO : CUFI_LOG_ERROR, "no CUDA device is usable: %s",
			 code ? m->ops->code_text(code) : "there is none");
	} else if (cuda) {
		cufi_log(rt, host ? CUFI_LOG_INFO : CUFI_LOG_ERROR,
			 "this library was built without CUDA");
	}
	if (!host)
		return CUF_ERR_UNSUPPORTED;
	m->ops = cufi_device_host();
	code = m->ops->open(rt->options.devices, &n);
	if (code)
		return CUF_ERR_NO_MEMORY;
found:
	if (n > CUFI_DEVICES_MAX)
		n = CUFI_DEVICES_MAX;
	m->devices = aligned_alloc(64, ((size_t)n * sizeof *m->devices + 63) & ~(size_t)63);
	if (!m->devices) {
		m->ops->close();
		m->ops = NULL;
		return CUF_ERR_NO_MEMORY;
	}
	memset(m->devices, 0, (size_t)n * sizeof *m->devices);
	cufi_log(rt, CUFI_LOG_INFO, "backend %s, %d device%s", m->ops->name, n, n == 1 ? "" : "s");
	for (int i = 0; i < n; i++) {
		code = cufi_device_init(&m->devices[i], rt, m->ops, i, rt->options.lanes);
		if (code) {
			cufi_log(rt, CUFI_LOG_ERROR, "device %d: %s", i, m->ops->code_text(code));
			return code == CUFI_CODE_NO_MEMORY ? CUF_ERR_NO_MEMORY : CUF_ERR_DEVICE;
		}
		m->n_devices = i + 1;
		cufi_log(rt, CUFI_LOG_INFO, "device %d: %s, %zu MiB, %u lanes", i,
			 m->devices[i].info.name, m->devices[i].info.memory_bytes >> 20,
			 rt->options.lanes);
	}
	return CUF_OK;
}

/* ---- what lower storeys ask for ---- */

static bool device_enter(cuf_runtime *rt, int device, void *guard)
{
	return rt->machine->ops->enter(device, guard) == 0;
}

static void device_leave(cuf_runtime *rt, void *guard)
{
	rt->machine->ops->leave(guard);
}

static void worker_main(void *arg)
{
	cuf_runtime *rt = arg;

	rt->machine->ops->thread_relaxed();
	cufi_loop_serve(&rt->workers, &rt->machine->workers_stop);
}

/* The device's clock on ours, for .timing. */
static void set_time_base(struct cufi_device *d)
{
	struct cufi_device_guard guard;
	unsigned spins = 0;
	int code;

	if (d->ops->enter(d->index, &guard))
		return;
	d->base = cufi_event_get(d, true, &code);
	if (d->base && !d->ops->event_record(d->base->handle, d->lanes[0]->stream)) {
		while (d->ops->event_query(d->base->handle) == CUFI_CODE_NOT_READY)
			cufi_relax(&spins);
		d->base_ns = cufi_now_ns();
	}
	d->ops->leave(&guard);
}

/* ---- start ---- */

static cuf_status start(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;
	const struct cufi_thread_options o = {
		.stack_bytes = rt->options.stack_bytes,
		.affinity = rt->options.affinity,
		.affinity_bytes = rt->options.affinity_bytes,
	};
	cuf_status st;

	if (cufi_slab_init(&rt->futures, (sizeof(cuf_future) + 63) & ~(size_t)63, 0) ||
	    cufi_small_init(rt))
		return CUF_ERR_NO_MEMORY;
	cufi_loop_init(&rt->loop, rt, CUFI_LOOP_RUNTIME);
	cufi_loop_init(&rt->workers, rt, CUFI_LOOP_WORKERS);
	cufi_scope_init_root(&rt->root, rt);
	rt->up.free_allocation = cufi_free_allocation;
	rt->up.device_enter = device_enter;
	rt->up.device_leave = device_leave;
	st = open_backend(rt);
	if (st != CUF_OK)
		return st;
	if (cufi_kernels_init(rt) || cufi_allocations_init(rt) || cufi_keys_init(rt) ||
	    cufi_staging_init(rt) || cufi_pinned_init(rt))
		return CUF_ERR_NO_MEMORY;
	for (int i = 0; i < m->n_devices; i++)
		set_time_base(&m->devices[i]);
	m->workers = calloc(rt->options.workers, sizeof *m->workers);
	if (!m->workers || cufi_completer_start(rt, &o) || cufi_timers_start(rt, &o))
		return CUF_ERR_NO_MEMORY;
	for (int i = 0; i < m->n_devices; i++) {
		if (cufi_enqueuers_start(&m->devices[i], &o))
			return CUF_ERR_NO_MEMORY;
	}
	watch_exit(m->ops);
	for (unsigned i = 0; i < rt->options.workers; i++, m->n_workers++) {
		if (cufi_thread_start(&m->workers[i], "worker", worker_main, rt, &o))
			return CUF_ERR_NO_MEMORY;
	}
	if (getenv("CUDA_LAUNCH_BLOCKING") && strcmp(getenv("CUDA_LAUNCH_BLOCKING"), "0"))
		cufi_log(rt, CUFI_LOG_INFO, "CUDA_LAUNCH_BLOCKING is set: every submit waits");
	return CUF_OK;
}

/* ---- stop ---- */

static void stop_threads(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;

	/* seq_cst: pairs with cufi_loop_serve */
	atomic_store(&m->workers_stop, 1);
	cufi_loop_wake_all(&rt->workers);
	for (unsigned i = 0; i < m->n_workers; i++)
		cufi_thread_join(&m->workers[i]);
	for (int i = 0; i < m->n_devices; i++)
		cufi_enqueuers_stop(&m->devices[i]);
	cufi_timers_stop(rt);
	cufi_completer_stop(rt);
	free(m->workers);
	m->workers = NULL;
}

static void purge(void *object, void *arg)
{
	(void)arg;
	cufi_future_purge(object);
}

/* Everything but the entry itself; also what a start that failed had come to. */
static void tear_down(cuf_runtime *rt)
{
	struct cufi_machine *m = rt->machine;
	cuf_loop *l, *next;

	stop_threads(rt);
	if (m->keys)
		cufi_keys_fini(rt);
	if (rt->futures.object_bytes) {
		cufi_defer_drain(1);
		cufi_slab_walk(&rt->futures, purge, NULL);
		cufi_forget_work();
		cufi_defer_drain(-1);
	}
	if (m->allocations)
		cufi_allocations_fini(rt);
	if (m->pinned)
		cufi_pinned_fini(rt);
	if (m->kernels)
		cufi_kernels_fini(rt);
	cufi_staging_fini(rt);
	for (int i = 0; i < m->n_devices; i++) {
		struct cufi_root *lost = cufi_device_lost_root(&m->devices[i]);

		if (lost)
			cufi_root_let_go(lost);
		cufi_device_fini(&m->devices[i]);
	}
	free(m->devices);
	if (m->ops)
		m->ops->close();
	for (l = rt->loops; l; l = next) {
		next = l->next;
		cufi_loop_free(l);
	}
	if (rt->futures.object_bytes)
		cufi_slab_destroy(&rt->futures);
	for (unsigned i = 0; i < CUFI_SIZES; i++) {
		if (rt->small[i].object_bytes)
			cufi_slab_destroy(&rt->small[i]);
	}
	free(m);
	rt->machine = NULL;
}

cuf_status cuf_runtime_create(cuf_runtime **out_rt, const cuf_runtime_options *o)
{
	cuf_runtime_options read;
	cuf_runtime *rt;
	cuf_status st;

	if (!out_rt)
		return CUF_ERR_INVALID;
	*out_rt = NULL;
	if (!cufi_struct_read(&read, sizeof read, o) || read.devices < 0 ||
	    read.devices > CUFI_DEVICES_MAX || read.lanes > CUFI_LANES_MAX / 2 ||
	    read.workers > 1024 || read.mode < CUF_BALANCED || read.mode > CUF_POWER ||
	    (read.affinity && !read.affinity_bytes))
		return CUF_ERR_INVALID;
	/* A child of a process that had one: the device's threads, and CUDA, are the parent's. */
	if (cufi_fork_count())
		return CUF_ERR_FORKED;
	rt = take_entry();
	if (!rt)
		return CUF_ERR_NO_MEMORY;
	rt->options = read;
	if (!rt->options.workers)
		rt->options.workers = WORKERS;
	if (!rt->options.lanes)
		rt->options.lanes = CUFI_LANES;
	if (!rt->options.cap)
		rt->options.cap = CAP;
	if (!rt->options.cap_bytes)
		rt->options.cap_bytes = CAP_BYTES;
	if (!rt->options.reserve)
		rt->options.reserve = rt->options.cap / 8 + 1;
	rt->log_level = log_level();
	rt->fork_count = cufi_fork_count();
	rt->machine = calloc(1, sizeof *rt->machine);
	if (!rt->machine) {
		give_entry(rt);
		return CUF_ERR_NO_MEMORY;
	}
	if (getenv("CUF_DEBUG") && strstr(getenv("CUF_DEBUG"), "sync"))
		rt->machine->debug_sync = true;
	st = start(rt);
	if (st != CUF_OK) {
		tear_down(rt);
		give_entry(rt);
		return st;
	}
	*out_rt = rt;
	return CUF_OK;
}

/* ---- shutdown ---- */

static void stop_held(void *object, void *arg)
{
	cuf_future *f = object;
	enum cufi_state st = cufi_state_of(cufi_word(f));

	(void)arg;
	if (!(CUFI_BIT(st) & CUFI_CANCELLABLE) || !cufi_hold_if_alive(f))
		return;
	cufi_cancel(f, CUF_ERR_SHUTDOWN);
	cufi_let_go(f, CUFI_HOLD);
}

/* What the device has not ended: settled now; what it holds stays until the device lets go. */
static void stop_queued(void *object, void *arg)
{
	cuf_future *f = object;
	struct cufi_root *r;

	(void)arg;
	if (cufi_state_of(cufi_word(f)) != CUFI_QUEUED || !cufi_hold_if_alive(f))
		return;
	if (cufi_claim(f, CUFI_BIT(CUFI_QUEUED), CUFI_SETTLING)) {
		r = cufi_root_new(f->rt, CUF_ERR_SHUTDOWN, CUF_PHASE_EXECUTE, f->op,
				  "the runtime shut down before the device had ended this");
		cufi_settle_error(f, &r->unknown, false);
	}
	cufi_let_go(f, CUFI_HOLD);
}

static bool wait_drained(cuf_runtime *rt, uint64_t deadline_ns)
{
	for (;;) {
		/* acquire: pairs with the add in cufi_retire */
		uint32_t word = atomic_load_explicit(&rt->drained, memory_order_acquire);

		/* seq_cst: pairs with cufi_retire */
		if (!atomic_load(&rt->outstanding))
			return true;
		if (cufi_now_ns() >= deadline_ns)
			return false;
		cufi_park(&rt->drained, word, deadline_ns);
	}
}

cuf_status cuf_runtime_shutdown(cuf_runtime *rt, int how, uint64_t deadline_ns)
{
	uint64_t now = cufi_now_ns();
	uint32_t open = 0;

	if (!rt || (how != CUF_DRAIN && how != CUF_ABANDON))
		return CUF_ERR_INVALID;
	if (cufi_forked(rt))
		return CUF_ERR_FORKED;
	if (cufi_in_callback(rt))
		return CUF_ERR_WOULD_DEADLOCK;
	/* seq_cst: pairs with cufi_retire and cufi_admit */
	if (how == CUF_DRAIN)
		atomic_compare_exchange_strong(&rt->gate, &open, 1);
	else
		atomic_store(&rt->gate, 2);
	if (how == CUF_ABANDON)
		cufi_slab_walk(&rt->futures, stop_held, NULL);
	cufi_rooms_flush(rt);
	rt->up.want_all(rt);
	if (wait_drained(rt, deadline_ns))
		return CUF_OK;
	atomic_store(&rt->gate, 2);
	/* What fails now may have continuations that are only now held: until nothing changes, or the
	 * devices alone are left. */
	for (int pass = 0; pass < 3; pass++) {
		cufi_slab_walk(&rt->futures, stop_held, NULL);
		cufi_rooms_flush(rt);
		/* Callbacks that run, and drops, take their time: it is short. Arbitrary. */
		if (wait_drained(rt, cufi_now_ns() + 20000000u))
			return CUF_PENDING;
	}
	cufi_slab_walk(&rt->futures, stop_queued, NULL);
	cufi_log(rt, CUFI_LOG_INFO, "shutdown gave up after %llu ms",
		 (unsigned long long)(cufi_now_ns() - now) / 1000000u);
	wait_drained(rt, cufi_now_ns() + 20000000u);
	return CUF_PENDING;
}

void cuf_runtime_destroy(cuf_runtime *rt)
{
	if (!rt || cufi_forked(rt))
		return;
	if (cufi_in_callback(rt)) {
		cufi_log(rt, CUFI_LOG_ERROR, "cuf_runtime_destroy inside a callback does nothing");
		return;
	}
	/* What lies in a loop that its owner drains no more would be outstanding for ever. No lock: no
	 * other thread uses rt, and what a callback makes is refused from now on. */
	atomic_store(&rt->gate, 2);
	for (cuf_loop *l = rt->loops; l; l = l->next)
		cuf_loop_close(l);
	cuf_runtime_shutdown(rt, CUF_ABANDON, cufi_now_ns() + DESTROY_NS);
	cufi_scope_end_root(&rt->root);
	if (!wait_drained(rt, cufi_now_ns() + 1000000u)) {
		/* A device still works with memory of ours and of the user's: it keeps it. */
		cufi_log(rt, CUFI_LOG_ERROR,
			 "a device has not let go of its work: the runtime's memory is left to it");
		stop_threads(rt);
		return;
	}
	tear_down(rt);
	give_entry(rt);
}

cuf_scope *cuf_runtime_scope(cuf_runtime *rt)
{
	return rt ? &rt->root : NULL;
}

cuf_loop *cuf_runtime_workers(cuf_runtime *rt)
{
	return rt ? &rt->workers : NULL;
}
