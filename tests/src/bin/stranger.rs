//! Another program than `test-roles`: the two must not become machines of one program.

fn main() {
    gossamer::main(|| println!("the stranger runs"), 2);
}
