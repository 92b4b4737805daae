//! A program from a seed: a few scenes, one after the other or several at a time, and an end.
//!
//! A scene is a C source with places to fill: `@K` its number, `@T` a number of threads, `@R` of rounds, `@S` a seed,
//! `@[2..9]` a number, `@{one|other}` a choice. Its function is `scene@K`; `before@K`, if it has one, is called before
//! any thread starts. A scene that prints by itself says `alone` in its first line, and runs with no other.

use std::fmt::Write;
use std::path::Path;

use fastrand::Rng;

/// Scenes of a program.
const COUNT: std::ops::Range<usize> = 2..7;
/// Scenes that run at a time.
const TOGETHER: usize = 3;

/// All scenes, with their names.
pub struct Scenes {
    prelude: String,
    all: Vec<(String, String)>,
}

/// Scenes that programs are made of.
pub enum Wanted {
    Without(Vec<&'static str>),
    Only(&'static str),
}

impl Scenes {
    pub fn read(folder: &Path) -> Scenes {
        let files = std::fs::read_dir(folder).expect("the folder of the scenes").filter_map(Result::ok);
        let read = |file: std::fs::DirEntry| {
            let name = file.file_name().into_string().expect("a name in ASCII");
            (name.trim_end_matches(".c").to_owned(), std::fs::read_to_string(file.path()).expect("a scene"))
        };
        let mut all: Vec<(String, String)> = files.map(read).collect();
        all.sort_unstable();
        let prelude = all.iter().position(|(name, _)| name == "prelude").expect("prelude.c");
        let (_, prelude) = all.remove(prelude);
        Scenes { prelude, all }
    }

    /// Returns the program of a seed.
    pub fn program(&self, seed: u64, wanted: &Wanted) -> String {
        let mut rng = Rng::with_seed(seed);
        let pool: Vec<&(String, String)> = match wanted {
            Wanted::Without(without) => self.all.iter().filter(|(name, _)| !without.contains(&&**name)).collect(),
            Wanted::Only(only) => self.all.iter().filter(|(name, _)| name == only).collect(),
        };
        assert!(!pool.is_empty(), "there is no such scene");
        let count = if pool.len() == 1 { 1 } else { rng.usize(COUNT) };
        let chosen: Vec<&(String, String)> = (0..count).map(|_| pool[rng.usize(..pool.len())]).collect();
        let names: Vec<&str> = chosen.iter().map(|(name, _)| &**name).collect();
        let mut text = format!("/* seed {seed}: {} */\n{}", names.join(", "), self.prelude);
        for (number, (_, scene)) in chosen.iter().enumerate() {
            text += &filled(scene, number, &mut rng);
            let _ = writeln!(
                text,
                "static void *thread{number}(void *unused) {{ (void)unused; scene{number}(); return NULL; }}"
            );
        }
        text + &main(&chosen, &mut rng)
    }
}

/// Fills the places of a scene.
fn filled(scene: &str, number: usize, rng: &mut Rng) -> String {
    let chosen = replaced(scene, "@{", "}", &mut |inside| {
        let choices: Vec<&str> = inside.split('|').collect();
        choices[rng.usize(..choices.len())].to_owned()
    });
    let numbered = replaced(&chosen, "@[", "]", &mut |inside| {
        let (from, to) = inside.split_once("..").expect("a range");
        let [from, to] = [from, to].map(|text| text.parse::<u32>().expect("a number"));
        rng.u32(from..=to).to_string()
    });
    let (threads, rounds) = (rng.u32(2..=6), rng.u32(3..=30));
    let all = [("@K", number.to_string()), ("@T", threads.to_string()), ("@R", rounds.to_string())];
    let all = all.into_iter().chain([("@S", format!("{}u", rng.u32(..)))]);
    all.fold(numbered, |text, (place, value)| text.replace(place, &value))
}

/// Replaces what stands between two marks.
fn replaced(text: &str, open: &str, close: &str, with: &mut dyn FnMut(&str) -> String) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(open) {
        let (inside, left) = after.split_once(close).expect("a mark is closed");
        done += before;
        done += &with(inside);
        rest = left;
    }
    done + rest
}

/// A thread that ends the program.
const LAST: &str = "    pthread_t last;\n    pthread_create(&last, NULL, end, NULL);\n";

/// The main function: groups of scenes, their texts in order, and an end.
fn main(chosen: &[&(String, String)], rng: &mut Rng) -> String {
    let is_alone = |at: usize| chosen[at].1.lines().next().is_some_and(|line| line.contains("alone:"));
    let handlers = rng.usize(..3);
    let mut text = String::new();
    for handler in 0..handlers {
        let _ = writeln!(text, "static void handler{handler}(void) {{ printf(\"handler {handler}\\n\"); }}");
    }
    let status = rng.u8(..100);
    let ends = [
        format!("    return {status};\n"),
        format!("    exit({status});\n"),
        format!("    fflush(stdout);\n    _exit({status});\n"),
        format!("{LAST}    pthread_join(last, NULL);\n    return 1;\n"),
        format!("{LAST}    pthread_exit(NULL);\n"),
    ];
    let _ = writeln!(
        text,
        "__attribute__((unused)) static void *end(void *unused) {{ (void)unused; exit({status}); }}\n\n\
         int main(void) {{"
    );
    for (number, (_, scene)) in chosen.iter().enumerate() {
        if scene.contains("static void before@K(") {
            let _ = writeln!(text, "    before{number}();");
        }
    }
    for handler in 0..handlers {
        let _ = writeln!(text, "    atexit(handler{handler});");
    }
    let mut from = 0;
    while from < chosen.len() {
        let mut to = from + 1;
        while to < chosen.len() && to - from < TOGETHER && !is_alone(from) && !is_alone(to) && rng.bool() {
            to += 1;
        }
        if to - from == 1 {
            let _ = writeln!(text, "    scene{from}();");
        } else {
            let _ = writeln!(text, "    pthread_t group{from}[{}];", to - from);
            for at in from..to {
                let create = format!("pthread_create(&group{from}[{}], NULL, thread{at}, NULL)", at - from);
                let _ = writeln!(text, "    MUST({create} == 0);");
            }
            for at in from..to {
                let _ = writeln!(text, "    MUST(pthread_join(group{from}[{}], NULL) == 0);", at - from);
            }
        }
        for at in from..to {
            let _ = writeln!(text, "    printf(\"{at}: %s\", text[{at}]);");
        }
        from = to;
    }
    text + &ends[rng.usize(..ends.len())] + "}\n"
}
