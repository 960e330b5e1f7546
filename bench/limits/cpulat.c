/* cpulat.c - latency between two CPUs: the round trip time of a cache line from one to the other and back.
 * build: gcc -O3 -pthread -o cpulat cpulat.c      usage: cpulat [-a CPU 0] [-b CPU 1] [-n ROUND TRIPS 2000]; prints nanoseconds, the median of nine times so many */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#define STRETCHES 9
static _Alignas(128) atomic_int turn;
static int cpu_a = 0, cpu_b = 1, trips = 2000;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
static int pin(int c) { cpu_set_t s; CPU_ZERO(&s); CPU_SET(c, &s); return sched_setaffinity(0, sizeof s, &s); }
static int cmp(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return x < y ? -1 : x > y; }
static void *answer(void *x) { if (pin(cpu_b)) exit(1); for (int i = 0; i < trips * STRETCHES; i++) { while (atomic_load(&turn) != 2 * i + 1) {} atomic_store(&turn, 2 * i + 2); } return x; }
int main(int c, char **v) { int o; while ((o = getopt(c, v, "a:b:n:")) > 0) switch (o) { case 'a': cpu_a = atoi(optarg); break; case 'b': cpu_b = atoi(optarg); break; case 'n': trips = atoi(optarg); break; default: return 2; }
    if (cpu_a == cpu_b || trips < 1 || pin(cpu_a)) return 2; /* on one CPU each would spin until it is preempted */
    pthread_t t; if (pthread_create(&t, 0, answer, 0)) return 1; double took[STRETCHES];
    for (int s = 0, i = 0; s < STRETCHES; s++) { double begun = now(); for (int n = 0; n < trips; n++, i++) { atomic_store(&turn, 2 * i + 1); while (atomic_load(&turn) != 2 * i + 2) {} } took[s] = (now() - begun) / trips; }
    qsort(took, STRETCHES, sizeof *took, cmp); pthread_join(t, 0); printf("%.0f\n", took[STRETCHES / 2]); return 0; }
