/* What the co-location benchmark does at the speed of C: the service, its open-loop client, batch work, and the start
 * of any program in its groups. Compiled by `engine.py`:  cc -O2 -pthread -o engine engine.c -lm
 *
 *   engine run [-g GROUP_FOLDER]... [-s SLICE_US] -- PROGRAM ARGUMENTS   join the groups, end with the parent, exec
 *   engine serve WORK KIB ITERATIONS THREADS PORT whole|divided          a UDP service: one datagram, one request
 *   engine calibrate WORK KIB                                            nanoseconds of one iteration
 *   engine ask PROTOCOL PORT OUTPUT SEED SECONDS PATTERN                 requests when they are due; latencies
 *   engine batch KIND                                                    work without an end
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what) {
    fprintf(stderr, "engine: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) { return ((splitmix(state) >> 11) + 0.5) * 0x1p-53; }

static void *memory(size_t bytes) {
    void *place = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (place == MAP_FAILED) die("mmap");
    return place;
}

/* ---- run: groups first, so that the program and all its children are counted from their first instruction ---- */

struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static int run(int argc, char **argv) {
    int option;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while ((option = getopt(argc, argv, "+g:s:")) != -1) {
        if (option == 'g') {
            char path[4096];
            snprintf(path, sizeof path, "%s/cgroup.procs", optarg);
            int file = open(path, O_WRONLY);
            if (file < 0 || write(file, "0", 1) != 1) die(path);
            close(file);
        } else {
            /* Since 6.12 the runtime of an ordinary task is the slice that EEVDF gives it at once. */
            struct sched_attributes a = {.size = sizeof a, .runtime = strtoull(optarg, NULL, 10) * 1000};
            if (syscall(SYS_sched_setattr, 0, &a, 0)) die("sched_setattr");
        }
    }
    if (optind >= argc) return 2;
    execvp(argv[optind], argv + optind);
    die(argv[optind]);
    return 1;
}

/* ---- serve: a fixed amount of work for each request ---- */

static uint64_t *table;
static uint64_t table_mask;
static _Atomic uint64_t sink;

static void fill_table(const char *work, long kib) {
    size_t bytes = 8;
    while (strcmp(work, "memory") == 0 && bytes < (size_t)kib * 1024) bytes *= 2;
    table = memory(bytes);
    table_mask = bytes / 8 - 1;
    uint64_t state = 7;
    for (uint64_t i = 0; i <= table_mask; i++) table[i] = splitmix(&state);
}

/* Each step needs the result of the last one: for `memory` a read of a random word. */
static void do_work(int reads, long iterations, uint64_t start) {
    uint64_t x = start * 0x9e3779b97f4a7c15ull + 1;
    if (reads)
        for (long i = 0; i < iterations; i++) x = x * 6364136223846793005ull + table[(x >> 20) & table_mask];
    else
        for (long i = 0; i < iterations; i++) x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
    atomic_fetch_xor_explicit(&sink, x, memory_order_relaxed);
}

static int by_value(const void *a, const void *b) {
    double difference = *(const double *)a - *(const double *)b;
    return (difference > 0) - (difference < 0);
}

/* As requests are worked on: for a millisecond or two, between pauses in which caches and clocks fall back. */
static int calibrate(char **argv) {
    enum { TURNS = 60 };
    int reads = strcmp(argv[0], "memory") == 0;
    double took[TURNS];
    struct timespec pause = {0, 2000000};
    fill_table(argv[0], atol(argv[1]));
    long iterations = reads ? 10000 : 1000000;
    for (int turn = 0; turn < TURNS; turn++) {
        uint64_t begun = now_ns();
        do_work(reads, iterations, turn);
        took[turn] = (double)(now_ns() - begun) / iterations;
        nanosleep(&pause, NULL);
    }
    qsort(took, TURNS, sizeof *took, by_value);
    printf("%.4f\n", took[TURNS / 2]);
    return 0;
}

struct request {
    struct sockaddr_in from;
    char id[8];
    _Atomic int left;
};

