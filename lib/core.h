/* SPDX-License-Identifier: MIT */
/*
 * The objects that the first storey is made of: link, operation, future, scope, loop, runtime. What
 * may be done to them is declared beside what does it: future.h, op.h, scope.h, loop.h, timer.h.
 */
#ifndef CUFI_CORE_H
#define CUFI_CORE_H

#include "cufuture/future.h"
#include "cufuture/loop.h"
#include "cufuture/op.h"
#include "cufuture/runtime.h"
#include "cufuture/scope.h"

#include "queue.h"
#include "slab.h"
#include "state.h"
#include "wait.h"

struct cufi_op;
struct cufi_lane;
struct cufi_event;
struct cufi_device;
struct cufi_root;
struct cufi_estimate;

/* Counts one more in a counter that one thread writes at a time and others only read. */
static inline void cufi_count(_Atomic uint64_t *n, int64_t by)
{
	/* relaxed: statistics; the writer is alone, so it need not be one step */
	atomic_store_explicit(n, atomic_load_explicit(n, memory_order_relaxed) + (uint64_t)by,
			      memory_order_relaxed);
}

/* ---- task: what a queue carries and a thread of ours, or a loop, runs ---- */

enum cufi_how {
	CUFI_RUN,
	CUFI_CLOSED
}; /* CLOSED: the loop is gone; nothing of the user's but
					  * watches and drops runs */
struct cufi_task {
	struct cufi_node node; /* first; its mark: enum cufi_how */
	void (*run)(struct cufi_task *task, enum cufi_how how);
};

/* ---- link: one dependency of one operation ---- */

/* When a link is to be told. */
enum cufi_level {
	CUFI_AT_QUEUED,	 /* device edge: the device orders the rest */
	CUFI_AT_SETTLED, /* host edge */
	CUFI_AT_FINISHED /* order edge of the host, and trailing */
};

#define CUFI_LINK_LEVEL	   0x3u
#define CUFI_LINK_ORDER	   0x4u /* only orders: a failure is not inherited */
#define CUFI_LINK_ATTACHED 0x8u /* in a list of @on; written under @on's LOCK */
#define CUFI_LINK_BITS	   0xfu

/*
 * Part of its operation. In a list of @on while ATTACHED (guarded by @on's LOCK); from then until it
 * was told, it counts in op->waiting.
 */
struct cufi_link {
	struct cufi_link *next, *prev;
	cuf_future *on;	   /* one hold; NULL: let go of, or no dependency */
	uintptr_t op_bits; /* the operation | level | ORDER | ATTACHED */
};

static inline struct cufi_op *cufi_link_op(const struct cufi_link *l)
{
	return (struct cufi_op *)(l->op_bits & ~(uintptr_t)CUFI_LINK_BITS);
}

static inline enum cufi_level cufi_link_level(const struct cufi_link *l)
{
	return (enum cufi_level)(l->op_bits & CUFI_LINK_LEVEL);
}

/* ---- operation: what is to be done, and what it waits for ---- */

