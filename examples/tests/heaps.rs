//! The programs on the heap as a user runs them: over one process and several, by `shm` and `tcp`, they find the
//! results of their twins in plain Rust, and say so of themselves.

use std::fs;
use std::path::Path;

use programs::{RACKS, report, run};

mod programs;

const HEAP_KV: &str = env!("CARGO_BIN_EXE_heap-kv");
const GEMM: &str = env!("CARGO_BIN_EXE_gemm");
const SOCIAL: &str = env!("CARGO_BIN_EXE_social");
const DATAFRAME: &str = env!("CARGO_BIN_EXE_dataframe");

#[test]
fn the_store_has_what_was_put() {
    // A bucket for three keys; then few buckets, so that they overflow and are waited for.
    let loads: [&[&str]; 2] = [&[], &["--gets", "0.5", "--zipf", "0", "--buckets", "5", "--value-bytes", "1000"]];
    for load in loads {
        let load = [&["--keys", "200", "--operations", "3000", "--fibers", "3"], load].concat();
        for rack in RACKS {
            let found = report(HEAP_KV, &[&load[..], rack].concat());
            assert_eq!((&found["keys"], &found["unit"]), (&200.into(), &"operations".into()));
            assert!(found["puts"].as_u64() > Some(200) && found["count"].as_u64() >= Some(3000), "{found}");
        }
    }
}

#[test]
fn products_are_the_twins() {
    // Tiles for all places; then fewer than places, with zeros behind the edges.
    for (shape, tiles) in [
        (["--size", "100", "--tile", "16"], 49),
        (["--size", "9", "--tile", "8"], 4),
        (["--size", "1", "--tile", "8"], 1),
    ] {
        let mut checksum = None;
        for rack in RACKS {
            let found = report(GEMM, &[&shape[..], rack].concat());
            assert!(found["count"].as_u64() > Some(1), "{found}");
            assert_eq!(
                *checksum.get_or_insert(found["checksum"].clone()),
                found["checksum"],
                "{tiles} tiles, {rack:?}"
            );
        }
    }
}

/// A BLAS of one function, compiled with this option.
fn blas(folder: &Path, name: &str, option: &str) -> String {
    const SOURCE: &str = "void cblas_dgemm(int order, int a, int b, int m, int n, int k, double alpha, const double \
                          *left, int lda, const double *right, int ldb, double beta, double *sum, int ldc) { \
                            if (order != 101 || a != 111 || b != 111) return; \
                            for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) { \
                              double terms = WRONG; \
                              for (int p = 0; p < k; p++) terms += left[i * lda + p] * right[p * ldb + j]; \
                              sum[i * ldc + j] = alpha * terms + beta * sum[i * ldc + j]; } }";
    let (source, library) = (folder.join("blas.c"), folder.join(name).display().to_string());
    fs::write(&source, SOURCE).unwrap();
    let built = run("cc", &["-shared", "-fPIC", option, "-o", &library, source.to_str().unwrap()]);
    assert_eq!(built.status, 0, "{}", built.stderr);
    library
}

#[test]
fn products_by_a_library_are_the_twins_own() {
    let folder = tempfile::tempdir().unwrap();
    let (good, wrong) = (blas(folder.path(), "good.so", "-DWRONG=0"), blas(folder.path(), "wrong.so", "-DWRONG=1"));
    let product = ["--size", "40", "--tile", "16"];
    for rack in RACKS {
        let own = report(GEMM, &[&product[..], rack].concat());
        let found = report(GEMM, &[&product[..], &["--blas", &good], rack].concat());
        assert_eq!(found["checksum"], own["checksum"], "{rack:?}");
    }
    let fails = |library: &str| {
        let ran = run(GEMM, &[&product[..], &["--blas", library, "--verify", "--threads", "2"]].concat());
        assert_eq!(ran.status, 1, "{library}: {}", ran.stderr);
        ran.stdout + &ran.stderr
    };
    assert!(fails(&wrong).contains("ANOTHER answer"));
    assert!(fails("/no/such.so").contains("--blas /no/such.so: give a BLAS that is installed"));
    assert!(fails("libc.so.6").contains("has no `cblas_dgemm`"));
}

#[test]
fn tables_are_filtered_grouped_and_joined() {
    // Chunks for all places; one; none.
    for rows in ["5000", "80", "0"] {
        let table = ["--rows", rows, "--keys", "300", "--labels", "7", "--chunk", "100"];
        let mut checksum = None;
        for rack in RACKS {
            let found = report(DATAFRAME, &[&table[..], rack].concat());
            let [rows, kept, joined] = ["count", "kept", "joined"].map(|what| found[what].as_u64().unwrap());
            assert!(rows == 0 || joined < kept && kept < rows && kept > rows / 2, "{found}");
            assert_eq!(*checksum.get_or_insert(found["checksum"].clone()), found["checksum"], "{rack:?}");
        }
    }
}

