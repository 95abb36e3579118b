/* SPDX-License-Identifier: MIT */
/*
 * Devices and their lanes. A lane is a pooled, non-blocking stream with a sequence number; whoever
 * enqueues owns it for that time (a flag nobody waits for), whoever harvests holds its harvest lock.
 * What is enqueued and in which order: submit.c. What has ended: harvest.c.
 */
#ifndef CUFI_LANE_H
#define CUFI_LANE_H

#include "core.h"
#include "device.h"

#define CUFI_LANES_MAX	64 /* lanes of a device: one word of bits */
#define CUFI_LANES	16 /* default; a GPU has 8 hardware queues for all streams of a process */
#define CUFI_COMPANIONS 4  /* streams of a device that only carry host functions */

/* Operations in flight on a device. The driver blocks a launch at 1,021 pending in one hardware
 * queue, and all streams may share one (measured, CUDA 13.0 on an H200). */
#define CUFI_BUDGET	 1000u
#define CUFI_BUDGET_LANE 4u /* what every lane finds, however full the others are */

enum cufi_lane_class { CUFI_COMPUTE, CUFI_H2D, CUFI_D2H };

struct cufi_frontier {
	_Atomic uint32_t refs;
	struct cufi_frontier *next; /* in the pool */
	uint64_t seq[CUFI_LANES_MAX];
};

struct cufi_event {
	struct cufi_node mark; /* first: in lane->marks */
	struct CUevent_st *handle;
	struct cufi_device *dev;
	struct cufi_lane *lane;
	uint64_t seq;			/* recorded right behind it */
	struct cufi_frontier *frontier; /* of the record: what it stands for besides seq */
	_Atomic uint32_t refs;
	bool timing;
	struct cufi_event *next;     /* in the pool */
	struct cufi_event *next_all; /* of the device */
};

struct cufi_lane {
	/* constant */
	struct cufi_device *dev;
	struct CUstream_st *stream;
	unsigned index;
	enum cufi_lane_class cls;
	int priority;

	/* ownership: 1 while a thread enqueues. Nobody waits for it (lane_own). */
	_Atomic uint32_t owner __attribute__((aligned(64)));
	/* the owner's */
	uint64_t seq;	    /* of the last operation */
	uint64_t event_seq; /* highest seq that has an event right behind it */
	cuf_future *tail;   /* what seq belongs to; may be gone (see tail_needs_event) */
	struct cufi_frontier *frontier; /* what this lane is ordered after */
	_Atomic uint64_t published;	/* seq, once everything about it can be found */

	/* shared */
	_Atomic uint32_t in_flight __attribute__((aligned(64))); /* weight reserved, not retired */
	_Atomic uint32_t limit; /* of in_flight; written under budget */
	_Atomic uint32_t
		grants;	       /* times limit grew since the lane was empty; written under budget */
	_Atomic uint64_t want; /* highest seq the host waits for */
	_Atomic uint32_t requests_n;
	_Atomic uint32_t feed_request; /* one of these: the enqueuer found it taken */
	_Atomic uint32_t arm_request;  /* one of these: the completer did */
	cufi_queue requests; /* operations that found the lane taken; popped by the owner */
	_Atomic uint64_t backlog_n;
	cufi_queue backlog;	/* operations that found it full; popped by the submit thread */
	struct cufi_op *front;	/* the feeder's: popped from the backlog, not enqueued */
	_Atomic uint32_t apart; /* 1: the thread apart feeds the front; 2: and is asked to go on */
	cufi_queue marks;	/* recorded events, in order; popped by the harvester */

	/* the harvester's */
	cufi_lock harvest __attribute__((aligned(64)));
	cufi_queue pending; /* operations, in order of seq */
	_Atomic uint64_t completed;
	_Atomic uint64_t armed; /* seq that a host function was armed for, or 0 */
	uint64_t odd_since;  /* when queries began to fail without a sticky error; 0: they do not */
	uint64_t not_yet_ns; /* when the device last said that the head has not ended */
	_Atomic uint64_t head_ns; /* when the head began, as far as is known. Relaxed: expect.c */

	uint64_t ticked; /* the timer's: completed at its last tick, + 1 */

	/* relaxed: statistics, written by the owner or harvester */
	_Atomic uint64_t n_operations, n_events, n_marks, n_waits, n_elided;
	_Atomic uint64_t n_done; /* succeeded with nobody waiting; the others are rt's to count */
};

/* A stream that carries host functions for other lanes. */
struct cufi_companion {
	struct CUstream_st *stream;
	_Atomic uint32_t slot; /* of the arm outstanding on it + 1, or 0 */
};

struct cufi_device {
	cuf_runtime *rt;
	const struct cufi_device_ops *ops;
	int index;
	struct cufi_device_info info;
	struct cufi_lane *lanes[CUFI_LANES_MAX];
	_Atomic uint32_t n_lanes;
	uint32_t n_shared; /* the first so many; those behind are for exclusive operations alone */
	struct cufi_companion companions[CUFI_COMPANIONS];
	_Atomic(struct cufi_root *) lost; /* once and for ever; one reference */
	_Atomic uint32_t lost_untold;	  /* the user's callback is still to be called */
	_Atomic uint64_t wanted;	  /* bits of lanes with want > completed */
	_Atomic uint64_t stale;	 /* bits of lanes that nobody harvested between two ticks */
	_Atomic uint64_t hungry; /* bits of lanes whose backlog may be fed */