static int service_socket, service_reads, service_threads;
static long service_iterations;
static struct request *queue[65536];
static _Atomic uint64_t queue_head, queue_tail;
static sem_t queue_length;

/* A request that is divided: each thread does one part, and who ends last answers. */
static void *part_worker(void *unused) {
    for (;;) {
        while (sem_wait(&queue_length)) continue;
        struct request *r = queue[atomic_fetch_add(&queue_head, 1) & 65535];
        do_work(service_reads, service_iterations / service_threads, now_ns());
        if (atomic_fetch_sub(&r->left, 1) == 1) {
            sendto(service_socket, r->id, 8, 0, (struct sockaddr *)&r->from, sizeof r->from);
            free(r);
        }
    }
    return unused;
}

/* A request at a time, as a whole. */
static void *whole_worker(void *unused) {
    for (;;) {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        char id[8];
        if (recvfrom(service_socket, id, 8, 0, (struct sockaddr *)&from, &length) != 8) continue;
        do_work(service_reads, service_iterations, now_ns()); /* other addresses each time */
        sendto(service_socket, id, 8, 0, (struct sockaddr *)&from, length);
    }
    return unused;
}

static void divide_requests(void) {
    for (;;) {
        struct request *r = malloc(sizeof *r);
        socklen_t length = sizeof r->from;
        if (recvfrom(service_socket, r->id, 8, 0, (struct sockaddr *)&r->from, &length) != 8) {
            free(r);
            continue;
        }
        atomic_store(&r->left, service_threads);
        for (int i = 0; i < service_threads; i++) {
            queue[atomic_fetch_add(&queue_tail, 1) & 65535] = r;
            sem_post(&queue_length);
        }
    }
}

static int serve(char **argv) {
    int divided = strcmp(argv[5], "divided") == 0;
    service_reads = strcmp(argv[0], "memory") == 0;
    service_iterations = atol(argv[2]);
    service_threads = atoi(argv[3]);
    fill_table(argv[0], atol(argv[1]));
    service_socket = socket(AF_INET, SOCK_DGRAM, 0);
    int room = 1 << 24;
    setsockopt(service_socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[4]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(service_socket, (struct sockaddr *)&at, sizeof at)) die("bind");
    sem_init(&queue_length, 0, 0);
    pthread_t thread;
    for (int i = divided ? 0 : 1; i < service_threads; i++)
        if (pthread_create(&thread, NULL, divided ? part_worker : whole_worker, NULL)) die("pthread_create");
    if (divided)
        divide_requests();
    else
        whole_worker(NULL);
    return 0;
}

/* ---- ask: an open loop; latency counts from when a request was due, not from when it could be sent ---- */

#define MOST_CONNECTIONS 256
#define RING 4096

struct connection {
    int socket;
    uint32_t first, last; /* requests without an answer, oldest first */
    uint32_t ring[RING];
    long received; /* bytes of the answer to the oldest one */
};

struct answer {
    uint64_t due, latency; /* latency 0: none yet */
};

struct pattern {
    char kind[16];
    double rate, period, part; /* requests a second in the mean; seconds; share of it that is on, or low/high */
};

static double rate_at(const struct pattern *p, double t) {
    if (strcmp(p->kind, "bursty") == 0) return fmod(t, p->period) < p->part * p->period ? p->rate / p->part : 0;
    if (strcmp(p->kind, "diurnal") == 0) {
        double depth = (1 - p->part) / (1 + p->part);
        return p->rate * (1 - depth * cos(2 * M_PI * t / p->period));
    }
    return p->rate;
}

static double highest_rate(const struct pattern *p) {
    if (strcmp(p->kind, "bursty") == 0) return p->rate / p->part;
    if (strcmp(p->kind, "diurnal") == 0) return p->rate * 2 / (1 + p->part);
    return p->rate;
}

