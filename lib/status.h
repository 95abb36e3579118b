/* SPDX-License-Identifier: MIT */
/*
 * Texts of the public enums, and the version. What an error says of itself: error.c.
 */
#ifndef CUFI_STATUS_H
#define CUFI_STATUS_H

/* CUF_PHASE_SUBMIT, … as a word for messages; "unknown phase" for anything else. */
const char *cufi_phase_name(int phase);

#endif
