//! The loom models of counting and reclamation: threads that clone, move and drop trusts. Each client makes its
//! requests in one or two batches, so that some wait to be sent while others overtake them.

use std::sync::Arc;

use super::{Digit, Held, Member, Message, Next, Owner, Rule};
use crate::request::Pair;
use crate::slot::model::{explore, spawn};

/// A trustee, and a property of it with one trust.
fn owner(rule: Rule) -> (Owner, Held) {
    let trust = Held::first();
    let owner = Owner::new(rule, &trust);
    owner.property_table.adopt(trust.property);
    (owner, trust)
}

/// The original is dropped on a second thread while its clone's +1 has not been sent.
fn original_dropped_elsewhere(rule: Rule) {
    explore(move || {
        let (owner, trust) = owner(rule);
        let (a, b) = (owner.member(), owner.member());
        let thread = spawn(move || {
            let clone = a.clone_of(&trust);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                Next(None)
            });
            a.flush();
            a.apply(&clone);
            a.let_go(clone);
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

#[test]
fn loom_count_original_dropped_elsewhere() {
    original_dropped_elsewhere(Rule::Reclamation);
}

#[test]
#[should_panic(expected = "reclaimed while")]
fn loom_count_without_reclamation_a_living_trust_loses_its_property() {
    original_dropped_elsewhere(Rule::NoWait);
}

/// A request waits to be sent while the trust that it was made through is dropped on a second thread.
fn request_outlives_its_trust(rule: Rule) {
    explore(move || {
        let (owner, trust) = owner(rule);
        let (a, b) = (owner.member(), owner.member());
        let thread = spawn(move || {
            a.apply(&trust);
            a.flush();
            a.apply(&trust);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                Next(None)
            });
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

#[test]
fn loom_count_request_outlives_its_trust() {
    request_outlives_its_trust(Rule::Reclamation);
}

#[test]
#[should_panic(expected = "reclaimed while")]
fn loom_count_without_reclamation_a_request_loses_its_property() {
    request_outlives_its_trust(Rule::NoWait);
}

/// Three clients. While the trustee waits for the first one's +1, the second clones anew and the third drops: the count
/// is 0 again, though a trust is alive that step (1) knew nothing of.
#[test]
fn loom_count_changes_while_it_waits() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (a, b, c) = (owner.member(), owner.member(), owner.member());
        let thread = spawn(move || {
            let second = a.clone_of(&trust);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                let third = b.clone_of(&second);
                let other = spawn(move || {
                    c.let_go(second);
                    c.flush();
                    Next(None)
                });
                b.let_go(third);
                b.flush();
                Next(Some(other))
            });
            a.flush();
            Next(Some(other))
        });
        owner.run(2, thread);
    });
}

/// A trust travels through three clients, each of which clones it, passes the clone on and drops its own.
#[test]
fn loom_count_chain_of_clones() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (a, b, c) = (owner.member(), owner.member(), owner.member());
        let thread = spawn(move || {
            let second = a.clone_of(&trust);
            let other = spawn(move || {
                let third = b.clone_of(&second);
                let other = spawn(move || {
                    c.apply(&third);
                    c.let_go(third);
                    c.flush();
                    Next(None)
                });
                b.let_go(second);
                b.flush();
                Next(Some(other))
            });
            a.let_go(trust);
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

/// A trust comes back to the trustee in a closure and is dropped there, ahead of its clone's +1.
#[test]
fn loom_count_dropped_by_the_trustee_itself() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        let second = owner.clone_of(&trust);
        let thread = spawn(move || {
            let third = a.clone_of(&second);
            let other = spawn(move || {
                b.bring(second);
                b.flush();
                Next(None)
            });
            a.flush();
            a.let_go(third);
            a.flush();
            Next(Some(other))
        });
        owner.turn();
        owner.let_go(trust);
        owner.run(2, thread);
    });
}

/// A property that its owner has entrusted from elsewhere: its trust is dropped ahead of the request that tells
/// the trustee of it.
#[test]
fn loom_count_entrusted_from_another_thread() {
    explore(|| {
        let pairs = [Pair::new(), Pair::new()];
        let (a, b) = (Member::new(Arc::clone(&pairs[0])), Member::new(Arc::clone(&pairs[1])));
        let trust = a.entrust();
        let owner = Owner::new(Rule::Reclamation, &trust);
        pairs.into_iter().for_each(|pair| owner.accept(pair));
        let thread = spawn(move || {
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                Next(None)
            });
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

/// A client without a free slot clones, and drops the original: its counts go to the inbox, where they are added up.
/// The clone is dropped elsewhere, by a slot.
#[test]
fn loom_count_added_up_in_the_inbox() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (inbox, b) = (Arc::clone(&owner.inbox), owner.member());
        let thread = spawn(move || {
            let second = inbox.clone_of(&trust);
            let other = spawn(move || {
                b.let_go(second);
                b.flush();
                Next(None)
            });
            inbox.let_go(trust);
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

/// Same as `request_outlives_its_trust`, with a drop that overtakes the request by the inbox, on the same thread.
#[test]
fn loom_count_drop_overtakes_a_request() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (inbox, a) = (Arc::clone(&owner.inbox), owner.member());
        let thread = spawn(move || {
            a.apply(&trust);
            inbox.let_go(trust);
            a.flush();
            Next(None)
        });
        owner.run(3, thread);
    });
}

/// A client has no free slot, so a clone's +1 is queued, while the original is dropped on a second thread.
#[test]
fn loom_count_queued() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        let thread = spawn(move || {
            a.apply(&trust);
            a.flush();
            let clone = trust.again();
            a.enqueue(&trust, Digit::Clone);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                Next(None)
            });
            a.drain();
            a.let_go(clone);
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

/// Same as `original_dropped_elsewhere`; and the mark of the +1 gives way to one of a later batch, for another
/// property.
#[test]
fn loom_count_mark_overwritten() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        let thread = spawn(move || {
            let clone = a.clone_of(&trust);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                b.let_go(clone);
                b.flush();
                Next(None)
            });
            a.flush();
            a.apply_to_another();
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

/// A client that keeps a request to itself does not keep other properties from being reclaimed.
#[test]
fn loom_count_waits_for_nobody_else() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        a.apply_to_another();
        let thread = spawn(move || {
            b.let_go(trust);
            b.flush();
            Next(None)
        });
        owner.run(2, thread);
        drop(a);
    });
}

