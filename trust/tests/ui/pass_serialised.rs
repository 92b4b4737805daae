//! What holds pointers travels serialised; callbacks may own anything that is 'static.
use std::collections::HashMap;
use std::rc::Rc;

pub fn main() {
    let table = trust::local_trustee().entrust(HashMap::<String, Vec<u8>>::new());
    table.apply_with(|t, (k, v): (String, Vec<u8>)| t.insert(k, v), ("k".to_owned(), vec![1]));
    let own: Rc<str> = "own".into();
    table.call().with("k".to_owned()).apply(|t, k: String| t.get(&k).cloned()).then(move |result| {
        let v = result.unwrap();
        assert_eq!((v, &*own), (Some(vec![1]), "own"));
    });
    let boxed: Box<dyn FnOnce(usize)> = Box::new(|len| assert_eq!(len, 1));
    table.apply_then(|t| t.len(), boxed);
}
