/* SPDX-License-Identifier: MIT */
/*
 * Labels at the instants where a race is decided. Nothing in a release build. In a build with
 * CUFI_TESTPOINTS a test can stop a thread at one (testpoint_arm and friends), and the virtual
 * scheduler may switch threads there.
 */
#ifndef CUFI_TESTPOINT_H
#define CUFI_TESTPOINT_H

#ifdef CUFI_TESTPOINTS
void cufi_testpoint(const char *label);
/* Calls @fn(@arg) in whichever thread comes to @label next, @times times. One arm a label. */
void cufi_testpoint_arm(const char *label, void (*fn)(void *arg), void *arg, int times);
void cufi_testpoint_disarm(const char *label);
unsigned cufi_testpoint_hits(const char *label); /* times passed while armed */
#define CUFI_TESTPOINT(label) cufi_testpoint(label)
#else
#define CUFI_TESTPOINT(label) ((void)0)
#endif

#endif
