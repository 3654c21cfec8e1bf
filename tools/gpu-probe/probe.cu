// Which multiprocessor of a GPU each thread block of given grids runs on, and from when to when.
//
// Writes the trace format of `bellwether place --compare`. See README.md beside this file.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>

// What a block leaves behind.
struct Seen {
    unsigned long long start_ns;
    unsigned long long end_ns;
    unsigned int multiprocessor;
};

// One launch that was asked for.
struct Grid {
    unsigned blocks = 0;
    unsigned threads = 0;
    int registers = 0;
    int shared_bytes = 0;
    double time_us = 20000.0;
};

static void check(cudaError_t result, const char *what) {
    if (result != cudaSuccess) {
        std::fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(result));
        std::exit(2);
    }
}

[[noreturn]] static void refuse(const std::string &what, const char *hint) {
    std::fprintf(stderr, "error: %s\n  hint: %s\n", what.c_str(), hint);
    std::exit(2);
}

__device__ static unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// A block that stays for some time. `LIVE` numbers are kept in registers all the while; how many registers that
// makes, the compiler decides, and the trace tells what it decided. `never` is null: it keeps the numbers alive.
template <int LIVE>
__global__ void stay(Seen *seen, unsigned long long time_ns, float *never) {
    const unsigned long long start_ns = now_ns();
    float kept[LIVE > 0 ? LIVE : 1];
#pragma unroll
    for (int i = 0; i < LIVE; i++) {
        kept[i] = static_cast<float>(threadIdx.x + i);
    }
    // The first thread waits for the time, the others for the first: the block is resident until then.
    if (threadIdx.x == 0) {
        unsigned multiprocessor;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
        unsigned long long end_ns;
        do {
            end_ns = now_ns();
#pragma unroll
            for (int i = 0; i < LIVE; i++) {
                // Each depends on the one before and on the clock, so none can be computed later.
                kept[i] = kept[i] * kept[i > 0 ? i - 1 : LIVE - 1] + static_cast<float>(end_ns);
            }
        } while (end_ns - start_ns < time_ns);
        seen[blockIdx.x] = Seen{start_ns, end_ns, multiprocessor};
    }
    __syncthreads();
    if (never != nullptr) {
#pragma unroll
        for (int i = 0; i < LIVE; i++) {
            never[threadIdx.x * LIVE + i] = kept[i];
        }
    }
}

using Kernel = void (*)(Seen *, unsigned long long, float *);

// The kernels by growing number of registers.
struct Variant {
    Kernel kernel;
    int registers;
};

static std::vector<Variant> variants(const cudaDeviceProp &device) {
    std::vector<Variant> all;
    for (Kernel kernel : {stay<0>, stay<16>, stay<32>, stay<64>, stay<96>, stay<128>, stay<160>, stay<192>}) {
        cudaFuncAttributes attributes;
        check(cudaFuncGetAttributes(&attributes, kernel), "the program was not built for this device");
        // As much shared memory as there is, for all of them: different carve-outs would keep kernels apart.
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 100), "shared memory");
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(device.sharedMemPerBlockOptin)),
              "shared memory");
        all.push_back({kernel, attributes.numRegs});
    }
    std::sort(all.begin(), all.end(), [](const Variant &a, const Variant &b) { return a.registers < b.registers; });
    return all;
}

static const Variant &variant_of(const std::vector<Variant> &all, const Grid &grid) {
    for (const Variant &variant : all) {
        if (variant.registers >= grid.registers) {
            return variant;
        }
    }
    refuse("no kernel has " + std::to_string(grid.registers) + " registers per thread",
           ("at most r" + std::to_string(all.back().registers)).c_str());
}

static const char *FORM = "BLOCKSxTHREADS, then any of :rREGISTERS :sBYTES :tMICROSECONDS, for example 8x33:s1024";

static Grid grid_of(const std::string &text) {
    Grid grid;
    int read = 0;
    if (std::sscanf(text.c_str(), "%ux%u%n", &grid.blocks, &grid.threads, &read) != 2 || grid.blocks == 0 ||
        grid.threads == 0 || grid.blocks > 10000000) {
        refuse("`" + text + "` is no grid", FORM);
    }
    size_t at = static_cast<size_t>(read);
    while (at < text.size()) {
        size_t next = text.find(':', at + 1);
        std::string part = text.substr(at, next == std::string::npos ? std::string::npos : next - at);
        char *end = nullptr;
        double value = part.size() > 2 ? std::strtod(part.c_str() + 2, &end) : -1.0;
        if (part[0] != ':' || end == nullptr || *end != '\0' || !(value >= 0.0 && value <= 1e9)) {
            refuse("`" + text + "` is no grid", FORM);
        }
        switch (part[1]) {
        case 'r': grid.registers = static_cast<int>(value); break;
        case 's': grid.shared_bytes = static_cast<int>(value); break;
        case 't': grid.time_us = value; break;
        default: refuse("`" + text + "` is no grid", FORM);
        }
        at = next == std::string::npos ? text.size() : next;
    }
    return grid;
}

