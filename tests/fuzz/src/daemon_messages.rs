//! Messages between launchers, daemons and parts: any bytes are a message or refused, and a message that was read is
//! written again in the same way.
#![no_main]

use gossamer_daemon::wire::{FromPart, Hello, Reply, Request, Setup, ToPart, Wire};

fn understand<M: Wire + PartialEq + std::fmt::Debug>(input: &[u8]) {
    if let Ok(message) = M::from_bytes(input) {
        assert_eq!(M::from_bytes(&message.to_bytes()).as_ref(), Ok(&message));
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(hello) = Hello::unpack(input) {
        assert_eq!(Hello::unpack(&hello.pack()), Ok(hello));
    }
    understand::<Hello>(input);
    understand::<Request>(input);
    understand::<Reply>(input);
    understand::<ToPart>(input);
    understand::<FromPart>(input);
    understand::<Setup>(input);
});
