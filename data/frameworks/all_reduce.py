"""What an all-reduce of gloo costs, bare: sizes that no job of the experiment has.

Prints `all_reduce WORKERS BYTES SECONDS PROCESSOR_SECONDS` per size, means of some repetitions at rank 0.
"""

import argparse
import time

import torch
import torch.distributed as dist


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, nargs="+", required=True)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    print("step 0", time.time(), flush=True)
    time.sleep(1.0)
    for elements in options.elements:
        vector = torch.ones(elements)
        dist.all_reduce(vector)
        dist.barrier()
        begin, used = time.perf_counter(), time.process_time()
        for _ in range(options.repeat):
            dist.all_reduce(vector)
        seconds, used = time.perf_counter() - begin, time.process_time() - used
        words = [
            "all_reduce",
            dist.get_world_size(),
            4 * elements,
            seconds / options.repeat,
            used / options.repeat,
        ]
        print(*words, flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main()