static std::vector<Grid> grids_of(const std::string &text) {
    std::vector<Grid> grids;
    size_t at = 0;
    while (true) {
        size_t next = text.find('+', at);
        grids.push_back(grid_of(text.substr(at, next == std::string::npos ? std::string::npos : next - at)));
        if (next == std::string::npos) {
            return grids;
        }
        at = next + 1;
    }
}

// Launches all grids at once, each in a stream of its own and in this order, and writes a row for each.
static void run(const std::vector<Grid> &grids, const std::vector<Variant> &all, const std::string &device,
                const std::string &test, int number) {
    std::vector<Seen *> seen(grids.size());
    std::vector<cudaStream_t> streams(grids.size());
    for (size_t i = 0; i < grids.size(); i++) {
        check(cudaMalloc(&seen[i], grids[i].blocks * sizeof(Seen)), "memory for the result");
        check(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking), "a stream");
    }
    check(cudaDeviceSynchronize(), "waiting for the device");
    for (size_t i = 0; i < grids.size(); i++) {
        const Grid &grid = grids[i];
        variant_of(all, grid).kernel<<<grid.blocks, grid.threads, grid.shared_bytes, streams[i]>>>(
            seen[i], static_cast<unsigned long long>(grid.time_us * 1e3), nullptr);
        check(cudaGetLastError(), "the launch of a grid (threads, registers or shared memory beyond the limits?)");
    }
    check(cudaDeviceSynchronize(), "running the grids");
    std::vector<std::vector<Seen>> results;
    unsigned long long first_ns = ~0ULL;
    for (size_t i = 0; i < grids.size(); i++) {
        results.emplace_back(grids[i].blocks);
        check(cudaMemcpy(results[i].data(), seen[i], grids[i].blocks * sizeof(Seen), cudaMemcpyDeviceToHost),
              "reading the result");
        for (const Seen &block : results[i]) {
            first_ns = std::min(first_ns, block.start_ns);
        }
        check(cudaFree(seen[i]), "memory for the result");
        check(cudaStreamDestroy(streams[i]), "a stream");
    }
    for (size_t i = 0; i < grids.size(); i++) {
        const Grid &grid = grids[i];
        std::printf("%s,%d,%s,K%zu,%u,%u,%d,%d", device.c_str(), number, test.c_str(), i + 1, grid.blocks, grid.threads,
                    variant_of(all, grid).registers, grid.shared_bytes);
        for (int column = 0; column < 3; column++) {
            for (size_t block = 0; block < results[i].size(); block++) {
                const Seen &one = results[i][block];
                unsigned long long value = column == 0   ? one.multiprocessor
                                           : column == 1 ? one.start_ns - first_ns
                                                         : one.end_ns - first_ns;
                std::printf("%c%llu", block == 0 ? ',' : ' ', value);
            }
        }
        std::printf("\n");
    }
    std::fflush(stdout);
}

static int attribute(cudaDeviceAttr which, int device) {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, which, device), "asking the device");
    return value;
}

// A device as `data/gpus.toml` wants it. What the driver does not tell is marked.
static void describe(const cudaDeviceProp &device, int number, const std::string &name) {
    const bool newer = device.major >= 8;
    std::printf("[[gpu]]\nname = \"%s\"\ndescription = \"%s\"\n", name.c_str(), device.name);
    std::printf("architecture = \"unknown\" # to be written by hand\n");
    std::printf("compute_capability = \"%d.%d\"\n", device.major, device.minor);
    std::printf("multiprocessors = %d\n", device.multiProcessorCount);
    std::printf("clock_mhz = %d\n", attribute(cudaDevAttrClockRate, number) / 1000);
    std::printf("threads_per_block = %d\n", device.maxThreadsPerBlock);
    std::printf("registers_per_thread = 255\n");
    std::printf("threads_per_multiprocessor = %d\n", device.maxThreadsPerMultiProcessor);
    std::printf("blocks_per_multiprocessor = %d\n", device.maxBlocksPerMultiProcessor);
    std::printf("warps_per_multiprocessor = %d\n", device.maxThreadsPerMultiProcessor / device.warpSize);
    std::printf("registers_per_multiprocessor = %d\n", device.regsPerMultiprocessor);
    std::printf("register_grain_per_warp = 256 # not told by the driver\n");
    std::printf("shared_bytes_per_multiprocessor = %zu\n", device.sharedMemPerMultiprocessor);
    std::printf("shared_bytes_per_block = %zu\n", device.sharedMemPerBlockOptin);
    std::printf("shared_reserved_bytes_per_block = %zu\n", device.reservedSharedMemPerBlock);
    std::printf("shared_grain_bytes = %d # not told by the driver\n", newer ? 128 : 256);
    std::printf("order = \"evens-then-odds\"\norder_evidence = \"assumed\"\n");
    std::printf("issue = \"%s\"\nissue_evidence = \"assumed\"\n", newer ? "pairs" : "one");
    std::printf("note = \"Not compared with a trace yet.\"\n");
}

static std::string grid_text(int blocks, int threads) {
    return std::to_string(blocks) + "x" + std::to_string(threads);
}

