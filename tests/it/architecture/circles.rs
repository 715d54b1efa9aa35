//! Circles of imports between files.

use std::collections::BTreeMap;

use super::paths::{Named, named};

/// The files that import each other in circles, one list per circle. A file is identified by the path of its module. A
/// re-export is not an import: a file that imports a re-exported name imports the file that defines it.
pub(super) fn circles(files: &[(String, String)]) -> Vec<Vec<String>> {
    let index = Index::new(files);
    let imports: Vec<Vec<usize>> = (0..files.len())
        .map(|from| {
            let imported = index.paths[from].iter().filter(|path| !path.reexport);
            imported.filter_map(|named| index.defining_file(&named.path, from)).collect()
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

/// The files by their modules, and the paths in each.
struct Index<'f> {
    files: &'f [(String, String)],
    numbers: BTreeMap<&'f str, usize>,
    paths: Vec<Vec<Named>>,
}

impl<'f> Index<'f> {
    fn new(files: &'f [(String, String)]) -> Self {
        let numbers =
            files.iter().enumerate().map(|(number, (module, _))| (module.as_str(), number)).collect();
        let steps = |module: &str| module.split("::").map(str::to_owned).collect::<Vec<_>>();
        let paths = files.iter().map(|(module, text)| named(&steps(module), text)).collect();
        Self { files, numbers, paths }
    }

    /// The file that defines an item that the file `from` refers to by `path`: the file of the longest module that is a
    /// prefix of the path or, if that module re-exports the item, the file that defines it.
    fn defining_file(&self, path: &str, from: usize) -> Option<usize> {
        let within = format!("{}::{path}", self.files[from].0);
        let (number, rest) = self.longest_module(path).or_else(|| self.longest_module(&within))?;
        let name = rest.split("::").next().filter(|name| !name.is_empty());
        let origin = self.paths[number]
            .iter()
            .find(|named| named.reexport && named.path != path && named.path.rsplit("::").next() == name);
        origin.and_then(|origin| self.defining_file(&origin.path, number)).or(Some(number))
    }

    /// The longest module that is a prefix of a path, and the rest of the path.
    fn longest_module<'p>(&self, path: &'p str) -> Option<(usize, &'p str)> {
        let mut module = path;
        loop {
            if let Some(number) = self.numbers.get(module) {
                return Some((*number, path[module.len()..].trim_start_matches("::")));
            }
            (module, _) = module.rsplit_once("::")?;
        }
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

#[test]
fn circle_is_found_through_a_reexport() {
    let files = [
        ("crate::a", "mod b; pub use b::B;"),
        ("crate::a::b", "use super::c::C;"),
        ("crate::a::c", "use crate::a::B;"),
    ];
    let files = files.map(|(module, text)| (module.to_owned(), text.to_owned()));
    assert_eq!(circles(&files), [["crate::a::b", "crate::a::c"]]);
}