struct cufi_op_class {
	const char *name; /* in messages: "copy" */
	size_t params_bytes;
	/* The kind of edge: device edges are named (CUFI_NAME) and told AT_QUEUED. */
	bool device;
	/* Nothing is left to wait for, no success edge failed; the caller's hand goes with the call. */
	void (*ready)(struct cufi_op *op);
	/* A link was told and the result is not settled. NULL: success edges inherit, then ready(). */
	void (*told)(struct cufi_op *op, struct cufi_link *l);
	/* A link is being told, under LOCK of its future, which is settled. True: all there was to do
	 * is to hand the operation to its loop, and that is done. May be NULL. */
	bool (*push)(struct cufi_op *op, struct cufi_link *l);
	/* A link was told after the result had settled. May be NULL. */
	void (*late)(struct cufi_op *op, struct cufi_link *l);
	/* Success edge @l failed, before the result inherits that. True: the class takes over, with
	 * the count of @l, which stays as it is. Others may be told meanwhile. May be NULL. */
	bool (*failed)(struct cufi_op *op, struct cufi_link *l);
	/* In hand, claimed, about to fail where it would have been enqueued. May be NULL. */
	void (*unused)(struct cufi_op *op);
	/* In hand, settled without having run. True: the class took the hand, and gives it back by
	 * cufi_op_drop() once it did what it had to. May be NULL. */
	bool (*abandoned)(struct cufi_op *op);
	/* Device operations: how long such work takes; NULL: not known. May be NULL. */
	struct cufi_estimate *(*estimate)(struct cufi_op *op);
	/* Device operations: must the enqueuer submit it, because the submitter could block? */
	bool (*held)(struct cufi_op *op);
	/* Device operations: enqueue on the stream. 0 or an error code. The lane is owned. */
	int (*enqueue)(struct cufi_op *op, struct cufi_lane *lane);
	/* What foreign code returned when enqueue() gave CUFI_CODE_USER. */
	int (*user_code)(struct cufi_op *op);
	/* Says what @code of enqueue() means, and its status; NULL: what it always means. */
	const char *(*explain)(struct cufi_op *op, int code, int *out_status);
	/* cuf_cancel() is too late: it stands for others, and ends when they have. */
	bool fixed;
	/* Give back what the parameters hold; just before the memory goes. May be NULL. */
	void (*dispose)(struct cufi_op *op);
};

#define CUFI_OP_LABEL	   0x1u /* a label follows the header */
#define CUFI_OP_TIMING	   0x2u /* a struct cufi_timing follows that */
#define CUFI_OP_EXCLUSIVE  0x4u /* a lane of its own */
#define CUFI_OP_EAGER_PEER 0x8u
#define CUFI_OP_TRAILING   0x10u  /* settled; its links have been told to wait for FINISHED */
#define CUFI_OP_INTERNAL   0x20u  /* made by the runtime: no cap, no report */
#define CUFI_OP_HANDOVER   0x40u  /* its scope counts it until it is QUEUED only */
#define CUFI_OP_APART	   0x80u  /* foreign code: enqueued by the submitter or the thread apart */
#define CUFI_OP_SKIP	   0x100u /* a continuation that must not run: only its drop does */
#define CUFI_OP_DROPS	   0x200u /* a call or an enqueue has a drop, or had one */
#define CUFI_OP_CUT	   0x400u /* its registrations on promises were taken away */

#define CUFI_LABEL_BYTES 24

/*
 * In memory: this header, [label], [timing], parameters (cls->params_bytes), links[n_links], bytes.
 * Lives as long as its future; without a future (watch, post) until it has run. 16-byte aligned.
 */
struct cufi_op {
	struct cufi_task task;
	const struct cufi_op_class *cls;
	cuf_future *future;
	cuf_scope *scope;
	_Atomic uint32_t waiting; /* links not told yet + 1 while somebody has it in hand (op.c) */
	uint32_t n_links;
	const char *file;
	int32_t line;
	_Atomic uint16_t flags;
	int8_t device;	     /* -1: none. cufi_op_device(), where the scope may be cancelled */
	signed priority : 2; /* CUF_LOW .. CUF_HIGH */
	unsigned size : 6;   /* of the memory: index into rt->small, or CUFI_SIZES: the heap */
};

struct cufi_timing {
	struct cufi_event *start, *end;
	uint64_t submitted_ns, started_ns, ended_ns;
};

/* ---- future ---- */

#define CUFI_HOLD ((uint64_t)1)			    /* keeps the memory */
#define CUFI_NAME (((uint64_t)1 << 32) | CUFI_HOLD) /* and may still be named as a dependency */

#define CUFI_EXT_OWED 1u /* the scope still owes the release of the creation's reference */
#define CUFI_EXT_ONE  2u

#define CUFI_VALUE_OWN	 0u /* value.own */
#define CUFI_VALUE_OTHER 1u /* value.other: one hold on the future whose value it is */