// The grids of the traces that come with the project: twenty of one kernel, between two and eight blocks for each
// multiprocessor; three kernels at once; and blocks of 33 and of 32 threads beside a kernel that leaves one
// multiprocessor free.
static std::vector<std::pair<std::string, std::string>> sweep(const cudaDeviceProp &device) {
    const int n = device.multiProcessorCount;
    const int half = std::min(device.maxThreadsPerMultiProcessor / 2, device.maxThreadsPerBlock);
    std::vector<std::pair<std::string, std::string>> runs;
    std::vector<int> sizes = {2 * n};
    for (int more = 4; more <= 8; more++) {
        sizes.push_back(2 * n + more);
    }
    for (int whole = 3; whole <= 4; whole++) {
        for (int more = -2; more <= 2; more++) {
            sizes.push_back(whole * n + more);
        }
    }
    for (int whole = 5; whole <= 8; whole++) {
        sizes.push_back(whole * n);
    }
    for (int size : sizes) {
        runs.push_back({"sizes", grid_text(size, 32)});
    }
    runs.push_back({"three", grid_text(n / 2, 256) + ":r128+" + grid_text(n - n / 2, 128) + ":r128+1x128:r128"});
    runs.push_back({"isolated", grid_text(n - 1, half) + "+8x33"});
    runs.push_back({"colocated", grid_text(n - 1, half) + "+8x32"});
    return runs;
}

static const char *USAGE =
    "usage: probe [--device N] [--name NAME] [--test NAME] (--describe | --sweep | GRID[+GRID...]...)\n"
    "  GRID         BLOCKSxTHREADS[:rREGISTERS][:sSHARED_BYTES][:tMICROSECONDS], each argument is a run; grids with +\n"
    "               between them are launched at once, in this order, each in a stream of its own\n"
    "  --sweep      the grids of the traces in data/thread-blocks, for this device\n"
    "  --describe   print the device in the form of data/gpus.toml instead\n"
    "  --name NAME  what the trace calls the device [default: as the driver does]\n"
    "Writes a trace for `bellwether place --compare` to stdout.\n";

int main(int argc, char **argv) {
    // Before the first call of CUDA: more streams than this share a queue and would wait for each other.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    int number = 0;
    std::string name, test = "given";
    bool wants_description = false, wants_sweep = false;
    std::vector<std::pair<std::string, std::string>> runs;
    for (int i = 1; i < argc; i++) {
        std::string word = argv[i];
        const bool takes_value = word == "--device" || word == "--name" || word == "--test";
        if (takes_value && i + 1 == argc) {
            refuse(word + " needs a value", USAGE);
        }
        if (word == "--device") {
            number = std::atoi(argv[++i]);
        } else if (word == "--name") {
            name = argv[++i];
        } else if (word == "--test") {
            test = argv[++i];
        } else if (word == "--describe") {
            wants_description = true;
        } else if (word == "--sweep") {
            wants_sweep = true;
        } else if (word.rfind("--", 0) == 0) {
            std::fputs(USAGE, stderr);
            return word == "--help" ? 0 : 2;
        } else {
            runs.push_back({"", word});
        }
    }
    for (auto &run : runs) {
        run.first = test;
    }
    if (runs.empty() && !wants_sweep && !wants_description) {
        std::fputs(USAGE, stderr);
        return 2;
    }
    check(cudaSetDevice(number), "choosing the device");
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, number), "asking the device");
    if (name.empty()) {
        name = device.name;
    }
    if (name.find_first_of(",\"\n") != std::string::npos || test.find_first_of(",\"\n") != std::string::npos) {
        refuse("a name has a comma, a quote or an end of line", "say --name and --test without them");
    }
    if (wants_description) {
        describe(device, number, name);
        return 0;
    }
    if (wants_sweep) {
        const auto more = sweep(device);
        runs.insert(runs.end(), more.begin(), more.end());
    }
    std::vector<std::vector<Grid>> grids;
    for (const auto &run : runs) {
        grids.push_back(grids_of(run.second));
        if (grids.back().size() > 32) {
            refuse("more than 32 grids at once", "there are no more queues between host and device");
        }
    }
    const std::vector<Variant> all = variants(device);
    // Once each, so that no kernel has to be loaded while another is measured.
    Seen *ignored = nullptr;
    check(cudaMalloc(&ignored, sizeof(Seen)), "memory for the result");
    for (const Variant &variant : all) {
        variant.kernel<<<1, 32>>>(ignored, 1000, nullptr);
        check(cudaGetLastError(), "a first launch");
    }
    check(cudaDeviceSynchronize(), "the first launches");
    check(cudaFree(ignored), "memory for the result");
    std::printf("device,run,test,kernel,grid_blocks,threads_per_block,registers_per_thread,shared_bytes,"
                "sm_of_block_in_order,start_ns,end_ns\n");
    for (size_t i = 0; i < runs.size(); i++) {
        run(grids[i], all, name, runs[i].first, static_cast<int>(i) + 1);
    }
    return 0;
}
