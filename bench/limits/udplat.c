/* udplat.c - latency floor of a UDP relay: client (polling) -> relay -> same client, at a fixed rate.
 * build: gcc -O3 -pthread -o udplat udplat.c      usage: udplat [-r RATE 2000] [-d SEC 5] [-s BYTES 64] [-p (relay polls)] [-e (relay waits in epoll)] [-b (client sleeps, too, until 50 us before the next is due)] [-R CPU 0 (relay)] [-K CPU 1 (client)] */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
static int poll_, ep_, blk, sz = 64, dur = 5, cpu_r = 0, cpu_k = 1; static double rate = 2000, rcpu; static int sr, sc; static struct sockaddr_in ar, ac; static volatile int stop;
static uint64_t now(clockid_t c) { struct timespec t; clock_gettime(c, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static void pin(int c) { cpu_set_t s; CPU_ZERO(&s); CPU_SET(c, &s); sched_setaffinity(0, sizeof s, &s); }
static int mk(struct sockaddr_in *a) { int s = socket(AF_INET, SOCK_DGRAM, 0); memset(a, 0, sizeof *a); a->sin_family = AF_INET; a->sin_addr.s_addr = htonl(INADDR_LOOPBACK); bind(s, (void *)a, sizeof *a); socklen_t l = sizeof *a; getsockname(s, (void *)a, &l); struct timeval tv = {0, 200000}; setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv); return s; }
static void *relay(void *x) { pin(cpu_r); char b[2048]; int ep = epoll_create1(0); struct epoll_event e = {.events = EPOLLIN}; epoll_ctl(ep, EPOLL_CTL_ADD, sr, &e);
    while (!stop) { if (ep_) epoll_wait(ep, &e, 1, 200); ssize_t n = recv(sr, b, sizeof b, poll_ || ep_ ? MSG_DONTWAIT : 0); if (n > 0) sendto(sr, b, n, 0, (void *)&ac, sizeof ac); }
    rcpu = now(CLOCK_THREAD_CPUTIME_ID) / 1e9; return x; }
static int cmp(const void *a, const void *b) { uint32_t x = *(uint32_t *)a, y = *(uint32_t *)b; return x < y ? -1 : x > y; }
int main(int c, char **v) { int o; while ((o = getopt(c, v, "r:d:s:R:K:peb")) > 0) switch (o) { case 'r': rate = atof(optarg); break; case 'd': dur = atoi(optarg); break; case 's': sz = atoi(optarg); break; case 'R': cpu_r = atoi(optarg); break; case 'K': cpu_k = atoi(optarg); break; case 'p': poll_ = 1; break; case 'b': blk = 1; break; case 'e': ep_ = 1; break; default: return 2; }
    sr = mk(&ar); sc = mk(&ac); pthread_t t; pthread_create(&t, 0, relay, 0); pin(cpu_k); uint64_t N = rate * dur, sent = 0, got = 0, t0 = now(1), end = t0 + (dur + 0.3) * 1e9; uint32_t *l = malloc(4 * N); char b[2048] = {0};
    if (blk) prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    while (now(1) < end && got < N) { uint64_t n = now(1), due = sent < N ? t0 + sent * 1e9 / rate : end;
        if (blk && due > n + 50000) { uint64_t left = due - 50000 - n; struct timespec ts = {left / 1000000000, left % 1000000000}; struct pollfd f = {sc, POLLIN, 0}; ppoll(&f, 1, &ts, 0); n = now(1); }
        if (sent < N && n >= t0 + sent * 1e9 / rate) { uint64_t w = t0 + sent * 1e9 / rate; memcpy(b, &w, 8); sendto(sc, b, sz, 0, (void *)&ar, sizeof ar); sent++; } ssize_t r = recv(sc, b, sizeof b, MSG_DONTWAIT); if (r > 0) { uint64_t w; memcpy(&w, b, 8); l[got++] = now(1) - w; } }
    double T = (now(1) - t0) / 1e9; stop = 1; pthread_join(t, 0); if (!got) return 1; qsort(l, got, 4, cmp); printf("relay %s rate %.0f: sent %lu got %lu | us p50 %.1f p90 %.1f p99 %.1f p99.9 %.1f max %.0f | relay cpu %.1f%%\n", poll_ ? "polls" : ep_ ? "epoll" : "blocks", rate, sent, got, l[got / 2] / 1e3, l[got * 9 / 10] / 1e3, l[got * 99 / 100] / 1e3, l[got * 999 / 1000] / 1e3, l[got - 1] / 1e3, 100 * rcpu / T); return 0; }
