//! Shared implementation of `PCell` and `PRefCell`: a value in an `UnsafeCell`, and nothing else.

/// Implements `take` and the accessors of an unshared cell, and `Persist`, as that of the value.
macro_rules! cell {
    ($name:ident, $(#[$panics:meta])*) => {
        impl<'p, T: Persist> $name<'p, T> {
            /// Takes the value, and leaves the default.
            $(#[$panics])*
            pub fn take(&self, tx: &Tx<'p>) -> T
            where
                T: Default,
            {
                self.replace(T::default(), tx)
            }

            /// Returns the value, of a cell that is not shared.
            pub fn get_mut(&mut self) -> &mut T {
                self.value.get_mut()
            }

            /// Returns the value.
            pub fn into_inner(self) -> T {
                self.value.into_inner()
            }
        }

        // SAFETY: transparent over `T`.
        unsafe impl<'p, T: Persist> Persist for $name<'p, T> {
            type At<'q> = $name<'q, T::At<'q>>;
            const IS_PLAIN: bool = T::IS_PLAIN;
            const DROP_WRITES: bool = T::DROP_WRITES;

            fn describe(types: &mut Types) -> (String, Kind) {
                let of = types.add::<T>();
                (stringify!($name).into(), Kind::Of(vec![of]))
            }

            fn check(at: u64, walk: &mut Walk<'_>) -> Result<(), Damage> {
                T::check(at, walk)
            }
        }
    };
}