struct cuf_future {
	_Atomic uint32_t word;
	_Atomic uint32_t
		generation;	  /* of the memory; odd: free. Written by who takes and frees it */
	_Atomic uint64_t refs;	  /* holds in the low half, names in the high half */
	_Atomic uint32_t ext;	  /* the user's references, and OWED */
	uint8_t value_kind;	  /* with u: written by the claimant before SETTLED */
	cuf_scope *_Atomic scope; /* NULL once the scope has ended */
	cuf_runtime *rt;	  /* NULL: immortal */
	cuf_future *prev, *next;  /* members of the scope; under the scope's member lock */
	struct cufi_link *after;  /* ring, by its last: device and order edges. LOCK */
	struct cufi_link *then;	  /* ring, by its last: what waits for SETTLED. LOCK */
	union {
		struct {
			void *value;
			cuf_drop_fn *drop;
		} own;
		cuf_future *other;
		const cuf_error *error; /* failed: one reference on its root */
	} u;
	/* QUEUED, BACKLOG: written by who makes that state. Atomic: who saw BACKLOG reads it while it
	 * becomes QUEUED */
	struct cufi_lane *_Atomic lane;
	uint64_t seq;
	struct cufi_event *event; /* recorded right behind it, or NULL. LOCK */
	struct cufi_op *op;
};

/* ---- error ---- */

struct cuf_error {
	struct cufi_root *root;
	bool inherited, outcome_unknown;
};

/* ---- scope ---- */

struct cufi_defer {
	struct cufi_defer *next;
	cuf_drop_fn *fn;
	void *arg;
};

/* An error of a member, until the scope ends. */
struct cufi_note {
	struct cufi_note *next;
	struct cufi_root *root; /* one reference */
	bool handled;
};

/* Memory that goes back with the scope. */
struct cufi_allocation {
	struct cufi_allocation *next, *prev; /* of the scope; under its lock */
	struct cufi_allocation *hash_next;   /* by address; alloc.c */
	cuf_scope *scope;
	cuf_future *future;	/* one name: the alloc. NULL: a free had begun, and did not run */
	struct cufi_lane *lane; /* it was allocated on */
	void *ptr;
};

#define CUFI_SCOPE_ROOT	     0x1u
#define CUFI_SCOPE_CANCELLED 0x2u
#define CUFI_SCOPE_CLOSING   0x4u /* closed by its opener: what is outstanding is observed */
#define CUFI_SCOPE_ENDED     0x8u
#define CUFI_SCOPE_BUSY	     0x10u /* its reserve did not fit: operations in it are refused */

struct cuf_scope {
	struct cufi_task task; /* its end, run on its loop */
	cuf_runtime *rt;
	cuf_scope *parent;
	cuf_loop *on;
	int device, priority; /* device as in the options: index + 1, 0 is none */
	cuf_status born;      /* CUF_OK, or why it failed at birth */
	_Atomic uint32_t flags;
	_Atomic uint64_t outstanding; /* opener, members not finished, watches, child scopes */
	_Atomic size_t reserved;      /* operations admitted and not used. admission.c */
	cuf_scope *ending;	      /* of the thread that ends it: next to end */
	cuf_future *members;	      /* the last of a ring. Under cufi_scope_lock() */
	cuf_scope *children, *sibling_prev, *sibling_next; /* under the parent's lock */
	struct cufi_defer *defers;
	struct cufi_allocation *allocations;
	struct cufi_note *notes; /* in order of arrival */
	struct cufi_note **notes_end;
	cuf_future *closing; /* what cuf_scope_close returned, or NULL */
	const char *file;
	int line;
	char label[CUFI_LABEL_BYTES];
};

/* ---- loop ---- */

enum cufi_loop_kind { CUFI_LOOP_USER, CUFI_LOOP_RUNTIME, CUFI_LOOP_WORKERS };

