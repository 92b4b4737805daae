//! `VWeak`: a name for a shared value, for use outside of its pool.

use std::fmt;
use std::marker::PhantomData;

use trust::Trust;

use super::prc::Prc;
use crate::persist::Persist;
use crate::tx::Tx;

/// Name of a shared value of a pool, for use outside of it. Made by [`Prc::demote`]; it may be kept anywhere and sent
/// to any thread.
///
/// It is two numbers, not an address, and keeps nothing alive. Once the value is gone, or the pool was closed (even if
/// it is open again), it names nothing.
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("vweak-{}", std::process::id()));
/// use trust_durable::{Durable, Persist, Prc};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Root<'p> {
///     shared: Option<Prc<'p, u64>>,
/// }
///
/// let pool = trust::Threadpool::new(1);
/// let root = Durable::<Root>::open(pool.trustees()[0], &folder, |tx| Root { shared: Some(Prc::new(7, tx)) })?;
/// let name = root.apply(|root, tx| root.shared.as_ref().unwrap().demote(tx));
/// assert_eq!(root.apply(move |_, tx| name.promote(tx).map(|shared| *shared)), Some(7));
/// root.apply(|root, _| root.shared = None);
/// assert_eq!(root.apply(move |_, tx| name.promote(tx).map(|shared| *shared)), None);
/// # root.close()?;
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), trust_durable::Error>(())
/// ```
pub struct VWeak<T> {
    pool: u64,
    id: u64,
    value: PhantomData<Trust<T>>,
}

impl<T> VWeak<T> {
    pub(crate) fn of(tx: &Tx<'_>, at: u64) -> Self {
        let memory = tx.memory();
        VWeak { pool: memory.number(), id: memory.with_weak_ids(|weak_ids| weak_ids.of(at)), value: PhantomData }
    }
}

impl<T: Persist + 'static> VWeak<T> {
    /// Returns the value, if it is still alive and `tx` is of its pool.
    pub fn promote<'p>(&self, tx: &Tx<'p>) -> Option<Prc<'p, T::At<'p>>> {
        let memory = tx.memory();
        if memory.number() != self.pool {
            return None;
        }
        let at = memory.with_weak_ids(|weak_ids| weak_ids.find(self.id))?;
        Prc::at(at, tx)
    }
}

impl<T> Clone for VWeak<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for VWeak<T> {}

impl<T> fmt::Debug for VWeak<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VWeak({} of pool {:x})", self.id, self.pool)
    }
}
