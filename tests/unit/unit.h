/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * unit.h - the tests of one program: each names itself, and runs in the order of the file
 *
 * TEST(frames) { .. } defines and lists test_frames(); TEST_BETWEEN() has what comes before and after
 * it. unit.c has a main() that runs them; a program that prepares more has a main() of its own.
 */
#ifndef TESTS_UNIT_UNIT_H
#define TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TEST_BETWEEN(name, begin, end)                                                             \
	static void test_##name(void **state);                                                     \
	__attribute__((constructor)) static void add_##name(void)                                  \
	{                                                                                          \
		unit_add((struct CMUnitTest){#name, test_##name, begin, end, NULL});               \
	}                                                                                          \
	static void test_##name(void **state)
#define TEST(name) TEST_BETWEEN(name, NULL, NULL)

/* A test on one thing, which is opened for it and closed behind it. */
#define TEST_ON(name, type, thing, open, close)                                                    \
	static void test_##name##_on(type thing);                                                  \
	TEST(name)                                                                                 \
	{                                                                                          \
		type thing = open;                                                                 \
                                                                                                   \
		test_##name##_on(thing);                                                           \
		close;                                                                             \
	}                                                                                          \
	static void test_##name##_on(type thing)

void unit_add(struct CMUnitTest test);

/* Runs all, between what comes before and after the whole. Returns whether any failed. */
int unit_run(CMFixtureFunction begin, CMFixtureFunction end);

#endif /* TESTS_UNIT_UNIT_H */