struct cuf_loop {
	cuf_runtime *rt;
	cufi_queue queue;
	cufi_lock consumer;	    /* one consumer at a time */
	_Atomic uint32_t signalled; /* the descriptor is readable, or the drainer was woken */
	_Atomic uint32_t word;	    /* what drainers park on: counts signals */
	_Atomic uint32_t sleepers;
	_Atomic uint32_t writers; /* threads between their look at closed and their last touch */
	_Atomic uint32_t closed;
	enum cufi_loop_kind kind;
	_Atomic uint32_t use; /* 0 not yet, 1 dispatch, 2 take */
	_Atomic int fd;	      /* -1 before somebody asked for it: nobody writes it then */
	int fd_made;	      /* it, from the start; -1: none, or closed */
	cuf_loop *next;	      /* of the runtime's; under rt->loops_lock */
};

/* ---- runtime ---- */

#define CUFI_SIZES	 6  /* sizes of small objects: 128, 192, 256, 384, 512, 1024 */
#define CUFI_SCOPE_LOCKS 64 /* power of two; arbitrary */

struct cufi_timers;
struct cufi_machine; /* storey 3: devices, completer, submit threads */

struct cuf_runtime {
	/* what upper storeys do for lower ones; set once, before the first thread starts */
	struct {
		/* @f is QUEUED and the host wants to know when it ends. Any thread. */
		void (*observe)(cuf_future *f);
		/* A waiter asks the device itself; true if it is worth asking again at once. */
		bool (*help)(cuf_future *f);
		/* Whatever is on a device is looked at now. */
		void (*want_all)(cuf_runtime *rt);
		/* @f is QUEUED: when a waiter should begin to ask; 0: now, for all we know. */
		uint64_t (*expect)(cuf_future *f);
		/* The timer's tick: true while it is wanted. */
		bool (*tick)(cuf_runtime *rt);
		/* The runtime's own loop has work. */
		void (*poke)(cuf_runtime *rt);
		/* An event that no future has any more. */
		void (*event_put)(struct cufi_event *e);
		/* Memory that goes with a scope: enqueue its free. */
		void (*free_allocation)(cuf_scope *s, struct cufi_allocation *a);
		/* The current device of the calling thread, around a continuation. */
		bool (*device_enter)(cuf_runtime *rt, int device, void *guard);
		void (*device_leave)(cuf_runtime *rt, void *guard);
	} up;
	struct cufi_machine *machine;
	struct cufi_slab futures;
	struct cufi_slab small[CUFI_SIZES];
	cufi_lock scope_locks[CUFI_SCOPE_LOCKS];
	struct cuf_scope root;
	struct cuf_loop loop;	 /* drained by the completer */
	struct cuf_loop workers; /* drained by the pool */
	cufi_lock loops_lock;
	cuf_loop *loops;
	struct cufi_timers *timers;
	cuf_runtime_options options; /* as given, zeros filled in */
	unsigned fork_count;	     /* of the process when it was created */
	uint64_t spin_ns;	     /* how long a waiter asks the device before it sleeps */
	/* admission */
	_Atomic uint64_t outstanding; /* futures and watches not finished */
	_Atomic uint64_t reserved;    /* admitted by scopes, not used yet */
	_Atomic uint32_t running;     /* callbacks of the user's that run now, by any loop */
	_Atomic uint32_t exiting;     /* exit() has begun: no loop of ours starts another */
	_Atomic uint32_t halted;      /* threads of ours that will call nothing any more */
	_Atomic uint32_t gate;	      /* 0 open, 1 draining: continuations only, 2 shut */
	_Atomic uint32_t drained; /* parked on by shutdown; bumped when nothing is outstanding */
	_Atomic uint32_t rooms;	  /* cuf_room waiters */
	cufi_lock rooms_lock;
	struct cufi_op *room_list;
	/* stats; relaxed: they are only counted */
	_Atomic uint64_t n_continuations, n_allocations, n_succeeded, n_failed, n_cancelled;
	/* reports of unobserved errors; rate limit (error.c) */
	cufi_lock report_lock;
	uint64_t report_window_ns;
	unsigned report_count, report_suppressed;
	int log_level;
};

static inline cufi_lock *cufi_scope_lock_of(const cuf_scope *s)
{
	return &s->rt->scope_locks[((uintptr_t)s >> 6) & (CUFI_SCOPE_LOCKS - 1)];
}

#endif
