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

impl<T: 'static> Trust<Latch<T>> {
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
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
    {
        Launched::<_, ANYWHERE>(move |held: &mut Held<'_, T>| f(held)).wait(self, "launch", resumed::<T, U>)
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
        F: FnOnce(&mut T) -> U + NoRef + Send + 'static,
        U: NoRef + Send + 'static,
        H: FnOnce(U) + 'static,
    {
        Launched::<_, ANYWHERE>(move |held: &mut Held<'_, T>| f(held))
            .then(self, move |outcome| result_or_report::<T, U>("launch_then", outcome, then));
    }
}
