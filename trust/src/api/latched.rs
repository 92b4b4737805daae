//! `launch` and `launch_then`: calls on a latched property that panic where there is no result. Their closures run in
//! fibers at the trustee and may wait there. Forms that give errors: `call.rs`.
//!
//! Not here: the latch (`latch.rs`), the trustee's side (`launch.rs`).

use crate::api::delegated::{Delegated, Launched, result_or_report, resumed};
use crate::api::trust::Trust;
use crate::noref::NoRef;
use crate::request::ANYWHERE;
use crate::tasks::held::Held;
use crate::tasks::latch::Latch;

/// Property that closures can be [launched](Trust::launch) on: a [`Latch`], no other type.
///
/// A bound in place of methods of `Trust<Latch<T>>`: the compiler then says which cure there is for a property without
/// a latch.
#[diagnostic::on_unimplemented(
    message = "no closure can be launched on a property of type `{Self}`: it has no latch",
    label = "not a `Latch`",
    note = "entrust `trust::Latch::new(value)`; or `apply` the closure, which then may not wait"
)]
pub trait Latched: Sized + 'static {
    /// The value that the latch protects.
    type Value: 'static;

    /// Returns the handle as that of a latch, which it is.
    fn latch(trust: &Trust<Self>) -> &Trust<Latch<Self::Value>>;
}

impl<T: 'static> Latched for Latch<T> {
    type Value = T;

    #[inline]
    fn latch(trust: &Trust<Self>) -> &Trust<Latch<T>> {
        trust
    }
}

impl<L: 'static> Trust<L> {
    /// Applies `f` to the latched value in a fiber at the trustee: `f` may wait, and delegate in turn. No other
    /// launched closure has the value meanwhile; they get it in the order in which they came.
    ///
    /// # Panics
    /// Same as [`apply`](Trust::apply).
    ///
    /// ```
    /// use trust::Latch;
    /// let pool = trust::Threadpool::new(2);
    /// let log = pool.entrust(Vec::new());
    /// let account = pool.entrust(Latch::new(10));
    /// let left = account.launch(move |balance| {
    ///     *balance -= 3;
    ///     let spent = *balance;
    ///     log.apply(move |log| log.push(spent));      // waits, here at the trustee
    ///     *balance
    /// });
    /// assert_eq!(left, 7);
    /// ```
    ///
    /// Source: thesis 2.4.3.
    #[track_caller]
    pub fn launch<U, F>(&self, f: F) -> U
    where
        L: Latched,
        F: FnOnce(&mut L::Value) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        Launched::<_, ANYWHERE>(move |held: &mut Held<'_, L::Value>| f(held)).wait(
            L::latch(self),
            "launch",
            resumed::<L::Value, U>,
        )
    }

    /// Same as [`launch`](Self::launch), without waiting; `then` is called with the result as by
    /// [`apply_then`](Trust::apply_then).
    ///
    /// ```
    /// let pool = trust::Threadpool::new(1);
    /// let number = pool.entrust(trust::Latch::new(6));
    /// number.launch_then(|n| { trust::yield_now(); *n * 7 }, |product| assert_eq!(product, 42));
    /// trust::wait_all();
    /// ```
    pub fn launch_then<U, F, H>(&self, f: F, then: H)
    where
        L: Latched,
        F: FnOnce(&mut L::Value) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(U) + 'static,
    {
        Launched::<_, ANYWHERE>(move |held: &mut Held<'_, L::Value>| f(held))
            .then(L::latch(self), move |outcome| result_or_report::<L::Value, U>("launch_then", outcome, then));
    }
}
