//! Reasons and hints that several cells of the table have, or that are long.

pub(super) const NO_TEST: &str = "it is accepted, and no test shows it yet";
pub(super) const NO_SERVERS: &str = "there are no servers";
pub(super) const NO_WAIT: &str = "no worker waits for another";
pub(super) const NO_BOUNDARY: &str =
    "units of work are granted one by one: there is no membership that waits at a boundary";
pub(super) const NO_TREE: &str = "gradients are rounded at the nodes of the sum over virtual nodes, and here each goes to \
                       servers or peers by itself";
pub(super) const ALL_REDUCE: &str = "use \"f32\", or sync.policy = \"bsp\" with sync.reduce = \"all-reduce\" (and without \
                          sync.stragglers = \"greedy\")";
pub(super) const AT_SERVERS: &str =
    "the servers hold the state, and hand it to the coordinator at the end of a phase";
pub(super) const WHOLE: &str = "use checkpoint.folder, on a file system that outlives the host, or sync.policy = \"bsp\" with \
                     sync.reduce = \"all-reduce\"";
pub(super) const SHARDED_ANYWAY: &str = "the servers share the optimizer's state already";
pub(super) const NOT_SHARDED: &str = "leave the table [sharding] out, or use sync.policy = \"bsp\" with \
                           sync.reduce = \"all-reduce\"";
pub(super) const LOCAL_BATCHES: &str =
    "an update may cover several batches only where each is summed at once";
pub(super) const LOCAL_CHECK: &str =
    "what a virtual node moves follows from the steps before, which no other worker has made";
pub(super) const LOCAL_WAIT: &str =
    "a slow worker is waited for only after local steps, which no policy counts on";
pub(super) const LOCAL_RULE: &str =
    "the program's own rule keeps its slots from step to step, and local steps begin without";
pub(super) const LOCAL_WHOLE: &str = "an outer step needs the whole of what the virtual nodes moved";
pub(super) const NOT_LOCAL: &str = "leave it out, or use sync.policy = \"bsp\"";
pub(super) const TIMING: &str = "an update depends on when its worker took the parameters";
pub(super) const BSP: &str = "use \"bsp\"";
pub(super) const BATCH_WAITS: &str = "the batch may move only while all wait for all";
pub(super) const NO_GOODPUT: &str =
    "use mode \"exact\" with asynchronous phases, or policy \"bsp\" with mode `goodput`";
pub(super) const NO_EQUAL_BITS: &str = "asynchronous updates have no equal bits: a gradient depends on when its worker took the \
                             parameters, so that no other worker can compute it again";
pub(super) const BSP_NOT_GREEDY: &str =
    "leave it out, or use sync.policy = \"bsp\" (without sync.stragglers = \"greedy\")";
pub(super) const BOTH_SIDES: &str =
    "an update may cover steps on both sides of the boundary at which the workers would wait";
pub(super) const VERDICT_BSP: &str = "leave it out (hold=False in the script), or use sync.policy = \"bsp\"";
pub(super) const VERDICT_EXACT: &str = "leave it out (hold=False in the script), or use mode \"exact\"";
pub(super) const STOP_BSP: &str = "leave out the rules on held-out results, or use sync.policy = \"bsp\"";
pub(super) const STOP_EXACT: &str = "leave out the rules on held-out results, or use mode \"exact\"";
pub(super) const PART_RATE: &str =
    "an update of a part of a step has a rate of its own, which the program's rule does not know";
pub(super) const RULE_ASYNCHRONOUS: &str = "use \"sgd\", \"adam\" or \"adamw\" with asynchronous phases";
pub(super) const RULE_GOSSIP: &str = "use \"sgd\", \"adam\" or \"adamw\" with gossip";
pub(super) const UNLIKE_BITS: &str = "unlike kernels round gradients differently, so that the bits follow from who computes which virtual node";
pub(super) const UNLIKE_CHECK: &str =
    "two workers of unlike kernels compute other bytes of the same virtual node, and neither is wrong";
pub(super) const UNLIKE_RULE: &str = "workers of unlike kernels would apply the program's rule to other bits, and their parameters \
                           would drift apart";
pub(super) const NOT_MIXED: &str = "leave it out, or use mode \"exact\"";
pub(super) const ONE_CLASS: &str = "a worker of another kernel class is refused: it would round gradients differently, which the job does not allow";
pub(super) const MIXED: &str = "say mode = \"mixed\" in the job file";
pub(super) const UNITS: &str =
    "units of work are granted one by one, so that a faster worker takes more of them";
pub(super) const GOODPUT: &str = "a batch may only move in mode `goodput`: write max_batch under [mode.goodput] in the job file, or \
                       --set mode.goodput.max_batch=N";
