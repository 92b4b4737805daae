//! Calls of the C library that a threaded program on several machines is refused, or that hold on one machine only.
//!
//! Here: the table, and its form in docs/region.md. Not here: the refusals themselves (`gossamer/region/ffi`), and the
//! search for the calls in a program (`gossamer-launch run --region auto --check`).
//!
//! Invariant: each refusal of the library is a row, since [`call`] is evaluated by the compiler.

use Effect::{Hint, OneMachine, Refused};

/// Effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It fails with `ENOTSUP`, a message says so once, and a program that ends with status 0 ends with 70.
    Refused,
    /// It succeeds without its effect, on which no output depends, and a message says so once.
    Hint(&'static str),
    /// It works, for the machine of its thread: with this restriction.
    OneMachine(&'static str),
}

/// A row: functions with one effect and one cure.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// Names of the functions.
    pub names: &'static [&'static str],
    /// Condition, as words after the name; empty: always.
    pub when: &'static str,
    /// Effect.
    pub effect: Effect,
    /// The cure, as words after "use".
    pub instead: &'static str,
}

const fn refused(names: &'static [&'static str], when: &'static str, instead: &'static str) -> Call {
    Call { names, when, effect: Refused, instead }
}

const LOOKED_AT: &str = "a variable that the thread looks at";
const BY_ITSELF: &str = "it in the thread itself";
const INTERPRETER: &str = "an interpreter in place of generated code, or one machine (--local 1)";
const OTHER_THREAD: &str = "of another thread";

/// All rows.
pub const CALLS: &[Call] = &[
    refused(&["fork", "_Fork", "forkpty", "daemon"], "", "posix_spawn, system or popen"),
    refused(&["pthread_cancel"], "", LOOKED_AT),
    refused(&["brk", "sbrk"], "", "malloc or mmap"),
    refused(&["shmat"], "", "mmap of anonymous memory"),
    refused(&["sem_open"], "", "sem_init"),
    refused(&["mmap", "mmap64"], "of a file with MAP_SHARED", "MAP_PRIVATE, or write and pwrite"),
    refused(&["mmap", "mmap64", "mprotect"], "with PROT_EXEC", INTERPRETER),
    refused(&["mremap"], "to an address", "mmap and memcpy"),
    refused(
        &["pthread_mutexattr_setrobust"],
        "with PTHREAD_MUTEX_ROBUST",
        "a mutex that is unlocked before its thread ends",
    ),
    refused(&["timer_create"], "with SIGEV_THREAD", "a thread that sleeps, or SIGEV_SIGNAL"),
    refused(&["pthread_kill", "pthread_sigqueue"], OTHER_THREAD, LOOKED_AT),
    refused(&["pthread_getattr_np"], OTHER_THREAD, BY_ITSELF),
    refused(&["pthread_getcpuclockid"], "of a thread of another machine", BY_ITSELF),
    refused(&["vfork"], "in a thread of another machine than the first", "posix_spawn, system or popen"),
    refused(
        &["setuid", "seteuid", "setreuid", "setresuid", "setgid", "setegid", "setregid", "setresgid", "setgroups"],
        "with --move asked",
        "--move never",
    ),
    Call {
        names: &["mlock", "mlock2", "mlockall"],
        when: "",
        effect: Hint("returns 0 and locks nothing, as pages travel"),
        instead: "memory without locks",
    },
    Call {
        names: &["pthread_setschedparam", "sched_setscheduler"],
        when: "with a real-time policy",
        effect: Hint(
            "returns 0 and keeps the policy, as real-time threads poll and keep those that bring pages from running",
        ),
        instead: "the usual policy",
    },
    Call {
        names: &["dlmopen"],
        when: "",
        effect: OneMachine("the library and its variables are one machine's"),
        instead: "a library that the program is linked with, or dlopen",
    },
];

/// Returns the row of a function under a condition. In a `const`, a function without a row does not compile.
///
/// # Panics
/// If there is no such row.
#[must_use]
pub const fn call(name: &str, when: &str) -> &'static Call {
    let mut row = 0;
    while row < CALLS.len() {
        let mut at = 0;
        while at < CALLS[row].names.len() {
            if is_same(CALLS[row].names[at], name) && is_same(CALLS[row].when, when) {
                return &CALLS[row];
            }
            at += 1;
        }
        row += 1;
    }
    panic!("this call has no row in region_calls::CALLS")
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

impl Call {
    /// Returns a message about a call of one of its functions.
    #[must_use]
    pub fn message(&self, name: &str) -> String {
        let when = if self.when.is_empty() { String::new() } else { format!(" {}", self.when) };
        let effect = match self.effect {
            Refused => "does not work in a program on several machines",
            Hint(effect) | OneMachine(effect) => effect,
        };
        format!("{name}{when} {effect}; use {} (docs/region.md)", self.instead)
    }

    /// Whether each call of its functions is refused.
    #[must_use]
    pub fn is_always_refused(&self) -> bool {
        self.effect == Refused && self.when.is_empty()
    }
}

/// Returns the table in Markdown.
#[must_use]
pub fn markdown() -> String {
    let row = |call: &Call| {
        let names: Vec<String> = call.names.iter().map(|name| format!("`{name}`")).collect();
        let when = if call.when.is_empty() { String::new() } else { format!(" {}", call.when) };
        let effect = match call.effect {
            Refused => "`ENOTSUP`, reported once".to_owned(),
            Hint(effect) => format!("{effect}; reported once"),
            OneMachine(effect) => effect.to_owned(),
        };
        format!("| {}{when} | {effect} | {} |\n", names.join(", "), call.instead)
    };
    let rows: String = CALLS.iter().map(row).collect();
    format!("| call | effect | use |\n|---|---|---|\n{rows}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_function_has_one_row_for_a_condition() {
        let all: Vec<(&str, &str)> =
            CALLS.iter().flat_map(|call| call.names.iter().map(|name| (*name, call.when))).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for (name, when) in all {
            assert!(call(name, when).names.contains(&name));
        }
    }

    #[test]
    fn messages_name_the_call_and_the_cure() {
        let message = call("mprotect", "with PROT_EXEC").message("mprotect");
        assert!(message.starts_with("mprotect with PROT_EXEC does not work"), "{message}");
        assert!(
            message.ends_with(
                "; use an interpreter in place of generated code, or one machine (--local 1) \
                                   (docs/region.md)"
            ),
            "{message}"
        );
        assert!(call("dlmopen", "").message("dlmopen").starts_with("dlmopen the library and its variables are one"));
    }

    #[test]
    #[should_panic(expected = "no row")]
    fn a_call_without_a_row_is_refused() {
        let _ = call("fork", "with PROT_EXEC");
    }

    #[test]
    fn a_row_of_the_table_has_three_cells() {
        let table = markdown();
        assert_eq!(table.lines().count(), CALLS.len() + 2);
        assert!(table.contains("| `shmat` | `ENOTSUP`, reported once | mmap of anonymous memory |\n"));
        assert!(table.contains("| `mremap` to an address |"));
    }
}
