//! Tells METIS graphs from edge lists, which look alike: a header `VERTICES EDGES [FMT]`, and for each vertex a line
//! with its neighbours, counted from 1. They are not read as edge lists, for each number would be another one.

/// Cause and cure, for the error of such a file.
pub(crate) const HINT: &str = "a METIS graph (`VERTICES EDGES [FMT]`, then a line for each vertex) is not read: \
     convert it to an edge list, DIMACS (.gr) or Matrix Market (.mtx)";

/// Whether all lines so far are those of a METIS graph.
pub(crate) struct Metis {
    vertices: u64,
    edges: u64,
    /// Words of a line before its neighbours.
    weights: usize,
    has_edge_weights: bool,
    lines: u64,
    neighbours: u64,
    /// Sum over the edges of a number from each lower end, less the same from each upper end: 0 where each edge is
    /// there from both.
    balance: u64,
}

impl Metis {
    /// Reads the words of a first line that may be a header.
    pub(crate) fn of_header(words: &[&str]) -> Option<Metis> {
        let (numbers, format) = match *words {
            [vertices, edges] => ([vertices, edges], "0"),
            [vertices, edges, format] => ([vertices, edges], format),
            _ => return None,
        };
        let is_format = (1..=3).contains(&format.len()) && format.bytes().all(|digit| matches!(digit, b'0' | b'1'));
        let [vertices, edges] = numbers.map(|number| number.parse().ok());
        let weights = format.bytes().rev().skip(1).filter(|digit| *digit == b'1').count();
        is_format.then_some(Metis {
            vertices: vertices?,
            edges: edges?,
            weights,
            has_edge_weights: format.ends_with('1'),
            lines: 0,
            neighbours: 0,
            balance: 0,
        })
    }

    /// Is this third word one that no weight of an edge list is written as?
    pub(crate) fn is_certain(words: &[&str]) -> bool {
        matches!(words, [_, _, format] if format.len() > 1 && format.starts_with('0'))
            && Self::of_header(words).is_some()
    }

    /// One more line, which may be empty. False if this is no such graph.
    pub(crate) fn take(&mut self, words: &[&str]) -> bool {
        self.lines += 1;
        let neighbours = words.get(self.weights..).unwrap_or_default();
        let step = 1 + usize::from(self.has_edge_weights);
        if self.lines > self.vertices || words.len() < self.weights || !neighbours.len().is_multiple_of(step) {
            return false;
        }
        for neighbour in neighbours.iter().step_by(step) {
            let own = self.lines;
            match neighbour.parse::<u64>() {
                Ok(other) if (1..=self.vertices).contains(&other) && other != own => {
                    self.neighbours += 1;
                    let edge = own.min(other).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ own.max(other);
                    let number =
                        edge.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29).wrapping_mul(0x2545_f491_4f6c_dd1d);
                    let signed = if own < other { number } else { number.wrapping_neg() };
                    self.balance = self.balance.wrapping_add(signed);
                }
                _ => return false,
            }
        }
        true
    }

    /// Was it all of one?
    pub(crate) fn is_whole(&self) -> bool {
        let is_whole = self.lines == self.vertices && Some(self.neighbours) == self.edges.checked_mul(2);
        is_whole && self.vertices > 0 && self.edges > 0 && self.balance == 0
    }
}
