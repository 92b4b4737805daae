//! From a call to what its caller gets.

use trust::{Trust, promise};

use super::Durable;
use crate::error::{Error, Result};
use crate::persist::Persist;
use crate::property::{Answer, Outcome, Service, panicked};
use crate::service::client::{self, Call};
use crate::service::core::NEVER;

/// What `trust` gives for a request.
pub(super) type Answered<V> = std::result::Result<Answer<V>, trust::Error>;

impl<T: Persist + 'static> Durable<T> {
    /// Before a call whose answer is [finished](Self::finish).
    pub(super) fn begin(&self) -> Call {
        Call::begin(self.number, |client, ear| {
            self.trust.apply_then(move |service| service.core().borrow_mut().register_client(client, ear), |()| ());
        })
    }

    /// Before a call whose answer is [held](hold): waits for room, if it may wait, and has the pool kept.
    pub(super) fn begin_posted(&self) -> Call {
        let call = self.begin();
        if call.is_full() && trust::may_wait() {
            let _ = call.room().wait();
        }
        call.keep(|| self.trust.clone());
        call
    }

    /// Waits for the group, and says what came.
    pub(super) fn finish<V>(&self, call: Call, answer: Answered<V>) -> Result<V> {
        let Answer { pool, mark, outcome } = answer.map_err(|error| call_error(self.number, error))?;
        is_of(pool, self.number)?;
        if mark > 0 {
            call.wait(mark)?;
        }
        match outcome {
            Outcome::Panicked(ticket) => Err(panicked::<T>(text(&self.trust, ticket))),
            known => known.known::<T>(pool, None),
        }
    }
}

/// Has `then` called with what came, when its group is durable.
pub(super) fn hold<T: 'static, V: 'static>(
    call: Call,
    number: u64,
    answer: Answered<V>,
    then: impl FnOnce(Result<V>) + 'static,
) {
    let told = match answer {
        Err(trust::Error::Gone { .. }) => {
            // In the order of calls: behind what waits, which is told as well.
            call.hold(NEVER, move |_| then(Err(Error::Gone)));
            return client::is_gone(number);
        }
        other => other.map_err(|error| call_error(number, error)),
    };
    match told.and_then(|answer| is_of(answer.pool, number).map(|()| answer)) {
        Ok(Answer { pool, mark, outcome }) => call.hold(mark, move |verdict| {
            then(verdict.map_err(Error::from).and_then(|()| outcome.known::<T>(pool, None)));
        }),
        Err(error) => call.hold(0, move |_| then(Err(error))),
    }
}

/// The groups of one pool say nothing of another's: a handle whose number was changed on its way is told nothing.
fn is_of(pool: u64, number: u64) -> Result<()> {
    if pool == number {
        return Ok(());
    }
    Err(Error::Call { cause: "the handle was changed on its way: it has the number of another pool".into() })
}

/// The text of a panic, by its ticket.
fn text<T: Persist + 'static>(trust: &Trust<Service<T>>, ticket: u64) -> Option<String> {
    let (keeps, text) = promise::<Option<String>>();
    trust.try_apply(move |service| keeps.keep_with(service.core().borrow().take_text(ticket))).ok()?;
    text.wait().ok().flatten()
}

/// What `trust` says of a request that did not run.
pub(super) fn call_error(number: u64, error: trust::Error) -> Error {
    match error {
        trust::Error::Gone { .. } => {
            client::is_gone(number);
            Error::Gone
        }
        other => Error::Call { cause: other.to_string() },
    }
}
