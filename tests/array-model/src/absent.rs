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

/// Start and end of arrays, here with their models.
pub(crate) mod make {
    pub(crate) struct Root;
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
            state.home.set((start, bytes));
            Some((Room(start), Mapping(memory)))
        }

        pub(crate) fn start(&self) -> usize {
            self.0
        }
    }

    pub(crate) fn of_machine(machine: u16) -> Option<Arc<Share>> {
        let state = PlaceState::here();
        (state.world.copies && usize::from(machine) != state.place).then(|| Arc::new(Share))
    }
}
