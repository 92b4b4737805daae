//! The behavioural suite: guarantees to every program, however its machines are connected. Each behaviour is a function
//! that panics if it does not hold; all are run, unchanged, in one process and over every fabric (`tests/suite`).
//!
//! A behaviour knows no fabric and no number of machines: it asks the rack for places (`ground`). None sleeps to be in
//! time for an event; the watchdog of the harness finds one that waits for ever.

mod arrays;
mod calls;
mod closes;
mod context;
mod deadlocks;
mod durable;
mod exchange;
mod fibers;
mod files;
mod forms;
mod ground;
mod heaps;
mod latches;
mod lives;
pub mod losses;
mod names;
mod oracle;
mod order;
mod panics;
mod planted;
mod promises;
mod regions;
mod serialised;
mod sizes;
mod sync;

use std::io::Write;

/// A guarantee to every program.
#[derive(Clone, Copy)]
pub struct Behaviour {
    pub name: &'static str,
    run: fn(),
}

macro_rules! behaviours {
    ($($module:ident: $($name:ident),+;)*) => {
        &[$($(Behaviour { name: stringify!($name), run: $module::$name }),+),*]
    };
}

/// Variable with beginnings of names, as `heap_,region_`: those behaviours are left out.
pub const WITHOUT_VARIABLE: &str = "SUITE_WITHOUT";
/// Variable with names, as `wakes,sleeps`: all other behaviours are left out. The harness sets it.
pub const ONLY_VARIABLE: &str = "SUITE_ONLY";

impl Behaviour {
    /// Returns whether [`WITHOUT_VARIABLE`] names it, or [`ONLY_VARIABLE`] others.
    pub fn is_left_out(&self) -> bool {
        let without = std::env::var(WITHOUT_VARIABLE).unwrap_or_default();
        without.split(',').any(|start| !start.is_empty() && self.name.starts_with(start))
            || std::env::var(ONLY_VARIABLE).is_ok_and(|only| only.split(',').all(|name| name != self.name))
    }
}

/// Variable that, if set, has the behaviours of [`PLANTED`] run instead.
pub const PLANTED_VARIABLE: &str = "SUITE_PLANTED";

/// Behaviours for a trial of the harness: some of these do not hold; their names say how.
pub const PLANTED: &[Behaviour] = behaviours! {
    planted:
        holds_at_first,
        waits_for_ever,
        holds_after_a_hang,
        never_lets_its_worker_go,
        panics,
        holds_after_a_panic,
        ends_the_program,
        holds_at_last;
};

