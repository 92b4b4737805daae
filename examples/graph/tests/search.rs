//! The search over one or several shards finds exactly the distances of Dijkstra's algorithm; a right result is valid,
//! and each kind of wrong one is found.

mod team;

use graph::dijkstra::Dijkstra;
use graph::{Edge, Kronecker, NOBODY};
use proptest::prelude::*;
use team::Team;

fn check(vertices: u32, edges: &[Edge], root: u32, delta: Option<f64>) {
    let whole = Team::new(vertices, edges, 1, delta);
    let mut dijkstra = Dijkstra::new(&whole.0[0]);
    let relaxed = dijkstra.search(root);
    let expected = dijkstra.found(relaxed);
    for (shards, budget) in [(1, 1), (1, u64::MAX), (2, 3), (3, u64::MAX), (7, 100)] {
        let mut team = Team::new(vertices, edges, shards, delta);
        for _ in 0..2 {
            let found = team.search(root, budget);
            for vertex in 0..vertices {
                let (reached, expected) = (team.distance(vertex), dijkstra.distance(vertex));
                assert_eq!(
                    reached.to_bits(),
                    expected.to_bits(),
                    "{vertex} over {shards} shards: {reached}, not {expected}"
                );
            }
            assert_eq!((found.reached, found.ends), (expected.reached, expected.ends));
            assert_eq!(found.checksum, expected.checksum);
            let verdict = team.validate(root);
            assert!(verdict.is_valid(), "{verdict}");
        }
    }
}

/// Graphs of few vertices, with weights that make ties, zeros and long ways likely.
fn graphs() -> impl Strategy<Value = (u32, Vec<Edge>, u32)> {
    (1u32..40).prop_flat_map(|vertices| {
        let weight = prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..1.0, 0.0f32..100.0, Just(1e-30)];
        let edge = (0..vertices, 0..vertices, weight).prop_map(|(from, to, weight)| Edge { from, to, weight });
        (Just(vertices), prop::collection::vec(edge, 0..200), 0..vertices)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_graphs_agree_with_dijkstra(
        (vertices, edges, root) in graphs(),
        delta in prop::option::of(0.001f64..200.0),
    ) {
        check(vertices, &edges, root, delta);
    }
}

fn kronecker(scale: u32) -> (Kronecker, Vec<Edge>) {
    let graph = Kronecker { scale, edge_factor: 16, seed: 1 };
    (graph, graph.generate(0..graph.edges()).collect())
}

#[test]
fn generated_graphs_agree_with_dijkstra() {
    let (graph, edges) = kronecker(11);
    for root in [edges[0].from, edges[1].to] {
        check(graph.vertices(), &edges, root, None);
    }
}

#[test]
fn most_edges_inside_the_core_are_never_looked_at() {
    let (graph, edges) = kronecker(12);
    let found = Team::new(graph.vertices(), &edges, 2, None).search(edges[0].from, u64::MAX);
    assert!(found.reached > 2000 && found.ends > edges.len() as u64, "{found:?}");
    assert!(found.relaxed < found.ends * 2 / 3, "{found:?}");
    assert!(found.sent < 2 * found.reached, "{found:?}");
}

#[test]
fn a_long_path_is_walked() {
    let edges: Vec<Edge> = (0..5000).map(|from| Edge { from, to: from + 1, weight: 0.1 }).collect();
    check(5001, &edges, 2500, None);
}

#[test]
fn edges_without_weight_are_edges() {
    let edges: Vec<Edge> = (0..50).map(|from| Edge { from, to: (from + 1) % 50, weight: 0.0 }).collect();
    check(51, &edges, 7, None);
}

/// A square with a tail and a vertex apart: 0-1-2-3-0, 3-4, 5.
fn square() -> Team {
    let edge = |from, to, weight| Edge { from, to, weight };
    let edges = [edge(0, 1, 1.0), edge(1, 2, 1.0), edge(2, 3, 1.0), edge(3, 0, 1.5), edge(3, 4, 0.0)];
    let mut team = Team::new(6, &edges, 2, None);
    team.search(0, u64::MAX);
    team
}

/// Which rules are violated after some results were replaced.
fn violated(results: &[(u32, f64, u32)]) -> Vec<usize> {
    let mut team = square();
    for &(vertex, distance, parent) in results {
        let shard = team.0.iter_mut().find(|shard| shard.has(vertex)).expect("some shard has it");
        shard.set_result(vertex, distance, parent);
    }
    let verdict = team.validate(0);
    assert_eq!(verdict.is_valid(), verdict.to_string() == "valid");
    (0..5).filter(|&rule| verdict.violations[rule] > 0).map(|rule| rule + 1).collect()
}

#[test]
fn each_rule_is_checked() {
    assert_eq!(violated(&[]), [0; 0]);
    // 3 and 4 are each other's parents, over an edge without weight.
    assert_eq!(violated(&[(3, 1.5, 4)]), [1]);
    // Further than its parent and the edge: too far for the edge, too.
    assert_eq!(violated(&[(2, 2.25, 1)]), [2, 3]);
    // Nearer than its parent and the edge.
    assert_eq!(violated(&[(2, 1.75, 1)]), [2]);
    // By a way that is not the shortest: consistent, but the edge 3-0 is shorter.
    assert_eq!(violated(&[(3, 3.0, 2), (4, 3.0, 3)]), [3]);
    // A vertex of the component was not reached.
    assert_eq!(violated(&[(4, f64::INFINITY, NOBODY)]), [4]);
    // One that is not of the component was.
    assert_eq!(violated(&[(5, 1.0, NOBODY)]), [4]);
    // The parent is no neighbour; so no way leads there.
    assert_eq!(violated(&[(2, 2.0, 0)]), [1, 5]);
    // The root has a parent, or a distance.
    assert_eq!(violated(&[(0, 0.0, 1)]), [1]);
    assert!(violated(&[(0, 0.5, 0)]).contains(&2));
}
