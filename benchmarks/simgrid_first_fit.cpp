/* The model of the plain kernel in SimGrid: its clock, its hosts and its actors, with the scheduling written by hand.
 *
 * A cluster is a host; a job that runs is an actor on it that sleeps for its run time; one more actor submits. First
 * fit over one queue, each job whole on the cluster with the most idle processors. An arrival is tried alone.
 *
 *     g++ -O2 -o simgrid_first_fit simgrid_first_fit.cpp -lsimgrid
 *     ./simgrid_first_fit JOBS CLUSTERS PROCESSORS ROUNDS [together]
 *
 * JOBS is the file that limit.c reads; a process of SimGrid runs once, whatever ROUNDS says. SimGrid wakes actors of one moment in an order of its own, and each looks at
 * the queue as it wakes: not all that ends at a moment has ended then, and an arrival of that moment may come first.
 * With "together" the actors wait for one another, so that every job starts when it does in the other programs, at
 * the price of more turns for each. It prints, as JSON, the processor time, the mean wait and the memory.
 */
#include <simgrid/s4u.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <list>
#include <string>
#include <vector>

namespace sg = simgrid::s4u;

static std::vector<double> submit_s, run_s, start_s;
static std::vector<int32_t> size_of, cluster_of;
static std::vector<int64_t> idle;
static std::vector<sg::Host*> hosts;
static std::list<int32_t> waiting;
static bool together = false;
static double looked_at_s = -1;

static void look_at_queue();

static int most_idle()
{
    int best = 0;
    for (int cluster = 1; cluster < static_cast<int>(idle.size()); cluster++)
        if (idle[cluster] > idle[best])
            best = cluster;
    return best;
}

static void run_job(int32_t job)
{
    sg::this_actor::sleep_for(run_s[job]);
    idle[cluster_of[job]] += size_of[job];
    if (together) {
        sg::this_actor::yield(); // until all that ends now has ended
        if (looked_at_s == sg::Engine::get_clock())
            return;
        looked_at_s = sg::Engine::get_clock();
    }
    look_at_queue();
}

/* Takes the processors at once; the actor is for the caller to make, since making one lets others run. */
static bool take(int32_t job)
{
    int cluster = most_idle();
    if (idle[cluster] < size_of[job])
        return false;
    idle[cluster] -= size_of[job];
    cluster_of[job] = cluster;
    start_s[job] = sg::Engine::get_clock();
    return true;
}

static void make_actor(int32_t job)
{
    sg::Actor::create("job", hosts[cluster_of[job]], run_job, job);
}

static void look_at_queue()
{
    std::vector<int32_t> taken;
    for (auto job = waiting.begin(); job != waiting.end();) {
        if (take(*job)) {
            taken.push_back(*job);
            job = waiting.erase(job);
        } else {
            ++job;
        }
    }
    for (int32_t job : taken)
        make_actor(job);
}

static void submit_all()
{
    for (int32_t job = 0; job < static_cast<int32_t>(submit_s.size()); job++) {
        if (submit_s[job] > sg::Engine::get_clock()) {
            sg::this_actor::sleep_until(submit_s[job]);
            if (together)
                for (int turn = 0; turn < 3; turn++)
                    sg::this_actor::yield(); // until the queue has been looked at
        }
        if (take(job))
            make_actor(job);
        else
            waiting.push_back(job);
    }
}

static double processor_s()
{
    timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/* Not what getrusage tells, which begins with what the parent had. */
static long peak_kb()
{
    std::ifstream status("/proc/self/status");
    std::string line;
    while (std::getline(status, line))
        if (line.rfind("VmHWM:", 0) == 0)
            return std::strtol(line.c_str() + 6, nullptr, 10);
    return 0;
}

template <typename Value> static void read_column(std::ifstream& file, std::vector<Value>& column, int64_t count)
{
    column.resize(count);
    file.read(reinterpret_cast<char*>(column.data()), static_cast<std::streamsize>(count * sizeof(Value)));
}

int main(int arguments, char** argument)
{
    sg::Engine engine(&arguments, argument);
    if (arguments < 5) {
        std::cerr << "usage: simgrid_first_fit JOBS CLUSTERS PROCESSORS ROUNDS [together]\n";
        return 2;
    }
    long before_kb = peak_kb();
    std::ifstream file(argument[1], std::ios::binary);
    int64_t count = 0;
    file.read(reinterpret_cast<char*>(&count), sizeof count);
    read_column(file, submit_s, count);
    read_column(file, run_s, count);
    read_column(file, size_of, count);
    if (!file || count < 1) {
        std::cerr << "simgrid_first_fit: " << argument[1] << " is no file of jobs\n";
        return 1;
    }
    start_s.resize(count);
    cluster_of.resize(count);
    together = arguments > 5 && std::string(argument[5]) == "together";
    auto* zone = sg::create_full_zone("grid");
    for (int cluster = 0; cluster < std::atoi(argument[2]); cluster++) {
        hosts.push_back(zone->create_host("c" + std::to_string(cluster), "1Gf")->seal());
        idle.push_back(std::atoll(argument[3]));
    }
    zone->seal();
    sg::Actor::create("submitter", hosts[0], submit_all);
    double before_s = processor_s();
    engine.run();
    double taken_s = processor_s() - before_s;
    double waited_s = 0;
    for (int64_t job = 0; job < count; job++)
        waited_s += start_s[job] - submit_s[job];
    std::printf("{\"s\": %.9f, \"mean_wait_s\": %.17g, \"bytes_per_job\": %.1f}\n", taken_s,
                waited_s / static_cast<double>(count), static_cast<double>(peak_kb() - before_kb) * 1024 / count);
    return 0;
}