/// All behaviours.
pub const ALL: &[Behaviour] = behaviours! {
    calls:
        apply_gives_the_result,
        everyone_applies_to_everyone,
        no_increment_is_lost,
        properties_live_where_they_were_put,
        what_cannot_travel_is_made_there,
        results_of_every_kind,
        counters_tell_local_from_remote,
        shared_values_stay_on_their_machine;
    forms:
        apply_in_each_form,
        apply_with_in_each_form,
        launch_in_each_form,
        launch_with_in_each_form,
        launch_held_in_each_form,
        launch_held_with_in_each_form,
        in_process_in_each_form,
        in_process_is_refused_elsewhere;
    names:
        names_are_found_everywhere,
        names_of_other_machines_are_found_and_withdrawn,
        wrong_names_are_told;
    exchange:
        exchanged_values_arrive_once_at_the_place_of_their_key,
        exchanged_values_keep_their_order_and_size,
        senders_wait_while_an_inbox_is_full,
        wrong_exchanges_are_told,
        values_that_panic_leave_the_others_whole;
    order:
        apply_then_keeps_order,
        apply_comes_after_all_before_it,
        callbacks_keep_order_and_stay_on_their_thread,
        callbacks_delegate_on,
        wait_all_waits_for_every_callback,
        requests_of_every_size_keep_their_order,
        more_kinds_of_closures_than_a_batch_knows,
        back_pressure_bounds_memory,
        a_flood_starves_nobody,
        callbacks_that_go_on_for_ever_starve_nobody;
    serialised:
        strings_travel,
        collections_travel,
        serialised_requests_keep_their_order,
        ten_mebibytes_travel,
        what_is_too_large_is_refused_with_the_limit,
        what_does_not_serialise_is_an_error,
        arguments_of_every_size;
    sizes:
        captures_of_every_size,
        results_of_every_size,
        nothing_at_all,
        addresses_travel_as_the_numbers_they_are,
        over_aligned_captures_and_results;
    lives:
        a_property_ends_once_after_its_last_trust,
        a_property_can_be_used_from_elsewhere_at_once,
        a_property_ends_where_it_lived,
        trusts_travel_in_captures,
        trusts_travel_in_results,
        trusts_travel_inside_serialised_values,
        trusts_travel_in_properties,
        chains_of_trusts_end_together,
        trusts_are_dropped_in_any_order,
        trusts_are_dropped_inside_closures,
        requests_under_way_keep_their_property,
        captures_are_dropped_once;
    panics:
        a_panic_reaches_the_caller,
        poison_tells_the_first_panic_until_cleared,
        a_panic_in_a_batch_concerns_nobody_else,
        a_panic_for_which_nobody_waits_harms_nobody,
        callbacks_may_panic,
        launched_closures_may_panic;
    context:
        nothing_waits_inside_closures,
        nothing_waits_inside_callbacks,
        closures_delegate_without_waiting,
        closures_reach_their_own_property_afterwards;
    latches:
        launched_closures_wait_at_their_trustee,
        launched_closures_take_turns,
        launches_go_there_and_back,
        launches_carry_what_holds_pointers,
        launches_call_back,
        a_full_way_holds_up_no_latch,
        held_values_are_released;
    closes:
        a_property_is_closed_from_anywhere,
        a_latch_is_closed_when_its_value_is_back;
    deadlocks:
        crossing_launches_are_told,
        a_ring_of_launches_over_all_machines_is_told,
        a_launch_that_comes_round_by_other_machines_is_told,
        joins_in_a_circle_are_told,
        launches_in_one_order_are_no_deadlock;
    fibers:
        fibers_run_where_they_were_put,
        fibers_are_joined_from_anywhere,
        a_panic_of_a_fiber_reaches_who_joins_it,
        ten_thousand_fibers,
        sleepers_hold_nobody_up,
        fibers_outlive_their_handles,
        fibers_take_and_give_what_holds_pointers;
    promises:
        promises_are_kept_from_anywhere,
        promises_that_are_dropped_tell,
        promises_of_many_wait_in_one_property;
    sync:
        channels_deliver_everything_in_order,
        channels_close_when_one_side_is_gone,
        bounded_channels_hold_back,
        receivers_are_served_in_turn,
        channels_carry_trusts_and_channels,
        closures_and_callbacks_post,
        receivers_that_give_up_lose_nothing,
        select_finds_what_comes_first,
        select_among_many_receivers_loses_nothing,
        select_that_is_aborted_waits_for_nothing,
        barriers_hold_all_back,
        condition_variables_wake_who_waits,
        condition_variables_time_out_and_wake_all;
    files:
        files_are_read_on_their_machine,
        files_of_every_size_are_read,
        files_are_read_line_by_line_by_many,
        files_that_cannot_be_read_say_why,
        files_of_every_size_are_written,
        files_that_cannot_be_written_say_why,
        folders_are_listed;
    durable:
        a_durable_trust_serves_every_machine,
        a_durable_trust_is_opened_on_its_trustees_machine;
    arrays:
        array_elements_are_set_and_read_everywhere,
        array_owners_are_asked_without_a_message,
        array_combining_loses_nothing,
        array_updates_are_atomic,
        array_chunks_are_viewed_changed_and_combined,
        array_bulk_calls_do_what_single_calls_do,
        array_owners_get_what_holds_pointers,
        array_packets_under_way_are_bounded,
        array_update_then_waits_for_room,
        array_elements_of_every_size,
        array_of_nothing_and_of_little,
        array_snapshots_are_slices_everywhere,
        array_snapshots_do_not_change,
        array_snapshots_outlive_arrays,
        array_checkpoints_are_restored,
        array_checkpoints_on_disks_of_machines,
        array_checkpoints_have_whole_chunks,
        array_what_happened_before_is_seen,
        array_operators_alternate,
        array_elements_that_nobody_combines_keep_their_bits,
        array_writers_of_one_chunk_all_progress,
        array_endless_hits_hold_up_nobody,
        array_loops_of_any_call_hold_up_nobody,
        array_views_do_not_change,
        array_with_a_small_cache_drops_chunks,
        array_the_only_reader_writes_without_data,
        array_granted_chunks_are_copied_within_a_host,
        array_long_arrays_are_copied_as_a_whole,
        array_who_combines_reads_no_more,
        array_elements_are_written_in_place,
        array_writes_in_place_leave_views_alone,
        array_locks_exclude,
        array_locks_are_fair,
        array_locks_are_tried,
        array_locks_of_aborted_fibers_are_free,
        array_locks_say_what_is_wrong,
        array_locks_of_other_threads,
        array_misses_panic_where_nothing_may_wait,
        array_closures_find_their_chunk_in_use,
        array_a_panic_in_an_update_leaves_the_element,
        array_a_panic_in_an_operator_poisons,
        array_destructors_that_panic_while_it_is_poisoned,
        array_indices_out_of_range_are_named,
        array_memory_goes_with_the_last_handle,
        array_calls_of_other_threads_are_done_by_workers,
        array_beyond_all_memory_is_refused,
        array_random_calls_do_what_a_vec_does;
    oracle:
        random_programs_do_what_the_model_does;
    heaps:
        heap_bunches_go_by_one_read,
        heap_ids_of_other_bunches_find_nothing_else,
        heap_forgotten_views_do_no_harm,
        heap_scopes_lend_owners,
        heap_scopes_that_panic_wait_and_take_back,
        heap_scopes_that_are_aborted_wait,
        heap_scopes_tell_of_forgotten_handles,
        heap_scopes_take_back_from_anywhere,
        heap_scopes_lend_parts,
        heap_destructors_run_once_at_home,
        heap_long_chains_end,
        heap_destructors_that_panic_free_the_room,
        heap_slices_that_panic_leave_nothing,
        heap_forgotten_guards_do_no_harm,
        heap_owners_drop_anywhere,
        heap_random_programs_agree_with_plain_values,
        heap_objects_are_read_from_everywhere,
        heap_writers_have_the_object,
        heap_old_copies_are_not_found,
        heap_a_copy_is_fetched_once_a_machine,
        heap_prefetched_objects_are_there,
        heap_fibers_go_to_objects,
        heap_channels_carry_owners,
        heap_nothing_waits_in_closures,
        heap_plain_threads_use_what_is_mapped,
        heap_what_does_not_fit_is_refused,
        heap_unread_copies_go_where_room_is_short,
        heap_rooms_of_small_objects_become_those_of_large_ones,
        heap_shared_objects_end_after_their_last_owner,
        heap_mutexes_exclude,
        heap_mutexes_serve_in_turn,
        heap_mutexes_starve_no_waiter,
        heap_mutexes_are_poisoned,
        heap_atomics_count,
        heap_shared_objects_hold_mutexes,
        heap_raw_rooms_hold_bytes,
        heap_owners_come_out_of_mutexes_and_go_on,
        heap_owners_are_entrusted_elsewhere,
        heap_tasks_go_around,
        heap_tasks_that_panic_tell_it,
        heap_tasks_are_listed,
        heap_tasks_run_on_unjoined;
    regions:
        region_pages_go_where_they_are_touched,
        region_untouched_pages_are_zeros,
        region_homes_are_where_they_were_wanted,
        region_no_store_is_lost,
        region_writers_of_one_word_all_advance,
        region_system_calls_use_pages,
        region_prefetched_pages_are_there,
        region_threads_fault_at_the_same_time,
        region_faults_are_those_of_threads,
        region_litmus_store_buffering,
        region_litmus_message_passing,
        region_litmus_independent_reads,
        region_random_atomics_add_up,
        region_spans_are_divided_and_joined,
        region_what_cannot_be_is_refused,
        region_many_regions_are_apart;
};