/// A client of which the trustee first hears by its inbox clones; a thread that has no slots drops.
fn newcomers(rule: Rule) {
    explore(move || {
        let (owner, trust) = owner(rule);
        let (inbox, inbox_too) = (Arc::clone(&owner.inbox), Arc::clone(&owner.inbox));
        let b = owner.member();
        let thread = spawn(move || {
            let pair = Pair::new();
            let a = Member::new(Arc::clone(&pair));
            inbox.send(Message::Client(pair));
            let second = a.clone_of(&trust);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                inbox_too.let_go(second);
                Next(None)
            });
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

#[test]
fn loom_count_newcomers() {
    newcomers(Rule::Reclamation);
}

#[test]
#[should_panic(expected = "reclaimed while")]
fn loom_count_with_messages_unread_a_newcomer_is_overlooked() {
    newcomers(Rule::InboxUnread);
}

/// A client that has been served leaves, and the trustee forgets it or stops waiting for it.
#[test]
fn loom_count_client_leaves() {
    explore(|| {
        let (owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        let thread = spawn(move || {
            let second = a.clone_of(&trust);
            a.apply(&second);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                b.let_go(second);
                b.flush();
                Next(None)
            });
            a.flush();
            a.try_leave();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}

/// A call of `together` comes to this trustee by way of another one, while the caller drops its trust. It has a trust
/// of its own, which is dropped when it has come back.
fn forwarded(has_trust: bool) {
    explore(move || {
        let (owner, trust) = owner(Rule::Reclamation);
        let (caller, forwarder, teller) = (owner.member(), owner.member(), owner.member());
        let thread = spawn(move || {
            let own = if has_trust {
                caller.clone_of(&trust)
            } else {
                Held { property: trust.property, tally: Arc::clone(&trust.tally) }
            };
            let forwards = spawn(move || {
                forwarder.apply(&own);
                forwarder.flush();
                if !has_trust {
                    return Next(None);
                }
                Next(Some(spawn(move || {
                    teller.let_go(own);
                    teller.flush();
                    Next(None)
                })))
            });
            caller.let_go(trust);
            caller.flush();
            Next(Some(forwards))
        });
        owner.run(2, thread);
    });
}

#[test]
fn loom_count_forwarded_request() {
    forwarded(true);
}

#[test]
#[should_panic(expected = "a request finds its property reclaimed")]
fn loom_count_without_a_trust_of_its_own_a_forwarded_request_loses_its_property() {
    forwarded(false);
}

/// A lost machine has cloned the trust and sent the clone on without its +1. Both trusts are used and dropped, so the
/// count comes to 0 while one is alive.
fn lost_count(is_told: bool) {
    explore(move || {
        let (mut owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        let sent_on = trust.uncounted();
        if is_told {
            owner.lose();
        }
        let thread = spawn(move || {
            let other = spawn(move || {
                b.apply(&sent_on);
                b.let_go(sent_on);
                b.flush();
                Next(None)
            });
            a.let_go(trust);
            a.flush();
            Next(Some(other))
        });
        owner.run(2, thread);
    });
}

#[test]
fn loom_count_lost_closes() {
    lost_count(true);
}

#[test]
#[should_panic(expected = "a request finds its property reclaimed")]
fn loom_count_without_closing_a_lost_count_frees_a_property_in_use() {
    lost_count(false);
}

/// Same, with a clone of the trust that nobody has counted: the count goes below 0 and comes back.
#[test]
fn loom_count_lost_and_cloned_again() {
    explore(|| {
        let (mut owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        let sent_on = trust.uncounted();
        owner.lose();
        let thread = spawn(move || {
            a.let_go(trust);
            a.flush();
            let other = spawn(move || {
                let again = b.clone_of(&sent_on);
                b.let_go(sent_on);
                b.flush();
                b.apply(&again);
                b.let_go(again);
                b.flush();
                Next(None)
            });
            Next(Some(other))
        });
        owner.run(2, thread);
    });
}

/// Without a lost count an old property keeps its value up to its last trust, as any other.
#[test]
fn loom_count_old_dropped_elsewhere() {
    explore(|| {
        let (mut owner, trust) = owner(Rule::Reclamation);
        let (a, b) = (owner.member(), owner.member());
        owner.lose();
        let thread = spawn(move || {
            let clone = a.clone_of(&trust);
            let other = spawn(move || {
                b.let_go(trust);
                b.flush();
                Next(None)
            });
            a.flush();
            a.apply(&clone);
            a.let_go(clone);
            a.flush();
            Next(Some(other))
        });
        owner.run(3, thread);
    });
}
