/* The limit: what the model of the plain kernel costs in C, with nothing else around it.
 *
 * First fit over one queue, each job whole on the cluster with the most idle processors, ties to the lowest index.
 * What ends at a moment ends all together and before the arrivals of that moment. It keeps its books as the kernel
 * does: a heap of ends, the queue in blocks with the least size of each, clusters in groups with the most idle.
 *
 *     gcc -O2 -o limit limit.c && ./limit JOBS CLUSTERS PROCESSORS ROUNDS
 *
 * JOBS is a file of an int64 count, then as many doubles of submission, doubles of run time, and int32 sizes. It runs
 * the jobs so many rounds and prints, as JSON, the processor time of the best, the mean wait and the memory.
 */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCK = 64, GROUP = 16, HOLE = INT_MAX };

struct end {
    double at_s;
    int32_t job;
};

static int64_t count;
static double *submit_s, *run_s, *start_s;
static int32_t *size, *cluster_of;

static struct end *ends;
static int64_t running;

static int32_t *queue_size, *queue_job, *block_least;
static int64_t queue_first, queue_end, queued;

static int64_t *idle, *group_most;
static int clusters, groups;

static void *room_for(int64_t items, size_t bytes)
{
    void *room = malloc((items ? items : 1) * bytes);
    if (room == NULL) {
        fprintf(stderr, "limit: no memory for %lld items\n", (long long)items);
        exit(1);
    }
    return room;
}

/* ------------------------------------------------------------------------------------------- the heap of ends */

static inline void add_end(double at_s, int32_t job)
{
    int64_t place = running++;
    while (place > 0) {
        int64_t parent = (place - 1) / 2;
        if (ends[parent].at_s <= at_s)
            break;
        ends[place] = ends[parent];
        place = parent;
    }
    ends[place] = (struct end){at_s, job};
}

static inline int32_t take_next_end(void)
{
    int32_t gone = ends[0].job;
    struct end last = ends[--running];
    int64_t place = 0, child = 1;
    ends[running].at_s = __builtin_inf();
    while (child < running) {
        child += ends[child + 1].at_s < ends[child].at_s;
        if (ends[child].at_s >= last.at_s)
            break;
        ends[place] = ends[child];
        place = child;
        child = 2 * place + 1;
    }
    ends[place] = last;
    return gone;
}

/* ------------------------------------------------------------------------------------------------ the clusters */

static inline int first_of_most(const int64_t *values, int length)
{
    int best = 0;
    for (int index = 1; index < length; index++)
        if (values[index] > values[best])
            best = index;
    return best;
}

static inline int64_t most_idle(void)
{
    int64_t most = group_most[0];
    for (int group = 1; group < groups; group++)
        if (group_most[group] > most)
            most = group_most[group];
    return most;
}

static inline int members(int group)
{
    return group == groups - 1 ? clusters - group * GROUP : GROUP;
}

static inline void start(int32_t job, double now_s)
{
    int group = groups == 1 ? 0 : first_of_most(group_most, groups);
    int64_t *of_group = idle + group * GROUP;
    int chosen = first_of_most(of_group, members(group));
    of_group[chosen] -= size[job];
    int64_t most = of_group[0];
    for (int index = 1; index < members(group); index++)
        if (of_group[index] > most)
            most = of_group[index];
    group_most[group] = most;
    cluster_of[job] = group * GROUP + chosen;
    start_s[job] = now_s;
    add_end(now_s + run_s[job], job);
}

static inline double end_all(void)
{
    double now_s = ends[0].at_s;
    while (running > 0 && ends[0].at_s == now_s) {
        int32_t job = take_next_end();
        int cluster = cluster_of[job];
        idle[cluster] += size[job];
        if (idle[cluster] > group_most[cluster / GROUP])
            group_most[cluster / GROUP] = idle[cluster];
    }
    return now_s;
}

/* --------------------------------------------------------------------------------------------------- the queue */

static inline void join(int32_t job, int32_t of_size)
{
    int64_t place = queue_end++;
    queue_size[place] = of_size;
    queue_job[place] = job;
    if (place % BLOCK == 0 || of_size < block_least[place / BLOCK])
        block_least[place / BLOCK] = of_size;
    queued++;
}

static inline int64_t next_fitting(int64_t place, int64_t most)
{
    while (place < queue_end) {
        int64_t begin = place / BLOCK * BLOCK;
        int64_t block_end = begin + BLOCK < queue_end ? begin + BLOCK : queue_end;
        if (block_least[place / BLOCK] <= most) {
            int whole = place <= begin || place <= queue_first;
            int32_t least = HOLE;
            for (; place < block_end; place++) {
                if (queue_size[place] <= most)
                    return place;
                if (queue_size[place] < least)
                    least = queue_size[place];
            }
            if (whole)
                block_least[begin / BLOCK] = least;
        }
        place = block_end;
    }
    return place;
}