#[test]
fn tables_come_from_csv() {
    let folder = tempfile::tempdir().unwrap();
    let [orders, customers] = ["orders.csv", "customers.csv"].map(|name| folder.path().join(name));
    let rows = (0..1000).map(|row| format!("{row},\"no, {}\",{}\n", row % 10, row % 7));
    fs::write(&orders, std::iter::once("id,customer,paid\n".to_owned()).chain(rows).collect::<String>()).unwrap();
    fs::write(&customers, "land,customer\nNorway,\"no, 1\"\nNorway,\"no, 2\"\nItaly,\"no, 3\"\nPeru,nobody\n").unwrap();
    let files = [
        "--csv",
        orders.to_str().unwrap(),
        "--with",
        customers.to_str().unwrap(),
        "--key",
        "customer",
        "--label",
        "land",
    ];
    let query = [&files[..], &["--value", "paid", "--at-least", "3", "--chunk", "64"]].concat();
    let of = |customers: &[u64]| {
        let paid = (0..1000).filter(|row| customers.contains(&(row % 10))).map(|row| row % 7).filter(|paid| *paid >= 3);
        let paid: Vec<u64> = paid.collect();
        (paid.len(), paid.iter().sum::<u64>() as f64)
    };
    for rack in RACKS {
        let found = report(DATAFRAME, &[&query[..], rack].concat());
        assert_eq!((&found["keys"], &found["labels"], &found["count"]), (&10.into(), &2.into(), &1000.into()));
        for (at, name, (rows, sum)) in [(0, "Norway", of(&[1, 2])), (1, "Italy", of(&[3]))] {
            assert_eq!(found["top"][at], serde_json::json!({"name": name, "rows": rows, "sum": sum}), "{rack:?}");
        }
        let ran = run(DATAFRAME, &[&files[..], rack].concat());
        let told = format!(
            "dataframe: {} has no column \"value\"; its first line has [\"id\", \"customer\", \"paid\"]\n",
            orders.display()
        );
        assert_eq!((ran.status, ran.stderr, ran.stdout), (1, told, String::new()), "{rack:?}");
    }
}

#[test]
fn timelines_have_what_was_posted() {
    for (requests, posts) in [("1300", "30"), ("5", "100"), ("0", "10")] {
        let load = ["--users", "40", "--requests", requests, "--posts", posts, "--connections", "3"];
        let mut checksum = None;
        for rack in RACKS {
            let found = report(SOCIAL, &[&load[..], rack].concat());
            let [posted, read] = ["posted", "read"].map(|what| found[what].as_u64().unwrap());
            assert!(requests != "1300" || (300..500).contains(&posted) && read > 2 * posted, "{found}");
            assert!(requests != "5" || (posted, read) == (5, 0), "{found}");
            assert_eq!(*checksum.get_or_insert(found["checksum"].clone()), found["checksum"], "{rack:?}");
        }
    }
}

#[test]
fn the_text_has_the_twin_beside() {
    let said = run(HEAP_KV, &["--keys", "100", "--operations", "1000", "--threads", "2", "--verify"]).stdout;
    assert!(said.starts_with("100 keys in 34 buckets, zipf 0.99, values of 104 bytes, 90% gets"), "{said}");
    assert!(said.contains("\n1 process with 2 workers in all\n") && said.contains(", the same answer\n"), "{said}");
    assert!(said.ends_with(" times the twin's speed\n"), "{said}");
}

#[test]
fn a_heap_that_is_full_says_what_to_do() {
    let programs: [&[&str]; 3] =
        [&[DATAFRAME], &[HEAP_KV, "--keys", "20000", "--value-bytes", "1000"], &[GEMM, "--size", "1024"]];
    for program in programs {
        for rack in [&["--threads", "2"][..], &["--local", "2", "--threads", "2", "--fabric", "tcp"]] {
            let ran = run("env", &[&["GOSSAMER_HEAP=4M"], program, rack].concat());
            assert_eq!((ran.status, ran.stdout.as_str()), (1, ""), "{program:?} {rack:?} {}", ran.stderr);
            let told = ran.stderr.lines().last().unwrap();
            assert!(told.contains("has no room for") && told.contains("`GOSSAMER_HEAP`"), "{}", ran.stderr);
        }
    }
}