/// Runs the behaviours whose names contain one of these words (all, if there are none), one after the other, and prints
/// the outcome of each on standard output; with `after`, only those behind it. False if one did not hold.
pub fn run(words: &[String], after: Option<&str>) -> bool {
    let all = if std::env::var_os(PLANTED_VARIABLE).is_some() { PLANTED } else { ALL };
    let from = after.map_or(0, |after| {
        1 + all.iter().position(|behaviour| behaviour.name == after).expect("`--after` names a behaviour")
    });
    let mut all_hold = true;
    let chosen = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    for behaviour in all[from..].iter().filter(|it| chosen(it.name) && !it.is_left_out()) {
        all_hold &= run_one(behaviour);
    }
    say(format_args!("end"));
    all_hold
}

/// Runs a behaviour and prints its outcome; returns whether it holds.
fn run_one(behaviour: &Behaviour) -> bool {
    say(format_args!("begin {}", behaviour.name));
    let outcome = trust::spawn(behaviour.run).join();
    match &outcome {
        Ok(()) => say(format_args!("ok {}", behaviour.name)),
        Err(panic) => {
            let why = gossamer::link::panic_text(&**panic).replace('\n', " / ");
            say(format_args!("failed {}: {why}", behaviour.name));
        }
    }
    outcome.is_ok()
}

fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "suite: {line}").and_then(|()| out.flush()).expect("somebody reads what the suite says");
}
