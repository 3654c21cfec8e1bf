//! The table of training modes and features; `cargo xtask modes` makes `docs/modes.md` of it.

use super::Support::{self, Later, NoEffect, Refused, Supported};
use super::reasons::*;
use super::{Feature, TrainingMode};

/// A feature, its title on the page, and its support by mode in the order of [`MODES`].
pub(super) struct Row {
    pub(super) feature: Feature,
    pub(super) title: &'static str,
    /// By mode.
    pub(super) cells: [Support; MODES.len()],
}

/// All modes, with their titles on the page, in the order of the cells.
pub(super) const MODES: [(TrainingMode, &str); 7] = [
    (TrainingMode::Exact, "exact"),
    (TrainingMode::Goodput, "goodput"),
    (TrainingMode::Servers, "servers"),
    (TrainingMode::Asynchronous, "asynchronous"),
    (TrainingMode::Gossip, "gossip"),
    (TrainingMode::Local, "local"),
    (TrainingMode::Mixed, "mixed"),
];

/// The table, by feature.
pub(super) const TABLE: [Row; 30] = [
    Row {
        feature: Feature::SameBits,
        title: "the same bytes on any workers",
        cells: [
            Supported { test: "momentum_is_the_same_for_any_number_of_workers" },
            Supported { test: "a_fixed_batch_gives_the_same_bits_for_any_workers" },
            Supported { test: "through_servers_the_parameters_are_the_same" },
            Refused { key: "sync.policy", reason: TIMING, hint: BSP },
            Refused { key: "sync.policy", reason: TIMING, hint: BSP },
            Supported { test: "local_steps_give_the_same_bits_on_any_workers" },
            Refused { key: "mode", reason: UNLIKE_BITS, hint: "use mode \"exact\"" },
        ],
    },
    Row {
        feature: Feature::MovingBatch,
        title: "a batch that moves",
        cells: [
            Refused {
                key: "mode",
                reason: "the job's mode is `exact`: its batch never changes",
                hint: GOODPUT,
            },
            Supported { test: "a_measured_batch_grows_and_every_sample_counts_once" },
            Refused {
                key: "sync.reduce",
                reason: "the batch may move only where gradients are summed among the workers",
                hint: "use \"all-reduce\" with mode `goodput`",
            },
            Refused { key: "sync.policy", reason: BATCH_WAITS, hint: NO_GOODPUT },
            Refused { key: "sync.policy", reason: BATCH_WAITS, hint: NO_GOODPUT },
            Refused { key: "mode", reason: LOCAL_BATCHES, hint: NOT_LOCAL },
            Refused {
                key: "mode",
                reason: "the job's mode is `mixed`: its batch never changes",
                hint: GOODPUT,
            },
        ],
    },
    Row {
        feature: Feature::Verify,
        title: "checks for silent corruption (`verify_every`)",
        cells: [
            Supported { test: "what_is_verified_is_the_same" },
            Supported { test: "a_batch_that_moves_is_verified_too" },
            Refused {
                key: "verify_every",
                reason: "gradients leave for the servers tensor by tensor while they are computed, so that they \
                         cannot be compared before they are applied",
                hint: "leave it out, or use sync.reduce = \"all-reduce\"",
            },
            Refused { key: "verify_every", reason: NO_EQUAL_BITS, hint: BSP_NOT_GREEDY },
            Refused { key: "verify_every", reason: NO_EQUAL_BITS, hint: BSP_NOT_GREEDY },
            Refused { key: "verify_every", reason: LOCAL_CHECK, hint: NOT_LOCAL },
            Refused { key: "verify_every", reason: UNLIKE_CHECK, hint: NOT_MIXED },
        ],
    },
    Row {
        feature: Feature::ClipNorm,
        title: "clipping by norm (`optimizer.clip_norm`)",
        cells: [
            Supported { test: "clipping_scales_the_mean_gradient_to_the_limit" },
            Later { what: NO_TEST },
            Refused {
                key: "sync.reduce",
                reason: "no server has the whole gradient, whose norm optimizer.clip_norm limits",
                hint: "use \"all-reduce\", or do without optimizer.clip_norm",
            },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Supported { test: "local_steps_give_the_same_bits_on_any_workers" },
            Supported { test: "a_mixed_run_trains_with_two_kernel_classes_and_says_whose_is_which" },
        ],
    },
    Row {
        feature: Feature::Resize,
        title: "workers that join and leave",
        cells: [
            Supported { test: "scheduled_changes_happen_exactly_at_their_steps" },
            Supported { test: "a_fixed_batch_gives_the_same_bits_for_any_workers" },
            Supported { test: "phases_with_faults_keep_every_promise" },
            Supported { test: "a_phase_follows_its_schedule_and_can_be_stopped" },
            Supported { test: "peers_come_and_go_while_others_average" },
            Supported { test: "local_steps_survive_resizes_and_the_deaths_of_workers_and_coordinator" },
            Supported { test: "a_mixed_run_trains_with_two_kernel_classes_and_says_whose_is_which" },
        ],
    },
    Row {
        feature: Feature::WorkerLoss,
        title: "workers that die",
        cells: [
            Supported { test: "kills_between_short_steps" },
            Supported { test: "a_fixed_batch_survives_the_death_of_workers_and_of_the_coordinator" },
            Supported { test: "phases_with_faults_keep_every_promise" },
            Supported { test: "workers_that_are_killed_lose_no_update" },
            Supported { test: "who_dies_in_the_middle_costs_nothing_but_that_exchange" },
            Supported { test: "local_steps_survive_resizes_and_the_deaths_of_workers_and_coordinator" },
            Supported { test: "a_mixed_run_trains_with_two_kernel_classes_and_says_whose_is_which" },
        ],
    },
    Row {
        feature: Feature::CoordinatorLoss,
        title: "a coordinator that dies",
        cells: [
            Supported { test: "coordinator_and_all_workers_die" },
            Supported { test: "a_measured_batch_survives_the_death_of_workers_and_of_the_coordinator" },
            Supported { test: "phases_with_faults_keep_every_promise" },
            Supported { test: "a_run_whose_coordinator_is_killed_goes_back_to_its_checkpoint" },
            Later { what: NO_TEST },
            Supported { test: "local_steps_survive_resizes_and_the_deaths_of_workers_and_coordinator" },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::StopAndResume,
        title: "a run that is stopped and taken up again",
        cells: [
            Supported { test: "a_stopped_run_goes_on_where_it_ended" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Supported { test: "a_phase_follows_its_schedule_and_can_be_stopped" },
            Later { what: NO_TEST },
            Supported { test: "local_steps_are_stopped_and_taken_up_again" },
            Supported { test: "a_mixed_run_is_taken_up_again_by_another_kernel_class" },
        ],
    },
    Row {
        feature: Feature::Replicas,
        title: "replicas of servers (`sync.replica`)",
        cells: [
            NoEffect { reason: NO_SERVERS },
            NoEffect { reason: NO_SERVERS },
            Supported { test: "a_replica_takes_the_place_of_a_server" },
            Supported { test: "a_replica_takes_the_place_of_a_server" },
            NoEffect { reason: NO_SERVERS },
            NoEffect { reason: NO_SERVERS },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::StragglerPolicy,
        title: "a policy against stragglers (`sync.stragglers`)",
        cells: [
            Supported { test: "elastic_evicts_until_the_synchronous_steps_are_done_and_restores_then" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            NoEffect { reason: NO_WAIT },
            NoEffect { reason: NO_WAIT },
            Refused { key: "sync.stragglers", reason: LOCAL_WAIT, hint: NOT_LOCAL },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::ReplaceStragglers,
        title: "stragglers that are replaced (`--replace-stragglers`)",
        cells: [
            Supported { test: "a_straggler_is_replaced_before_it_leaves" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Liveness,
        title: "workers that hang",
        cells: [
            Supported { test: "a_worker_whose_gradient_never_returns_is_replaced" },
            Later { what: NO_TEST },
            Supported { test: "a_worker_whose_server_does_not_answer_is_cut_off_where_others_are_answered" },
            Supported { test: "a_worker_that_hangs_with_its_unit_is_lost_even_alone" },
            Supported { test: "a_peer_that_answers_nonsense_half_or_never_is_left_out" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Autoscale,
        title: "a run that finds its size (`--autoscale`)",
        cells: [
            Supported { test: "autoscaling_settles_at_the_best_size_from_one_worker" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Revocations,
        title: "servers that vanish by a law (`--revocations`)",
        cells: [
            Supported { test: "every_server_vanishes_twice_and_the_bits_are_the_same" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Notices,
        title: "a provider's notice (`worker --notices`)",
        cells: [
            Supported { test: "a_worker_whose_server_is_taken_away_leaves_between_two_steps" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Supported { test: "a_phase_follows_its_schedule_and_can_be_stopped" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Audit,
        title: "a proof that each sample was used once (`audit`)",
        cells: [
            Supported { test: "the_ledger_holds_for_whole_histories_and_for_rollbacks" },
            Supported { test: "a_measured_batch_grows_and_every_sample_counts_once" },
            Supported { test: "a_replica_takes_the_place_of_a_server" },
            Supported { test: "workers_that_are_killed_lose_no_update" },
            Later { what: NO_TEST },
            Supported { test: "local_steps_survive_resizes_and_the_deaths_of_workers_and_coordinator" },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Profile,
        title: "a profile (`profile`)",
        cells: [
            Supported { test: "a_synthetic_job_is_measured" },
            NoEffect { reason: "it is measured as mode `exact`" },
            NoEffect { reason: "it is measured among the workers" },
            Later { what: NO_TEST },
            NoEffect { reason: "it is measured as if all waited for all" },
            NoEffect { reason: "it is measured as mode `exact`" },
            NoEffect { reason: "it is measured as mode `exact`" },
        ],
    },
    Row {
        feature: Feature::Predict,
        title: "a prediction (`predict`)",
        cells: [
            Supported { test: "a_lone_worker_does_what_was_measured" },
            Supported { test: "another_batch_is_extrapolated" },
            Supported { test: "every_protocol_is_answered_and_none_beats_perfect_scaling" },
            Supported { test: "every_protocol_is_answered_and_none_beats_perfect_scaling" },
            Supported { test: "every_protocol_is_answered_and_none_beats_perfect_scaling" },
            Supported { test: "local_steps_exchange_once_in_a_round" },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::TuneSync,
        title: "a search for the share of synchronous steps (`tune sync`)",
        cells: [
            Supported { test: "the_least_share_that_is_good_enough_is_found_and_kept" },
            Refused {
                key: "mode",
                reason: "the job's mode is `goodput`",
                hint: "the batch may move only while all wait for all: leave [mode.goodput] out, or --set \
                       mode=exact",
            },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Serve,
        title: "a daemon that shares slots among jobs (`serve`)",
        cells: [
            Supported { test: "elastic_jobs_share_the_slots_and_train_the_same_bits" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Threads,
        title: "workers that are threads",
        cells: [
            Supported {
                test: "a_workload_of_ones_own_keeps_its_digest_when_it_is_resized_and_loses_a_worker",
            },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Supported { test: "parameter_servers_are_threads_too" },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
            Supported { test: "a_mixed_run_trains_with_two_kernel_classes_and_says_whose_is_which" },
        ],
    },
    Row {
        feature: Feature::Python,
        title: "a workload in Python",
        cells: [
            Supported { test: "test_three_then_one_then_four" },
            Supported { test: "test_other_modes_train_a_rule_of_the_runtime" },
            Supported { test: "test_other_modes_train_a_rule_of_the_runtime" },
            Supported { test: "test_other_modes_train_a_rule_of_the_runtime" },
            Supported { test: "test_other_modes_train_a_rule_of_the_runtime" },
            Supported { test: "test_other_modes_train_a_rule_of_the_runtime" },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::OwnRule,
        title: "an update rule of the program's own (`optimizer.kind = \"own\"`)",
        cells: [
            Supported { test: "an_own_rule_is_the_same_for_any_number_of_workers" },
            Refused {
                key: "optimizer.kind",
                reason: "how the rate of the program's own rule follows a larger batch is not known",
                hint: "use \"sgd\", \"adam\" or \"adamw\" with mode `goodput`",
            },
            Refused {
                key: "optimizer.kind",
                reason: "parameter servers do not run the trained program, and so not its rule",
                hint: "use \"sgd\", \"adam\" or \"adamw\" with sync.reduce = \"servers\"",
            },
            Refused { key: "optimizer.kind", reason: PART_RATE, hint: RULE_ASYNCHRONOUS },
            Refused { key: "optimizer.kind", reason: PART_RATE, hint: RULE_GOSSIP },
            Refused { key: "optimizer.kind", reason: LOCAL_RULE, hint: NOT_LOCAL },
            Refused {
                key: "optimizer.kind",
                reason: UNLIKE_RULE,
                hint: "use \"sgd\", \"adam\" or \"adamw\" with mode `mixed`",
            },
        ],
    },
    Row {
        feature: Feature::Verdicts,
        title: "a verdict on whether the run goes on (`verdict.every_steps`)",
        cells: [
            Supported { test: "a_run_follows_its_verdicts_through_the_deaths_of_coordinator_and_worker" },
            Refused { key: "verdict.every_steps", reason: BOTH_SIDES, hint: VERDICT_EXACT },
            Refused {
                key: "verdict.every_steps",
                reason: NO_BOUNDARY,
                hint: "leave it out (hold=False in the script), or use sync.reduce = \"all-reduce\"",
            },
            Refused { key: "verdict.every_steps", reason: NO_BOUNDARY, hint: VERDICT_BSP },
            Refused { key: "verdict.every_steps", reason: NO_BOUNDARY, hint: VERDICT_BSP },
            Supported { test: "rounds_of_local_steps_end_where_a_verdict_is_due" },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::StopRules,
        title: "an end by held-out results (`[stop]`)",
        cells: [
            Supported { test: "held_out_results_end_a_run_at_the_same_step_whatever_its_workers" },
            Refused { key: "stop", reason: BOTH_SIDES, hint: STOP_EXACT },
            Refused {
                key: "stop",
                reason: NO_BOUNDARY,
                hint: "leave out the rules on held-out results, or use sync.reduce = \"all-reduce\"",
            },
            Refused { key: "stop", reason: NO_BOUNDARY, hint: STOP_BSP },
            Refused { key: "stop", reason: NO_BOUNDARY, hint: STOP_BSP },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Bfloat16,
        title: "gradients in 16 bits (`exchange.precision = \"bf16\"`)",
        cells: [
            Supported { test: "gradients_in_bfloat16_give_the_same_bits_on_any_workers" },
            Supported { test: "gradients_in_bfloat16_of_a_batch_that_moves_are_the_same_on_any_workers" },
            Refused { key: "exchange.precision", reason: NO_TREE, hint: ALL_REDUCE },
            Refused { key: "exchange.precision", reason: NO_TREE, hint: ALL_REDUCE },
            Refused { key: "exchange.precision", reason: NO_TREE, hint: ALL_REDUCE },
            Supported { test: "local_steps_give_the_same_bits_on_any_workers" },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::SlicedCheckpoints,
        title: "checkpoints in slices, to a store (`checkpoint.url`)",
        cells: [
            Supported { test: "slices_give_the_same_bits_through_resizes_and_on_other_workers" },
            Later { what: NO_TEST },
            Refused { key: "checkpoint.url", reason: AT_SERVERS, hint: WHOLE },
            Refused { key: "checkpoint.url", reason: AT_SERVERS, hint: WHOLE },
            Refused {
                key: "checkpoint.url",
                reason: "each worker has parameters of its own, so that their slices make no one state",
                hint: WHOLE,
            },
            Later { what: NO_TEST },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::Sharding,
        title: "the workers share the optimizer's state (`[sharding]`)",
        cells: [
            Supported { test: "a_sharded_optimizer_gives_the_same_bits_on_any_workers" },
            Supported { test: "a_sharded_optimizer_gives_the_same_bits_where_the_batch_moves" },
            Refused { key: "sharding", reason: SHARDED_ANYWAY, hint: NOT_SHARDED },
            Refused { key: "sharding", reason: SHARDED_ANYWAY, hint: NOT_SHARDED },
            Refused {
                key: "sharding",
                reason: "each worker has parameters of its own, and updates all of them",
                hint: NOT_SHARDED,
            },
            Refused { key: "sharding", reason: LOCAL_WHOLE, hint: NOT_LOCAL },
            Later { what: NO_TEST },
        ],
    },
    Row {
        feature: Feature::UnlikeKernels,
        title: "workers of unlike kernel classes",
        cells: [
            Refused { key: "mode", reason: ONE_CLASS, hint: MIXED },
            Refused { key: "mode", reason: ONE_CLASS, hint: MIXED },
            Refused { key: "mode", reason: ONE_CLASS, hint: MIXED },
            Supported { test: "asynchronous_phases_are_open_to_any_kernel_class" },
            Later { what: NO_TEST },
            Refused { key: "mode", reason: ONE_CLASS, hint: MIXED },
            Supported { test: "a_mixed_run_trains_with_two_kernel_classes_and_says_whose_is_which" },
        ],
    },
    Row {
        feature: Feature::MeasuredShares,
        title: "shares by measured speeds (`--shares measured`)",
        cells: [
            Supported { test: "shares_follow_measured_speeds_and_the_bits_stay_the_same" },
            Later { what: NO_TEST },
            NoEffect { reason: UNITS },
            NoEffect { reason: UNITS },
            NoEffect { reason: UNITS },
            Later { what: NO_TEST },
            Supported { test: "a_mixed_run_shares_the_work_by_what_it_measures" },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_and_column_stands_in_its_place() {
        for (place, row) in TABLE.iter().enumerate() {
            assert_eq!(row.feature as usize, place, "{}", row.title);
        }
        for (place, (mode, title)) in MODES.iter().enumerate() {
            assert_eq!(*mode as usize, place, "{title}");
        }
    }
}