/* Poisson arrivals of a rate that changes, by thinning: the same seed gives the same moments in every way. */
static uint64_t *arrivals(const struct pattern *p, double seconds, uint64_t seed, size_t *count) {
    double highest = highest_rate(p), t = 0;
    size_t room = (size_t)(highest * seconds * 1.5) + 1024;
    uint64_t *due = malloc(room * sizeof *due), state = seed * 2654435761u + 12345;
    for (*count = 0; *count < room;) {
        t += -log(uniform(&state)) / highest;
        if (t >= seconds) break;
        if (uniform(&state) * highest < rate_at(p, t)) due[(*count)++] = (uint64_t)(t * 1e9);
    }
    return due;
}

static const char *question(const char *protocol) {
    if (strcmp(protocol, "redis") == 0) return "*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n";
    if (strcmp(protocol, "memcached") == 0) return "get key\r\n";
    return "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

static const char *preparation(const char *protocol) {
    if (strcmp(protocol, "redis") == 0) return "SET key %s\r\n";
    if (strcmp(protocol, "memcached") == 0) return "set key 0 0 512\r\n%s\r\n";
    return "";
}

static long read_for(int socket, int milliseconds) {
    char buffer[65536];
    long all = 0, got;
    struct pollfd p = {.fd = socket, .events = POLLIN};
    while (poll(&p, 1, milliseconds) > 0 && (got = recv(socket, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) all += got;
    return all;
}

/* The length of one answer, which is always the same: it says where the answer to one request ends. */
static long answer_length(int socket, const char *protocol) {
    char value[513], text[1024];
    memset(value, 'v', 512);
    value[512] = 0;
    if (*preparation(protocol)) {
        int length = snprintf(text, sizeof text, preparation(protocol), value);
        if (send(socket, text, length, 0) != length || !read_for(socket, 300)) die("preparing the service");
    }
    if (send(socket, question(protocol), strlen(question(protocol)), 0) < 0) die("the first request");
    long length = read_for(socket, 300);
    if (!length) die("the first answer");
    return length;
}

static int ask(char **argv) {
    const char *protocol = argv[0];
    int datagrams = strcmp(protocol, "work") == 0, connections = datagrams ? 1 : 32;
    struct pattern p = {0};
    if (sscanf(argv[5], "%15[^:]:%lf:%lf:%lf", p.kind, &p.rate, &p.period, &p.part) < 2) die("pattern");
    double seconds = atof(argv[4]);
    size_t count, answered = 0, next = 0;
    uint64_t *due = arrivals(&p, seconds, strtoull(argv[3], NULL, 10), &count);
    /* Pairs of due and latency in the file itself, so that others can follow them meanwhile. */
    int output = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (output < 0 || ftruncate(output, (count + 1) * sizeof(struct answer))) die(argv[2]);
    struct answer *answers = mmap(NULL, (count + 1) * sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED, output, 0);
    if (answers == MAP_FAILED) die("mmap of the latencies");
    for (size_t i = 0; i < count; i++) answers[i] = (struct answer){due[i], 0};
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) die("mlockall");
    struct sched_param priority = {.sched_priority = 50};
    if (sched_setscheduler(0, SCHED_FIFO, &priority)) die("SCHED_FIFO");

    static struct connection all[MOST_CONNECTIONS];
    struct pollfd polls[MOST_CONNECTIONS];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int c = 0; c < connections; c++) {
        int one = 1, room = 1 << 24;
        all[c].socket = socket(AF_INET, datagrams ? SOCK_DGRAM : SOCK_STREAM, 0);
        if (connect(all[c].socket, (struct sockaddr *)&at, sizeof at)) die("connect");
        if (!datagrams) setsockopt(all[c].socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(all[c].socket, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
        polls[c] = (struct pollfd){.fd = all[c].socket, .events = POLLIN};
    }
    long length = datagrams ? 8 : answer_length(all[0].socket, protocol);
    const char *words = question(protocol);
    size_t words_length = strlen(words);

    uint64_t start = now_ns() + 20000000, latest = 0, refused = 0;
    uint64_t end = start + (uint64_t)(seconds * 1e9) + 3000000000ull; /* three seconds for what is still on its way */
    while (answered < count && now_ns() < end) {
        uint64_t now = now_ns();
        while (next < count && start + due[next] <= now) {
            int best = 0;
            for (int c = 1; c < connections; c++)
                if (all[c].last - all[c].first < all[best].last - all[best].first) best = c;
            struct connection *to = &all[best];
            uint64_t id = next, late = now - start - due[next];
            if (late > latest) latest = late;
            ssize_t sent = -1;
            if (datagrams)
                sent = send(to->socket, &id, 8, MSG_DONTWAIT);
            else if (to->last - to->first < RING) {
                to->ring[to->last % RING] = next;
                sent = send(to->socket, words, words_length, MSG_DONTWAIT | MSG_NOSIGNAL);
                if (sent == (ssize_t)words_length) to->last++;
            }
            refused += sent < 0;
            next++;
            now = now_ns();
        }
        uint64_t until = next < count ? start + due[next] : end;
        struct timespec wait = {0};
        if (until > now) wait = (struct timespec){(until - now) / 1000000000, (until - now) % 1000000000};
        if (ppoll(polls, connections, &wait, NULL) <= 0) continue;
        for (int c = 0; c < connections; c++) {
            if (!(polls[c].revents & (POLLIN | POLLHUP | POLLERR))) continue;
            char buffer[65536];
            ssize_t got;
            while ((got = recv(all[c].socket, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
                uint64_t moment = now_ns();
                if (datagrams) {
                    uint64_t id;
                    memcpy(&id, buffer, 8);
                    if (got != 8 || id >= count) continue;
                    answers[id].latency = moment - start - due[id];
                    answered++;
                    continue;
                }
                for (all[c].received += got; all[c].received >= length && all[c].first != all[c].last; answered++) {
                    uint32_t id = all[c].ring[all[c].first++ % RING];
                    all[c].received -= length;
                    answers[id].latency = moment - start - due[id];
                }
            }
            if (got == 0 && !datagrams) { errno = ECONNRESET; die("the service closed a connection"); }
        }
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    if (ftruncate(output, count * sizeof *answers) || close(output)) die(argv[2]);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"start_ns\": %llu, \"requests\": %zu, \"answered\": %zu, \"refused\": %llu, \"cpu_seconds\": %.6f, "
           "\"latest_ms\": %.3f}\n",
           (unsigned long long)start, count, answered, (unsigned long long)refused, cpu, latest / 1e6);
    return 0;
}

/* ---- batch ---- */

static void *spin(void *unused) {
    for (uint64_t turn = 0;; turn++) do_work(0, 100000, turn);
    return unused;
}

static int batch(const char *kind) {
    size_t bytes = 64 << 20;
    if (strncmp(kind, "threads", 7) == 0) {
        pthread_t thread;
        for (int i = 1; i < 32; i++)
            if (pthread_create(&thread, NULL, spin, NULL)) die("pthread_create");
        spin(NULL);
    }
    if (strcmp(kind, "stream") == 0) {
        char *from = memory(bytes), *to = memory(bytes);
        for (;;) {
            memcpy(to, from, bytes);
            from[0] ^= to[bytes - 1];
        }
    }
    if (strcmp(kind, "thrash") == 0) {
        uint64_t *words = memory(bytes), state = 3, mask = bytes / 8 - 1;
        for (;;) words[splitmix(&state) & mask]++;
    }
    if (strcmp(kind, "fork") == 0) {
        for (;;) {
            pid_t child = fork();
            if (child == 0) {
                do_work(0, 300000, (uint64_t)getpid());
                _exit(0);
            }
            if (child < 0) die("fork");
            while (waitpid(child, NULL, 0) < 0 && errno == EINTR) continue;
        }
    }
    spin(NULL);
    return 0;
}

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "run") == 0) return run(argc - 1, argv + 1);
    if (strcmp(word, "serve") == 0 && argc == 8) return serve(argv + 2);
    if (strcmp(word, "calibrate") == 0 && argc == 4) return calibrate(argv + 2);
    if (strcmp(word, "ask") == 0 && argc == 8) return ask(argv + 2);
    if (strcmp(word, "batch") == 0 && argc == 3) return batch(argv[2]);
    fprintf(stderr, "engine: unknown command\n");
    return 2;
}
