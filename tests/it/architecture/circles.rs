//! Circles of imports between files.

use std::collections::BTreeMap;

use super::paths::named;

/// The files that import each other in circles, one list a circle. Each file is given by the path of its module. A module
/// that re-exports what its own files define does not import them.
pub(super) fn circles(files: &[(String, String)]) -> Vec<Vec<String>> {
    let numbers: BTreeMap<&str, usize> =
        files.iter().enumerate().map(|(number, (module, _))| (module.as_str(), number)).collect();
    let imports: Vec<Vec<usize>> = files
        .iter()
        .map(|(module, text)| {
            let steps: Vec<_> = module.split("::").map(str::to_owned).collect();
            let paths = named(&steps, text);
            let imported = paths.iter().filter(|path| !path.reexport);
            let file = |path: &str| {
                file_of(path, &numbers).or_else(|| file_of(&format!("{module}::{path}"), &numbers))
            };
            imported.filter_map(|named| file(&named.path)).collect()
        })
        .collect();
    let reach: Vec<Vec<bool>> = (0..files.len()).map(|from| reachable(from, &imports)).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut listed = vec![false; files.len()];
    for from in 0..files.len() {
        let circle: Vec<_> =
            (0..files.len()).filter(|to| *to != from && reach[from][*to] && reach[*to][from]).collect();
        if !circle.is_empty() && !listed[from] {
            let members = [&[from], &circle[..]].concat();
            members.iter().for_each(|member| listed[*member] = true);
            found.push(members.into_iter().map(|member| files[member].0.clone()).collect());
        }
    }
    found
}

/// The file that defines what a path names: that of the longest module that the path begins with.
fn file_of(path: &str, numbers: &BTreeMap<&str, usize>) -> Option<usize> {
    let mut module = path;
    loop {
        if let Some(number) = numbers.get(module) {
            return Some(*number);
        }
        (module, _) = module.rsplit_once("::")?;
    }
}

fn reachable(from: usize, imports: &[Vec<usize>]) -> Vec<bool> {
    let mut reached = vec![false; imports.len()];
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for to in &imports[at] {
            if !reached[*to] {
                reached[*to] = true;
                open.push(*to);
            }
        }
    }
    reached
}

#[test]
fn circle_is_found_through_any_number_of_files() {
    let files = [
        ("crate::a", "pub use self::b::B; use self::c::C;"),
        ("crate::a::b", "use super::d::D;"),
        ("crate::a::c", "use super::b::B;"),
        ("crate::a::d", "fn f() -> super::c::C {}"),
        ("crate::a::e", "use super::c::C;"),
    ];
    let files = files.map(|(module, text)| (module.to_owned(), text.to_owned()));
    assert_eq!(circles(&files), [["crate::a::b", "crate::a::c", "crate::a::d"]]);
}
