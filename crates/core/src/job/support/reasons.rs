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