static void close_ranks(void)
{
    if (queued == 0) {
        queue_first = queue_end = 0;
        return;
    }
    while (queue_size[queue_first] == HOLE)
        queue_first++;
    if (queue_end < 2 * (queued + BLOCK))
        return;
    int64_t first = queue_first, end = queue_end;
    queue_first = queue_end = queued = 0;
    for (int64_t place = first; place < end; place++)
        if (queue_size[place] != HOLE)
            join(queue_job[place], queue_size[place]);
}

/* ----------------------------------------------------------------------------------------------------- the run */

static void run(int64_t processors)
{
    int64_t arrived = 0;
    running = queue_first = queue_end = queued = 0;
    for (int cluster = 0; cluster < clusters; cluster++)
        idle[cluster] = processors;
    for (int group = 0; group < groups; group++)
        group_most[group] = processors;
    while (arrived < count || queued > 0) {
        if (arrived < count && (running == 0 || submit_s[arrived] < ends[0].at_s)) {
            if (size[arrived] <= most_idle())
                start(arrived, submit_s[arrived]);
            else
                join(arrived, size[arrived]);
            arrived++;
            continue;
        }
        double now_s = end_all();
        if (queued == 0)
            continue;
        int64_t place = next_fitting(queue_first, most_idle());
        while (place < queue_end) {
            start(queue_job[place], now_s);
            queue_size[place] = HOLE;
            queued--;
            place = next_fitting(place + 1, most_idle());
        }
        close_ranks();
    }
}

static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

/* Not what getrusage tells, which begins with what the parent had. */
static long peak_kb(void)
{
    char line[256];
    long kb = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        sscanf(line, "VmHWM: %ld", &kb);
    if (status != NULL)
        fclose(status);
    return kb;
}

static void read_jobs(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(&count, sizeof count, 1, file) != 1 || count < 1 || count > INT_MAX) {
        fprintf(stderr, "limit: %s is no file of jobs\n", path);
        exit(1);
    }
    submit_s = room_for(count, sizeof *submit_s);
    run_s = room_for(count, sizeof *run_s);
    size = room_for(count, sizeof *size);
    if (fread(submit_s, sizeof *submit_s, count, file) != (size_t)count ||
        fread(run_s, sizeof *run_s, count, file) != (size_t)count ||
        fread(size, sizeof *size, count, file) != (size_t)count) {
        fprintf(stderr, "limit: %s ends before the last job\n", path);
        exit(1);
    }
    fclose(file);
}

int main(int arguments, char **argument)
{
    if (arguments != 5) {
        fprintf(stderr, "usage: limit JOBS CLUSTERS PROCESSORS ROUNDS\n");
        return 2;
    }
    long before_kb = peak_kb();
    read_jobs(argument[1]);
    clusters = atoi(argument[2]);
    int64_t processors = atoll(argument[3]);
    int rounds = atoi(argument[4]);
    for (int64_t job = 0; job < count; job++)
        if (size[job] < 1 || size[job] > processors || (job && submit_s[job] < submit_s[job - 1])) {
            fprintf(stderr, "limit: job %lld does not fit or is out of order\n", (long long)job);
            return 1;
        }
    groups = (clusters + GROUP - 1) / GROUP;
    int64_t at_once = clusters * processors < count ? clusters * processors : count;
    start_s = room_for(count, sizeof *start_s);
    cluster_of = room_for(count, sizeof *cluster_of);
    ends = room_for(at_once + 1, sizeof *ends);
    queue_size = room_for(count, sizeof *queue_size);
    queue_job = room_for(count, sizeof *queue_job);
    block_least = room_for(count / BLOCK + 1, sizeof *block_least);
    idle = room_for(clusters, sizeof *idle);
    group_most = room_for(groups, sizeof *group_most);
    double best_s = __builtin_inf();
    for (int round = 0; round < rounds; round++) {
        double before_s = processor_s();
        run(processors);
        double taken_s = processor_s() - before_s;
        if (taken_s < best_s)
            best_s = taken_s;
    }
    double waited_s = 0;
    for (int64_t job = 0; job < count; job++)
        waited_s += start_s[job] - submit_s[job];
    printf("{\"s\": %.9f, \"mean_wait_s\": %.17g, \"bytes_per_job\": %.1f}\n", best_s, waited_s / count,
           (peak_kb() - before_kb) * 1024.0 / count);
    return 0;
}
