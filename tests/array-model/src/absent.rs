//! Stand-ins for the parts of the array that no model has, and the places of chunks at home.

/// Memory of parts, which no model counts.
pub(crate) mod held {
    pub(crate) struct Held;

    impl Held {
        pub(crate) fn new(_bytes: u64) -> Held {
            Held
        }
    }
}

/// Memory that a part needs: models have enough.
pub(crate) mod memory {
    use crate::settings::Settings;
    use crate::shape::Shape;

    pub(crate) fn needed(_shape: &Shape, _settings: &Settings, _place: usize) -> u64 {
        0
    }
}

/// Locks of elements.
pub(crate) mod lock {
    #[derive(Default)]
    pub(crate) struct Locks;

    impl Locks {
        pub(crate) fn drop_all(&self) {}
    }
}

/// Elements that several workers use in place.
pub(crate) mod word {
    #![allow(unsafe_code)]

    use crate::element::Element;
    use crate::rack::PlaceState;

    pub(crate) const fn is_word(bytes: usize) -> bool {
        matches!(bytes, 1 | 2 | 4 | 8)
    }

    pub(crate) unsafe fn load<T: Element>(at: *mut T) -> T {
        PlaceState::here().uses_in_place(at.addr());
        // SAFETY: the caller's promise; all of a model runs on one thread of the system.
        unsafe { at.read() }
    }

    pub(crate) unsafe fn store<T: Element>(at: *mut T, value: T) {
        let state = PlaceState::here();
        state.uses_in_place(at.addr());
        // SAFETY: as in `load`.
        unsafe { at.write(value) }
        state.has_stored();
    }
}

/// Start and end of arrays, here with their models.
pub(crate) mod make {
    pub(crate) struct Root;
}

/// All places of a model have parts, and none is lost.
pub(crate) mod members {
    use crate::rack::{Place, rack};

    #[derive(Debug, Default)]
    pub(crate) struct Members;

    impl Members {
        pub(crate) fn has(&self, _machine: u16) -> bool {
            true
        }

        pub(crate) fn lost(&self) -> Option<u16> {
            None
        }

        pub(crate) fn places(&self) -> impl Iterator<Item = Place> {
            rack().places()
        }
    }
}

/// Promises of a place to itself, as all of a model are.
pub(crate) mod promised {
    pub(crate) use crate::rack::promise as own_promise;
}

/// Memory that others see, at the same addresses everywhere.
pub(crate) mod room {
    use std::sync::Arc;

    use memmap2::MmapMut;

    use crate::Share;
    use crate::rack::PlaceState;

    pub(crate) struct Mapping(MmapMut);

    impl Mapping {
        pub(crate) fn start(&self) -> *mut u8 {
            self.0.as_ptr().cast_mut()
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }

    pub(crate) struct Room(usize);

    impl Room {
        pub(crate) fn take(bytes: usize) -> Option<(Room, Mapping)> {
            let state = PlaceState::here();
            if !state.world.copies {
                return None;
            }
            let memory = MmapMut::map_anon(bytes.max(1)).unwrap();
            let start = memory.as_ptr().expose_provenance();
            if state.place == 0 {
                state.world.home.set((start, bytes));
            }
            Some((Room(start), Mapping(memory)))
        }

        pub(crate) fn start(&self) -> usize {
            self.0
        }
    }

    pub(crate) fn of_machine(machine: u16) -> Option<Arc<Share>> {
        let state = PlaceState::here();
        (state.world.copies && !state.world.are_near && usize::from(machine) != state.place).then(|| Arc::new(Share))
    }
}
