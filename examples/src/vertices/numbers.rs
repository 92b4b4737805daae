//! Numbers of pages: at each place those with most links from them come first.

use gossamer_array::{Add, Array};
use graph::Vertex;

use super::links::{Links, Places, by_degree};

/// Numbers the pages of links that are not sorted yet. Returns the page of each number.
///
/// # Errors
/// No memory for arrays; a worker that did not do its part.
pub(super) fn by_links(team: &Places, pages: usize) -> anyhow::Result<Array<Vertex>> {
    let (degrees, numbers, all) = (Array::new(pages, 0u32)?, Array::new(pages, 0)?, Array::new(pages, 0)?);
    let counted = degrees.clone();
    let count = move |links: &mut Links| links.unsorted().for_each(|page| counted.apply(page as usize, Add, 1));
    team.on_each(move |member| member.own().launch(count))?;
    let (new, found) = (numbers.clone(), all.clone());
    let order = move |links: &mut Links| {
        let first = links.own().start;
        let mut own_degrees = vec![0; links.own().len()];
        degrees.copy_to(first, &mut own_degrees);
        let order = by_degree(&own_degrees);
        let mut own_numbers = vec![0; order.len()];
        order.iter().zip(first..).for_each(|(at, number)| own_numbers[*at] = number as Vertex);
        new.copy_from(first, &own_numbers);
        found.copy_from(first, &order.iter().map(|at| (first + at) as Vertex).collect::<Vec<_>>());
        links.degrees = order.into_iter().map(|at| own_degrees[at]).collect();
    };
    team.on_each(move |member| member.own().launch(order))?;
    let numbers = numbers.snapshot()?;
    team.on_each(move |member| member.own().launch(move |links| links.renumber(&numbers.slice())))?;
    Ok(all)
}