	cufi_lock grow;	  /* only tried: by the enqueuer that makes a lane */
	cufi_lock budget; /* guards left, and limit and grants of all lanes */
	uint32_t left;

	cufi_lock pool;
	struct cufi_event *events[2]; /* free; [timing] */
	struct cufi_event *all_events;
	struct cufi_frontier *frontiers; /* free */

	/* time base for .timing */
	struct cufi_event *base;
	uint64_t base_ns;

	/* threads that enqueue what was held: [0] operations, [1] foreign code */
	struct cufi_enqueuer {
		struct cufi_device *dev;
		cufi_queue queue;
		_Atomic uint32_t word;
		_Atomic uint32_t asleep;
		struct cufi_thread thread;
	} enqueuers[2];
	_Atomic uint32_t stop;

	/* relaxed: statistics */
	_Atomic uint64_t n_arms, n_queries, n_allocations;
};

/* ---- the device ---- */

int cufi_device_init(struct cufi_device *d, cuf_runtime *rt, const struct cufi_device_ops *ops,
		     int index, unsigned lanes);
void cufi_device_fini(struct cufi_device *d);
static inline struct cufi_root *cufi_device_lost_root(struct cufi_device *d)
{
	/* acquire: pairs with the exchange in cufi_device_lose */
	return atomic_load_explicit(&d->lost, memory_order_acquire);
}

/* ---- lanes ---- */

/* A lane more, for an exclusive operation. The device is entered. NULL: *out_code. */
struct cufi_lane *cufi_lane_add(struct cufi_device *d, enum cufi_lane_class cls, int priority,
				int *out_code);

static inline bool cufi_lane_own(struct cufi_lane *l)
{
	uint32_t free = 0;

	/* seq_cst: pairs with cufi_lane_give_back: a request left before a failed try is seen there */
	return atomic_compare_exchange_strong(&l->owner, &free, 1);
}
void cufi_lane_give_back(struct cufi_lane *l);
/* Leaves @op, in hand, with the owner: it comes back through the device's enqueuer. */
void cufi_lane_request(struct cufi_lane *l, struct cufi_op *op);

static inline uint64_t cufi_lane_completed(struct cufi_lane *l)
{
	/* acquire: pairs with the release in harvest.c: what had ended by then is settled */
	return atomic_load_explicit(&l->completed, memory_order_acquire);
}
static inline uint64_t cufi_lane_published(struct cufi_lane *l)
{
	/* acquire: pairs with the release in submit.c: the operation can be found in pending */
	return atomic_load_explicit(&l->published, memory_order_acquire);
}

/* As cufi_lane_own; on failure the owner makes the backlog hungry, or wakes the completer. */
bool cufi_lane_own_for_feed(struct cufi_lane *l);
bool cufi_lane_own_for_arm(struct cufi_lane *l);

/* The owner: may it enqueue @weight more? If so it counts as in flight. Grows the lane's limit if the
 * device has budget left. */
bool cufi_lane_reserve(struct cufi_lane *l, uint32_t weight);
static inline void cufi_lane_unreserve(struct cufi_lane *l, uint32_t weight)
{
	/* seq_cst: as in cufi_lane_reserve */
	atomic_fetch_sub(&l->in_flight, weight);
}

/*
 * The owner: is it time for a mark? At the end of what was granted; and where the limit is made of two
 * pieces, when so much is enqueued without one as the first piece held: else the end would come with
 * nothing to ask, but whether the whole stream is empty.
 */
static inline bool cufi_lane_mark_due(struct cufi_lane *l, uint32_t weight)
{
	/* relaxed: only the owner raises it */
	uint32_t n = atomic_load_explicit(&l->in_flight, memory_order_relaxed);
	uint32_t limit = atomic_load_explicit(&l->limit, memory_order_relaxed);
	uint64_t done = cufi_lane_completed(l);
	uint64_t since = l->seq - (l->event_seq > done ? l->event_seq : done);

	return n &&
	       (n + weight > limit || (atomic_load_explicit(&l->grants, memory_order_relaxed) > 1 &&
				       since * 3 >= (uint64_t)limit * 2));
}

/* Hands @op, in hand, to the thread that enqueues held operations of @d. */
void cufi_hungry(struct cufi_lane *l); /* the backlog of @l may be fed */
void cufi_enqueuer_push(struct cufi_device *d, struct cufi_op *op);

/* ---- events: event_pool.c ---- */

/* One reference. The device is entered. NULL: *out_code says why. */
struct cufi_event *cufi_event_get(struct cufi_device *d, bool timing, int *out_code);
void cufi_event_hold(struct cufi_event *e);
void cufi_event_put(struct cufi_event *e);
void cufi_event_pool_fini(struct cufi_device *d);
/* Fills the pool ahead of need. The device is entered. */
int cufi_event_pool_init(struct cufi_device *d);

/* ---- frontiers: frontier.c ---- */

/* The owner of @l: after its stream was made to wait for @e. False: no memory (elides less). */
void cufi_frontier_merge(struct cufi_lane *l, const struct cufi_event *e);
/* Whether @l is ordered after (@from, @seq) already. */
bool cufi_frontier_covers(const struct cufi_frontier *fr, const struct cufi_lane *from,
			  uint64_t seq);
struct cufi_frontier *cufi_frontier_hold(struct cufi_frontier *fr);
void cufi_frontier_put(struct cufi_device *d, struct cufi_frontier *fr);

#endif
